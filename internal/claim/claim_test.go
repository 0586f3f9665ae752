package claim_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestParseSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        claim.Selector
		err         error
	}{
		"a class":   {map[string]string{names.AnnotationListenerClass: "public"}, claim.Selector{Class: "public"}, nil},
		"a name":    {map[string]string{names.AnnotationListenerName: "web"}, claim.Selector{Listener: "web"}, nil},
		"neither":   {map[string]string{"other": "x"}, claim.Selector{}, claim.ErrNoSelector},
		"empty":     {map[string]string{names.AnnotationListenerClass: ""}, claim.Selector{}, claim.ErrNoSelector},
		"no map":    {nil, claim.Selector{}, claim.ErrNoSelector},
		"both":      {map[string]string{names.AnnotationListenerClass: "c", names.AnnotationListenerName: "n"}, claim.Selector{Class: "c"}, claim.ErrBothSelectors},
		"one empty": {map[string]string{names.AnnotationListenerClass: "", names.AnnotationListenerName: "n"}, claim.Selector{Listener: "n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := claim.ParseSelector(tc.annotations)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %v, %v; want %v, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestOnlyTheClassOfAClaimIsFollowed(t *testing.T) {
	class, listener := claim.Selector{Class: "public"}, claim.Selector{Listener: "web"}
	annotations := func(class, listener string) map[string]string {
		return map[string]string{names.AnnotationListenerClass: class, names.AnnotationListenerName: listener}
	}
	for name, tc := range map[string]struct {
		provisioned claim.Selector
		annotations map[string]string
		want        claim.Selector
		ignored     bool
	}{
		"the same class":             {provisioned: class, annotations: annotations("public", ""), want: class},
		"another class":              {provisioned: class, annotations: annotations("other", ""), want: claim.Selector{Class: "other"}},
		"a class, and a Listener":    {provisioned: class, annotations: annotations("other", "web"), want: claim.Selector{Class: "other"}},
		"a Listener, not the class":  {provisioned: class, annotations: annotations("", "web"), want: class, ignored: true},
		"no class any more":          {provisioned: class, want: class},
		"the same Listener":          {provisioned: listener, annotations: annotations("", "web"), want: listener},
		"another Listener":           {provisioned: listener, annotations: annotations("", "other"), want: listener, ignored: true},
		"a class, not the Listener":  {provisioned: listener, annotations: annotations("public", ""), want: listener, ignored: true},
		"no Listener any more":       {provisioned: listener, want: listener},
		"a Listener and now a class": {provisioned: listener, annotations: annotations("public", "web"), want: listener, ignored: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ignored := tc.provisioned.Follow(tc.annotations); got != tc.want || ignored != tc.ignored {
				t.Errorf("selector %+v, ignored %t, want %+v, %t", got, ignored, tc.want, tc.ignored)
			}
		})
	}
}

func TestVolumeWithBothAnnotationsKeepsTheClass(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeAttributes: map[string]string{
		names.AnnotationListenerClass: "public", names.AnnotationListenerName: "web",
	}}
	got, err := claim.VolumeSelector(pv)
	if err != nil || got != (claim.Selector{Class: "public"}) {
		t.Errorf("got %v, %v; want the class", got, err)
	}
}

