package claim_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// inlinePod returns Pod web-0 with an inline volume, and what this requests.
func inlinePod(attributes map[string]string) (*corev1.Pod, claim.Request) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "pod-uid"}}
	pod.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", attributes)}
	return pod, claim.OfInline(pod, &pod.Spec.Volumes[0])
}

func TestAttributesOfInlineVolumesAreReadStrictly(t *testing.T) {
	set := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set", Controller: ptr.To(true)}}
	random := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: ptr.To(true)}}
	for name, tc := range map[string]struct {
		attributes map[string]string
		owners     []metav1.OwnerReference
		generated  string
		want       string // "" if the attributes are valid
	}{
		"a class":           {attributes: map[string]string{names.AnnotationListenerClass: "public"}},
		"a Listener":        {attributes: map[string]string{names.AnnotationListenerName: "web"}},
		"of another domain": {attributes: map[string]string{names.AnnotationListenerName: "web", "example.com/x": "y"}},
		"all of a class": {
			attributes: map[string]string{names.AnnotationListenerClass: "public", names.AnnotationPorts: "http", names.AttributeKeep: "true", names.LabelCertificate: "web"},
			owners:     set,
		},
		"none":              {want: "neither listeners.stackable.tech/listener-class nor"},
		"both":              {attributes: map[string]string{names.AnnotationListenerClass: "public", names.AnnotationListenerName: "web"}, want: "remove one"},
		"misspelt":          {attributes: map[string]string{"listeners.stackable.tech/listenerClass": "public"}, want: "the attribute listeners.stackable.tech/listenerClass is unknown: did you mean listeners.stackable.tech/listener-class?"},
		"without a domain":  {attributes: map[string]string{names.AnnotationListenerClass: "public", "ports": "http"}, want: "the attribute ports is unknown: did you mean listener-operator.dev/ports?"},
		"unknown":           {attributes: map[string]string{names.AnnotationListenerClass: "public", "listener-operator.dev/port": "http"}, want: names.AnnotationPorts},
		"nothing of others": {attributes: map[string]string{names.AnnotationListenerName: "web", names.AnnotationPorts: "", names.AttributeKeep: "", names.AnnotationListenerClass: ""}},
		"ports of others":   {attributes: map[string]string{names.AnnotationListenerName: "web", names.AnnotationPorts: "http"}, want: "Listener of their own"},
		"keep of others":    {attributes: map[string]string{names.AnnotationListenerName: "web", names.AttributeKeep: "true"}, want: "Listener of their own"},
		"keep: yes":         {attributes: map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "yes"}, owners: set, want: "true or false"},
		"kept, no controller": {
			attributes: map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"}, want: "no controller",
		},
		"kept, with a random name": {
			attributes: map[string]string{names.AnnotationListenerClass: "public", names.AttributeKeep: "true"}, owners: random, generated: "web-", want: "random",
		},
		"no label": {attributes: map[string]string{names.AnnotationListenerClass: "public", names.LabelCertificate: "a b"}, want: "name of a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, request := inlinePod(tc.attributes)
			pod.OwnerReferences, pod.GenerateName = tc.owners, tc.generated
			if got := request.InlineProblem(pod, nil); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestListenerOfAnInlineVolumeBelongsToItsPod(t *testing.T) {
	pod, request := inlinePod(map[string]string{names.AnnotationListenerClass: "public", names.LabelCertificate: "web"})
	got := request.Listener("public", nil, nil)
	if owners := got.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Pod" || owners[0].Name != "web-0" || owners[0].UID != pod.UID || owners[0].Controller != nil {
		t.Errorf("owners %+v", owners)
	}
	if got.GetName() != "web-0-listener" || got.GetLabels()[names.LabelCertificate] != "web" {
		t.Errorf("got %s with the labels %v", got.GetName(), got.GetLabels())
	}
	if claim.KeepOf(&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
		Name: got.GetName(), Annotations: got.GetAnnotations(), OwnerReferences: got.GetOwnerReferences(),
	}}).IsKept() {
		t.Error("the Pod is taken for what keeps the Listener")
	}
}

func TestAListenerOfAnotherClaimOrPodIsNotTakenOver(t *testing.T) {
	pod, inline := inlinePod(nil)
	ofClaim := claim.OfClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-0-listener", UID: "claim-uid"}}, nil)
	owner := func(kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: "other"}
	}
	for name, tc := range map[string]struct {
		request claim.Request
		owner   metav1.OwnerReference
		kept    string
		want    string
	}{
		"an inline volume, of an earlier Pod": {inline, owner("Pod", "web-0"), "", ""},
		"an inline volume, of another Pod":    {inline, owner("Pod", "web"), "", "belongs to Pod web"},
		"an inline volume, of a claim":        {inline, owner("PersistentVolumeClaim", "web-0-listener"), "", "belongs to PersistentVolumeClaim web-0-listener"},
		"a claim, of an earlier claim":        {ofClaim, owner("PersistentVolumeClaim", "web-0-listener"), "", ""},
		"a claim, of an inline volume":        {ofClaim, owner("Pod", "web-0"), "", "belongs to Pod web-0"},
		"an inline volume, kept for the Pod":  {inline, owner("StatefulSet", "web"), "web-0", ""},
		"an inline volume, kept for another":  {inline, owner("StatefulSet", "web"), "web", "is kept for volume 0-listener of Pod web"},
		"a claim, kept for another Pod":       {ofClaim, owner("StatefulSet", "web"), "web", "is kept for volume 0-listener of Pod web"},
	} {
		listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "web-0-listener", OwnerReferences: []metav1.OwnerReference{tc.owner}, Annotations: map[string]string{
			names.AnnotationClaim: "web-0-listener", names.AnnotationKeptFor: tc.kept,
		}}}
		if got := tc.request.OtherUser(listener, pod); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
