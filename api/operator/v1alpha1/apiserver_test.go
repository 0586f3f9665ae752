package v1alpha1_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestThereIsOneConfigurationAndItHasDefaults(t *testing.T) {
	c := apiserver.Client(t)
	other := &v1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if err := c.Create(t.Context(), other); !apierrors.IsInvalid(err) {
		t.Errorf("another name: got %v, want an error that says invalid", err)
	}
	only := &v1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ListenerOperatorName}}
	if err := c.Create(t.Context(), only); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ListenerOperatorSpec{
		ManagementState: v1alpha1.Managed,
		Preset:          v1alpha1.PresetEphemeralNodes,
		ClusterDomain:   "cluster.local",
		NodeAgent: v1alpha1.NodeAgentSpec{
			Placement:         v1alpha1.PlacementEverywhere,
			PriorityClassName: "system-node-critical",
			KubeletDir:        "/var/lib/kubelet",
			LogLevel:          "info",
		},
	}
	if diff := cmp.Diff(want, only.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for name, mutate := range map[string]func(*v1alpha1.ListenerOperatorSpec){
		"an unknown preset":         func(s *v1alpha1.ListenerOperatorSpec) { s.Preset = "mine" },
		"an unknown placement":      func(s *v1alpha1.ListenerOperatorSpec) { s.NodeAgent.Placement = "Somewhere" },
		"an unknown state":          func(s *v1alpha1.ListenerOperatorSpec) { s.ManagementState = "Paused" },
		"a domain with a slash":     func(s *v1alpha1.ListenerOperatorSpec) { s.ClusterDomain = "a/b" },
		"a relative kubelet dir":    func(s *v1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "var/lib/kubelet" },
		"a kubelet dir with dots":   func(s *v1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "/var/../etc" },
		"the root as a kubelet dir": func(s *v1alpha1.ListenerOperatorSpec) { s.NodeAgent.KubeletDir = "/" },
	} {
		changed := only.DeepCopy()
		mutate(&changed.Spec)
		if err := c.Update(t.Context(), changed); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want an error that says invalid", name, err)
		}
	}
}
