package lostnodes

import (
	"fmt"
	"time"

	"github.com/listener-operator/listener-operator/internal/names"
)

// stuck returns why a Pod of a pinned volume cannot be scheduled, and what to do, or "". The scheduler says that nodes
// "didn't match PersistentVolume's node affinity", but neither which volume that is nor which node it needs.
func (o *observed) stuck(d decision, now time.Time) string {
	node := o.pinned()
	if node == "" || d.release != "" {
		return ""
	}
	for i := range o.pods {
		pod := &o.pods[i]
		verdict := unschedulable(pod)
		if verdict == "" || !namesVolumeAffinity(verdict) {
			continue
		}
		if d.lost && !o.recorded() {
			return "" // what follows is not known yet
		}
		if d.lost {
			return fmt.Sprintf("Pod %s cannot be scheduled: %s", pod.Name, o.lostMessage(now))
		}
		why := "of what the scheduler says: " + verdict
		if n := o.nodes[node]; n != nil {
			if refused := refusal(pod, n, nil); refused != "" {
				why = refused
			}
		}
		return fmt.Sprintf("Pod %s can only run on node %s, which claim %s is pinned to, and which does not take it, because %s; "+
			"let the node take the Pod, or release the volume, which changes the address, by the annotation %s of the claim: set it to the current time (RFC 3339)",
			pod.Name, node, o.claim.Name, why, names.AnnotationRelease)
	}
	return ""
}
