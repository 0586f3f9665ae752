package gather

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

// log is the log of a container.
type log struct {
	container, file string
	previous        bool
}

// path returns the path of a log, as `oc adm inspect` has it.
func (l log) path(pod *corev1.Pod) string {
	return path.Join("namespaces", pod.Namespace, "pods", pod.Name, l.container, l.container, "logs", l.file+".log")
}

// logsOf returns the logs of a Pod: of each container, and of the one before it if it has restarted.
func logsOf(pod *corev1.Pod) (logs []log) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		logs = append(logs, log{container: status.Name, file: "current"})
		if status.LastTerminationState.Terminated != nil {
			logs = append(logs, log{container: status.Name, file: "previous", previous: true})
		}
	}
	return logs
}

// sortOwn sorts the Pods of operators and node agents by how much their logs may say.
func (g *gatherer) sortOwn() {
	rank := func(pod *corev1.Pod) int {
		switch {
		case pod.Spec.ServiceAccountName == names.Operator:
			return 0
		case !claim.PodReady(pod):
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(g.own, func(a, b *corev1.Pod) int { return cmp.Compare(rank(a), rank(b)) })
}
