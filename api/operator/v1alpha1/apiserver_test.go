package v1alpha1_test

import (
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestListenerOperatorIsASingletonWithDefaults(t *testing.T) {
	c := apiserver.Client(t)
	other := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if err := c.Create(t.Context(), other); !apierrors.IsInvalid(err) {
		t.Errorf("another name: got %v, want an Invalid error", err)
	}
	only := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	check.Must(t, c.Create(t.Context(), only))
	want := operatorv1alpha1.ListenerOperatorSpec{
		ManagementState: operatorv1alpha1.Managed,
		Preset:          operatorv1alpha1.PresetEphemeralNodes,
		ClusterDomain:   "cluster.local",
		NodeAgent: operatorv1alpha1.NodeAgentSpec{
			Placement:                     operatorv1alpha1.PlacementEverywhere,
			PriorityClassName:             "system-node-critical",
			KubeletDir:                    "/var/lib/kubelet",
			PreventPodSchedulingIfMissing: ptr.To(true),
			LogLevel:                      "info",
		},
		Injection: operatorv1alpha1.InjectionDisabled,
	}
	check.Equal(t, "spec", want, only.Spec)
	for name, mutate := range map[string]func(*operatorv1alpha1.ListenerOperatorSpec){
		"unknown preset":              func(s *operatorv1alpha1.ListenerOperatorSpec) { s.Preset = "mine" },
		"unknown placement":           func(s *operatorv1alpha1.ListenerOperatorSpec) { s.NodeAgent.Placement = "Somewhere" },
		"unknown management state":    func(s *operatorv1alpha1.ListenerOperatorSpec) { s.ManagementState = "Paused" },
		"cluster domain with a slash": func(s *operatorv1alpha1.ListenerOperatorSpec) { s.ClusterDomain = "a/b" },
		"relative kubelet directory":  func(s *operatorv1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "var/lib/kubelet" },
		"kubelet directory with dots": func(s *operatorv1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "/var/../etc" },
		"root as kubelet directory":   func(s *operatorv1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "/" },
	} {
		changed := only.DeepCopy()
		mutate(&changed.Spec)
		if err := c.Update(t.Context(), changed); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want an Invalid error", name, err)
		}
	}
}
