package gather

import (
	"bytes"
	"cmp"
	"errors"
	"io"
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

// end returns the end of a stream, of at most this number of bytes and from the beginning of a line, and whether that
// is everything. If reading fails, it is the end of what was read.
func end(stream io.Reader, most int) (content []byte, complete bool, err error) {
	complete = true
	keep := func(most int) {
		if left := len(content) - most; left > 0 {
			content, complete = content[:copy(content, content[left:])], false
		}
	}
	for buffer := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = stream.Read(buffer)
		if content = append(content, buffer[:n]...); len(content) > 2*most {
			keep(most)
		}
	}
	keep(most)
	if line := bytes.IndexByte(content, '\n') + 1; !complete && line < len(content) {
		content = content[line:]
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return content, complete, err
}
