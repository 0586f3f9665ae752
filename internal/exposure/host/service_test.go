package host_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/host"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// newListener returns a Listener of a class, created for a claim that the Pods mount.
func newListener(spec listenersv1alpha1.ListenerClassSpec, pods ...string) *exposure.Listener {
	return &exposure.Listener{
		Listener: &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "listener-broker-2",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: "listener-broker-2"}},
		}},
		Class: &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Spec: spec},
		Pods:  pods,
	}
}

// named returns a class that publishes names.
func named(template listenersv1alpha1.HostTemplate) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{Hostname: &listenersv1alpha1.Hostname{Template: template}}
}

// recorded returns a class that publishes names alone.
func recorded(template listenersv1alpha1.HostTemplate) listenersv1alpha1.ListenerClassSpec {
	spec := named(template)
	spec.Hostname.Records = listenersv1alpha1.HostnameRecordsNone
	return spec
}

// annotated returns a class with a template for an annotation.
func annotated(template listenersv1alpha1.AnnotationTemplate) listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceAnnotationTemplates: map[string]listenersv1alpha1.AnnotationTemplate{"example.com/owner": template}}
}

func TestAnnotationsOfTheServiceAreMadeFromTemplates(t *testing.T) {
	const others = "those of the class and of overrides"
	for name, tc := range map[string]struct {
		listener *exposure.Listener
		recorded string            // the Pod in the annotation of the existing Service
		want     map[string]string // without others
		refused  string            // words of the refusal, or ""
	}{
		"no template": {listener: newListener(listenersv1alpha1.ListenerClassSpec{}, "broker-2"), want: map[string]string{}},
		"a name of the Listener": {
			listener: newListener(named("{listener}.{namespace}.{className}.example.com"), "broker-2", "broker-3"),
			want:     map[string]string{names.AnnotationHostname: "listener-broker-2.shop.named.example.com"},
		},
		"a name of the Pod": {
			listener: newListener(named("{podName}.{namespace}.example.com"), "broker-2"),
			want:     map[string]string{names.AnnotationHostname: "broker-2.shop.example.com", names.AnnotationPod: "broker-2"},
		},
		"a name of the Pod that is being replaced": {
			listener: newListener(named("{podName}.{namespace}.example.com")), recorded: "broker-2",
			want: map[string]string{names.AnnotationHostname: "broker-2.shop.example.com", names.AnnotationPod: "broker-2"},
		},
		"a name with the index of the Pod": {
			listener: newListener(named("{podIndex}.{listener}.{namespace}.example.com"), "broker-2"),
			want:     map[string]string{names.AnnotationHostname: "2.listener-broker-2.shop.example.com", names.AnnotationPod: "broker-2"},
		},
		"a name with a hash": {
			listener: newListener(named("{listener}-{hash}.example.com")),
			want:     map[string]string{names.AnnotationHostname: "listener-broker-2-c9f5e6a8c5cc9a53.example.com"},
		},
		"a name in place of the addresses": {
			listener: newListener(recorded("{podName}.{namespace}.example.com"), "broker-2"), want: map[string]string{names.AnnotationPod: "broker-2"},
		},
		"a name in the domain of the cluster": {
			listener: newListener(recorded("{listener}.{namespace}.svc.cluster.local")), refused: `results in "listener-broker-2.shop.svc.cluster.local", which is`,
		},
		"a name without a Pod": {listener: newListener(named("{podName}.{namespace}.example.com")), refused: "no Pod mounts claim shop/listener-broker-2"},
		"an ambiguous name":    {listener: newListener(named("{listener}-{namespace}.example.com")), refused: "may give Listeners of different namespaces or Pods the same host"},
		"an invalid name":      {listener: newListener(named("{listener}.{namespace}.-example.com")), refused: `"listener-broker-2.shop.-example.com", which is not a host name`},

		"another annotation": {
			listener: newListener(annotated("{namespace}/{listener} of {className}: {hash}")),
			want:     map[string]string{"example.com/owner": "shop/listener-broker-2 of named: c9f5e6a8c5cc9a53"},
		},
		"another annotation with the Pod": {
			listener: newListener(annotated("{podName} {podIndex}"), "broker-2"),
			want:     map[string]string{"example.com/owner": "broker-2 2", names.AnnotationPod: "broker-2"},
		},
		"another annotation without an index": {listener: newListener(annotated("{podIndex}"), "web"), refused: "{podIndex}"},
		"another annotation of several Pods":  {listener: newListener(annotated("{podName}"), "a", "b"), refused: "several Pods (a, b)"},
		"another annotation with a name that no Pod has": {
			listener: newListener(annotated("{podName}.{namespace}.example.com")), recorded: "theirs.example.com,x", refused: "no Pod mounts claim shop/listener-broker-2",
		},
		"an unknown placeholder": {listener: newListener(annotated("{node}"), "a"), refused: "{node}, which has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.recorded != "" {
				tc.listener.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationPod: tc.recorded}}}
			}
			before := map[string]string{"example.com/other": others, names.AnnotationHostname: others, names.AnnotationHostname022: others, "example.com/owner": others}
			service := corev1ac.Service("listener-broker-2", "shop").WithAnnotations(before)
			got, refusal := host.WithAnnotations(tc.listener, service)
			refused := refusal != nil
			switch {
			case tc.refused != "" && (!refused || !strings.Contains(refusal.Message, tc.refused)):
				t.Fatalf("got %v, want a refusal with %q", refusal, tc.refused)
			case tc.refused != "":
				return
			case refused:
				t.Fatal(refusal)
			}
			want := maps.Clone(before)
			maps.Copy(want, tc.want)
			want[names.AnnotationHostname022] = want[names.AnnotationHostname]
			check.Equal(t, "annotations", want, got.Annotations)
			if service.Annotations[names.AnnotationHostname] != others {
				t.Error("the given Service was changed")
			}
		})
	}
}
