package pods

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// observedFiles are times at which files below the kubelet's directory of a Pod were written.
type observedFiles struct {
	// requested is when the kubelet wrote the data of the volume, just before it called the node agent.
	requested time.Time
	// written is when the node agent put the addresses in place.
	written time.Time
}

// files returns the times of a Pod's listener volume.
func (b *Bench) files(ctx context.Context, pod *corev1.Pod) (observedFiles, error) {
	var claim corev1.PersistentVolumeClaim
	key := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name + "-" + volumeName}
	if err := b.api.Get(ctx, key, &claim); err != nil {
		return observedFiles{}, fmt.Errorf("reading a claim: %w", err)
	}
	volume := filepath.Join(b.cluster.KubeletDir(nodeNumber(pod.Spec.NodeName)), "pods", string(pod.UID),
		"volumes", "kubernetes.io~csi", claim.Spec.VolumeName)
	data, err := os.Lstat(filepath.Join(volume, "vol_data.json"))
	if err != nil {
		return observedFiles{}, fmt.Errorf("finding the volume: %w", err)
	}
	link, err := os.Lstat(filepath.Join(volume, "mount", "..data"))
	if err != nil {
		return observedFiles{}, fmt.Errorf("finding the files: %w", err)
	}
	return observedFiles{requested: data.ModTime(), written: link.ModTime()}, nil
}

// steps are the writes that are steps of a Pod's start, by component, resource and the end of the verb. Of several ones
// the last is meant.
var steps = []struct{ component, resource, what string }{
	{"kube-controller-manager", "persistentvolumeclaims", "claim created"},
	{"operator", "listeners", "Listener written"},
	{"operator", "services", "Service created"},
	{"operator", "persistentvolumes", "volume created"},
	{"operator", "listeners/status", "status has addresses"},
	{"kube-controller-manager", "persistentvolumeclaims/status", "claim bound"},
	{"kube-scheduler", "pods/binding", "Pod bound to a node"},
	{"operator", "pods", "Pod labelled"},
	{"operator", "podlisteners", "PodListeners written"},
}

// first are the steps whose first write is meant.
var first = []string{"claim created", "Listener written", "Service created", "volume created"}

// timeline returns what happened during the start of a Pod.
func timeline(name string, v variant, s started, files observedFiles, events []auditv1.Event) result.Timeline {
	at := map[string]time.Time{
		"kubelet requests the volume": files.requested, "files written": files.written, "container runs": s.running,
	}
	during := period{s.began, s.running}
	for i := range events {
		e := &events[i]
		if !during.contains(e.RequestReceivedTimestamp.Time) || e.ObjectRef.Namespace != v.namespace() && e.ObjectRef.Resource != "persistentvolumes" {
			continue
		}
		for _, step := range steps {
			if component(e) != step.component || resourceOf(e) != step.resource {
				continue
			}
			if _, known := at[step.what]; known && slices.Contains(first, step.what) {
				continue
			}
			at[step.what] = e.StageTimestamp.Time
		}
	}
	t := result.Timeline{Name: name, Steps: []result.Step{{What: "Pod created"}}}
	for what, when := range at {
		t.Steps = append(t.Steps, result.Step{What: what, Milliseconds: milliseconds(when.Sub(s.began))})
	}
	slices.SortFunc(t.Steps, func(a, b result.Step) int {
		return cmp.Or(cmp.Compare(a.Milliseconds, b.Milliseconds), cmp.Compare(a.What, b.What))
	})
	return t
}
