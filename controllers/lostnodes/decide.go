package lostnodes

import (
	"fmt"
	"time"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/requests"
)

// replacedNode is how long a node must be lost before a volume is released, by policy Preferred, and at least if the
// class sets releaseAfter: cloud providers delete a node and create it again when they replace a machine in place.
const replacedNode = 10 * time.Second

// newNode is the age up to which a node need not take a Pod: it becomes ready later, and verdicts may be from before.
const newNode = time.Minute

type decision struct {
	// lost states whether the node that the volume is pinned to is lost, which is recorded.
	lost    bool
	release string
	// wait is when to decide again, or 0 if only a change of an observed object matters.
	wait time.Duration
	// invalid is what is wrong with the request in the claim's annotation, or "".
	invalid string
}

// decide decides what to do about a volume that exists, not whether a release is possible at this time.
func (o *observed) decide(now time.Time) decision {
	node := o.pinned()
	d := decision{lost: node != "" && claim.NodeLost(o.nodes[node])}
	value := o.claim.Annotations[names.AnnotationRelease]
	if value == names.ReleaseNever {
		return d
	}
	if value != "" {
		d.release, d.wait, d.invalid = o.decideRequest(value, now)
	}
	if d.release == "" && node != "" {
		release, wait := o.decideAutomatic(node, d.lost, now)
		d.release, d.wait = release, requests.Earliest(d.wait, wait)
	}
	return d
}

// decideRequest decides about a manual request, for a pinned volume that is older than it: a release creates a new one.
func (o *observed) decideRequest(value string, now time.Time) (release string, wait time.Duration, invalid string) {
	requested, err := time.Parse(time.RFC3339, value)
	switch {
	case err != nil:
		return "", 0, fmt.Sprintf("the annotation %s has the value %q; allowed are the time of the request, such as "+
			"%s, and %q", names.AnnotationRelease, value, now.UTC().Format(time.RFC3339), names.ReleaseNever)
	case o.pv.Spec.NodeAffinity == nil || !o.pv.CreationTimestamp.Time.Before(requested):
		return "", 0, ""
	case requested.After(now):
		return "", requested.Sub(now), ""
	}
	return fmt.Sprintf("the annotation %s requests it", names.AnnotationRelease), 0, ""
}

// decideAutomatic decides whether the class demands the release of a volume that is pinned to the node.
func (o *observed) decideAutomatic(node string, lost bool, now time.Time) (release string, wait time.Duration) {
	if after, ok := o.releaseAfter(); lost && ok && o.recorded() {
		since := o.lostSince(now)
		if left := since.Add(after).Sub(now); left > 0 {
			return "", left
		}
		return fmt.Sprintf("node %s is lost since %s", node, since.UTC().Format(time.RFC3339)), 0
	}
	if lost || o.displaced == "" {
		return "", 0
	}
	if left := requests.Left(o.nodes[node].CreationTimestamp, newNode, now); left > 0 {
		return "", left
	}
	return o.displaced, 0
}

// policy returns the policy of the class, or "" if the class is not known. A volume that was pinned before its class
// was changed not to pin is released as with Preferred: nobody relies on the pin any more.
func (o *observed) policy() listenersv1alpha1.PinningPolicy {
	switch {
	case o.class == nil:
		return ""
	case o.class.Pinning() == nil:
		return listenersv1alpha1.PinningPolicyPreferred
	}
	return o.class.Pinning().Policy
}

// releaseAfter returns how long the node must be lost before the volume is released; ok is false if it never is.
func (o *observed) releaseAfter() (after time.Duration, ok bool) {
	switch o.policy() {
	case listenersv1alpha1.PinningPolicyPreferred:
		return replacedNode, true
	case listenersv1alpha1.PinningPolicyRequired:
		if after := o.class.Pinning().ReleaseAfter; after != nil {
			return max(after.Duration, replacedNode), true
		}
	}
	return 0, false
}

func (o *observed) lostMessage(now time.Time) string {
	node := o.pinned()
	what := "does not exist"
	if o.nodes[node] != nil {
		what = "is out of service"
	}
	text := fmt.Sprintf("node %s, which PersistentVolume %s is pinned to, %s; the volume ", node, o.pv.Name, what)
	after, ok := o.releaseAfter()
	switch {
	case o.claim.Annotations[names.AnnotationRelease] == names.ReleaseNever:
		return text + fmt.Sprintf("is not released, because its claim has the annotation %s: %s",
			names.AnnotationRelease, names.ReleaseNever)
	case ok:
		return text + "will be released at " + o.lostSince(now).Add(after).UTC().Format(time.RFC3339)
	}
	return text + fmt.Sprintf("is not released automatically: to release it, set the annotation %s of its claim to "+
		"the current time", names.AnnotationRelease)
}