func TestOnlyVolumesOfOurDriverAreListenerVolumes(t *testing.T) {
	attributes := map[string]string{names.AnnotationListenerClass: "public"}
	for name, tc := range map[string]struct {
		source *corev1.CSIPersistentVolumeSource
		want   bool
	}{
		"of our driver":     {&corev1.CSIPersistentVolumeSource{Driver: names.Driver, VolumeAttributes: attributes}, true},
		"of another driver": {&corev1.CSIPersistentVolumeSource{Driver: "other.example.com", VolumeAttributes: attributes}, false},
		"without a driver":  {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{}
			pv.Spec.CSI = tc.source
			if got := claim.IsListenerVolume(pv); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if _, err := claim.VolumeSelector(pv); (err == nil) != tc.want {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestClaimOwnsOnlyListenersThatWereCreatedForIt(t *testing.T) {
	claimOf := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name, UID: "claim"}
	}
	product := metav1.OwnerReference{APIVersion: "kafka.example/v1", Kind: "KafkaCluster", Name: "k", UID: "product"}
	replicas := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}
	for name, tc := range map[string]struct {
		annotation string
		owners     []metav1.OwnerReference
		want       bool
		keeper     types.UID
	}{
		"created by a user":                               {},
		"a copy of another claim's":                       {annotation: "data-web-1"},
		"owned by a product":                              {owners: []metav1.OwnerReference{product}},
		"owned by a volume, as with Stackable's operator": {owners: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolume", Name: "pvc-old"}}, want: true},
		"owned by the claim":                              {owners: []metav1.OwnerReference{claimOf("data-web-0")}, want: true},
		"owned by another claim":                          {owners: []metav1.OwnerReference{claimOf("other")}},
		"owned by the claim and a product":                {owners: []metav1.OwnerReference{claimOf("data-web-0"), product}},
		"restored from a backup":                          {annotation: "data-web-0", want: true},
		"of a claim and kept":                             {annotation: "data-web-0", owners: []metav1.OwnerReference{claimOf("data-web-0"), replicas}, want: true, keeper: "set"},
		"kept":                                            {annotation: "data-web-0", owners: []metav1.OwnerReference{replicas}, want: true, keeper: "set"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "data-web-0", OwnerReferences: tc.owners}}
			if tc.annotation != "" {
				listener.Annotations = map[string]string{names.AnnotationClaim: tc.annotation}
			}
			if got := claim.OwnsListener(listener); got != tc.want {
				t.Errorf("created for a claim: %v, want %v", got, tc.want)
			}
			var got types.UID
			for _, owner := range claim.KeepOf(listener).Owners {
				got += owner.UID
			}
			if got != tc.keeper {
				t.Errorf("kept by %q, want %q", got, tc.keeper)
			}
		})
	}
}

func TestListenersOfEphemeralClaimsAreKeptForPodsWhoseNamesStay(t *testing.T) {
	controlledBy := func(apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "set", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
	}
	kept := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "set"}
	for name, tc := range map[string]struct {
		pod   metav1.ObjectMeta
		named bool // the volume is a claim that outlives the Pod
		want  *metav1.OwnerReference
	}{
		"of a StatefulSet": {pod: metav1.ObjectMeta{
			GenerateName: "web-", Labels: map[string]string{"statefulset.kubernetes.io/pod-name": "web-0"}, OwnerReferences: controlledBy("apps/v1", "StatefulSet"),
		}, want: kept},
		"of a StatefulSet, restored": {pod: metav1.ObjectMeta{OwnerReferences: controlledBy("apps/v1", "StatefulSet")}, want: kept},
		"of another controller": {
			pod:  metav1.ObjectMeta{OwnerReferences: controlledBy("core.strimzi.io/v1", "StrimziPodSet")},
			want: &metav1.OwnerReference{APIVersion: "core.strimzi.io/v1", Kind: "StrimziPodSet", Name: "web", UID: "set"},
		},
		"a claim of its own":                             {pod: metav1.ObjectMeta{OwnerReferences: controlledBy("apps/v1", "StatefulSet")}, named: true},
		"with a random name":                             {pod: metav1.ObjectMeta{GenerateName: "web-", OwnerReferences: controlledBy("apps/v1", "ReplicaSet")}},
		"of a product that deletes what it seems to own": {pod: metav1.ObjectMeta{OwnerReferences: controlledBy("hdfs.stackable.tech/v1alpha1", "HdfsCluster")}},
		"without a controller":                           {},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: tc.pod}
			pod.Name = "web-0"
			source := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			if tc.named {
				source = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-0-listener"}}
			}
			pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "listener", VolumeSource: source}}
			check.Equal(t, "keeper", tc.want, claim.Keeper(pod, "web-0-listener"))
		})
	}
}

func TestListenerOfAClaimHasItsLabelsButNotItsOwners(t *testing.T) {
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data-web-0", Namespace: "shop", UID: "u1", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "kafka.example/v1", Kind: "KafkaCluster", Name: "k"}},
	}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1", UID: "u2"}}
	got := claim.OfClaim(pvc, pv).Listener("public", []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80, Protocol: ptr.To(corev1.ProtocolTCP)}}, nil)
	want := map[string]any{
		"apiVersion": "listeners.stackable.tech/v1alpha1",
		"kind":       "Listener",
		"metadata": map[string]any{
			"name": "data-web-0", "namespace": "shop", "labels": map[string]any{"app": "web"},
			"annotations": map[string]any{"listener-operator.dev/claim": "data-web-0"},
			"ownerReferences": []any{
				map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data-web-0", "uid": "u1"},
				map[string]any{"apiVersion": "v1", "kind": "PersistentVolume", "name": "pvc-u1", "uid": "u2"},
			},
		},
		"spec": map[string]any{
			"className": "public", "publishNotReadyAddresses": true,
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}},
		},
	}
	check.Equal(t, "Listener", want, got.Object)
}

// So `kubectl get lsn -l apps.kubernetes.io/pod-index=0` finds the Listener of the first replica.
func TestListenerOfAClaimHasTheNameAndTheIndexOfItsPod(t *testing.T) {
	pod := map[string]string{
		"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "web-6f", "app": "pod",
	}
	for name, tc := range map[string]struct{ claim, labels, want map[string]string }{
		"of a StatefulSet":              {map[string]string{"app": "web"}, pod, map[string]string{"app": "web", "statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}},
		"of another Pod":                {map[string]string{"app": "web"}, map[string]string{"app": "pod"}, map[string]string{"app": "web"}},
		"of a claim without labels":     {nil, pod, map[string]string{"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}},
		"of a claim with the same keys": {map[string]string{"apps.kubernetes.io/pod-index": "7"}, pod, map[string]string{"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "7"}},
		"without any":                   {nil, nil, nil},
	} {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-web-0", Namespace: "shop", UID: "u1", Labels: tc.claim}}
		if diff := cmp.Diff(tc.want, claim.OfClaim(pvc, nil).Listener("public", nil, tc.labels).GetLabels()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(pod) != 4 {
		t.Errorf("the labels of the Pod are now %v", pod)
	}
}

// Kubernetes does not annotate a claim whose volume exists when it comes to it.
func TestIsListenerClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"of the driver":         {map[string]string{names.AnnotationProvisioner: names.Driver}, true},
		"not annotated":         {map[string]string{names.AnnotationListenerClass: "public"}, true},
		"of another driver":     {map[string]string{names.AnnotationProvisioner: "other.example", names.AnnotationListenerClass: "public"}, false},
		"without an annotation": {nil, false},
	} {
		if got := claim.IsListenerClaim(&metav1.ObjectMeta{Annotations: tc.annotations}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAnAnnotationThatNearlyFitsIsNamed(t *testing.T) {
	for key, want := range map[string]string{
		"listener.stackable.tech/listener-class":  names.AnnotationListenerClass, // singular, as in the label of Pods
		"listeners.stackable.tech/listenerClass":  names.AnnotationListenerClass,
		"listeners.stackable.tech/class":          names.AnnotationListenerClass,
		"stackable.tech/listener-class":           names.AnnotationListenerClass,
		"listener-class":                          names.AnnotationListenerClass,
		"listeners.stackable.tech/listener":       names.AnnotationListenerName,
		"listener.stackable.tech/name":            names.AnnotationListenerName,
		"listeners.stackable.tech/listner-name":   names.AnnotationListenerName,
		"listeners.stackable.tech/listener-clas":  names.AnnotationListenerClass,
		"Listeners.Stackable.Tech/Listener-Class": names.AnnotationListenerClass,
		names.AnnotationListenerClass:             "",
		names.AnnotationListenerName:              "",
		names.AnnotationPorts:                     "",
		names.AnnotationRelease:                   "",
		names.AnnotationProvisioner:               "",
		"volume.kubernetes.io/selected-node":      "",
		"example.com/class":                       "",
		"":                                        "",
	} {
		got := claim.Request{Annotations: map[string]string{"a.example/other": "x", key: "some"}}.DidYouMean()
		if want == "" && got != "" || want != "" && (!strings.Contains(got, "annotation "+key) || !strings.HasSuffix(got, "did you mean "+want+"?")) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestAListenerMayHaveAnyNameThatKubernetesAllows(t *testing.T) {
	for _, name := range []string{"web", "7days-data", "web.one", strings.Repeat("a", 70)} {
		if got := claim.ListenerNameProblem(name); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"Web", "x%2f", "-web", strings.Repeat("a", 254)} {
		if got := claim.ListenerNameProblem(name); !strings.Contains(got, "no Listener can have as its name") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAListenerNameWithANamespaceIsExplained(t *testing.T) {
	got := claim.ListenerNameProblem("shop/web")
	if !strings.Contains(got, "name alone") || strings.Contains(got, "Service") {
		t.Errorf("got %q", got)
	}
}
