package installation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

const namespace = "somewhere"

func testSettings() Settings {
	return Settings{Namespace: namespace, Image: "listener-operator:test", ServiceAccount: "made-first"}
}

// newConfig returns ListenerOperator/cluster with the API server's defaults.
func newConfig() *operatorv1alpha1.ListenerOperator {
	return &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "c0f1c0f1-0000-4000-8000-000000000001", Generation: 1},
		Spec: operatorv1alpha1.ListenerOperatorSpec{
			ManagementState: operatorv1alpha1.Managed, Preset: operatorv1alpha1.PresetEphemeralNodes, ClusterDomain: "cluster.local",
			NodeAgent: operatorv1alpha1.NodeAgentSpec{
				Placement: operatorv1alpha1.PlacementEverywhere, PriorityClassName: "system-node-critical", KubeletDir: "/var/lib/kubelet", LogLevel: "info",
			},
		},
	}
}

func configured() *operatorv1alpha1.ListenerOperator {
	config := newConfig()
	config.Spec.NodeAgent = operatorv1alpha1.NodeAgentSpec{
		NodeSelector: map[string]string{"pool": "apps"},
		Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "apps", Effect: corev1.TaintEffectNoSchedule}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "virtual", Operator: corev1.NodeSelectorOpDoesNotExist},
			}}},
		}}},
		Resources: &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		PriorityClassName: "agents",
		KubeletDir:        "/data/kubelet",
		LogLevel:          "debug",
	}
	return config
}

// componentOf returns the only component of a kind.
func componentOf(t *testing.T, kind string) Component {
	t.Helper()
	i := slices.IndexFunc(Components(), func(c Component) bool { return c.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no component of kind %s", kind)
	}
	return Components()[i]
}

func TestGolden(t *testing.T) {
	for suffix, config := range map[string]*operatorv1alpha1.ListenerOperator{"": newConfig(), "-configured": configured()} {
		for _, c := range Components() {
			if suffix != "" && c.Kind != "DaemonSet" {
				continue
			}
			name := strings.ToLower(c.Kind) + suffix
			if slices.ContainsFunc(Components(), func(other Component) bool { return other.Kind == c.Kind && other.Name != c.Name }) {
				name += "-" + c.Name
			}
			t.Run(name, func(t *testing.T) {
				object, err := c.Desired(config, testSettings())
				if err != nil {
					t.Fatal(err)
				}
				golden.Compare(t, name, object)
			})
		}
	}
}

func TestCSIDriverHasTheFieldOfLaterKubernetesOnly(t *testing.T) {
	refused := newConfig()
	refused.Spec.NodeAgent.PreventPodSchedulingIfMissing = ptr.To(false)
	for name, tc := range map[string]struct {
		config *operatorv1alpha1.ListenerOperator
		guards bool
		want   any
	}{
		"not served":                 {config: newConfig()},
		"not served, and configured": {config: refused},
		"served":                     {config: newConfig(), guards: true, want: true},
		"served, and configured":     {config: refused, guards: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSettings()
			s.GuardsScheduling = tc.guards
			driver, err := componentOf(t, "CSIDriver").Desired(tc.config, s)
			if err != nil {
				t.Fatal(err)
			}
			if got := driver.Object["spec"].(map[string]any)["preventPodSchedulingIfMissing"]; got != tc.want {
				t.Errorf("the field is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestServingCertificateOnOpenShift checks the annotation that requests a certificate, and that Prometheus verifies it.
func TestServingCertificateOnOpenShift(t *testing.T) {
	s := testSettings()
	s.ServiceCA = true
	for _, kind := range []string{"Service", "ServiceMonitor"} {
		t.Run(kind, func(t *testing.T) {
			object, err := componentOf(t, kind).Desired(newConfig(), s)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, strings.ToLower(kind)+"-openshift", object)
		})
	}
}

// TestDaemonSetWithoutDefaults has a configuration that is older than the defaults of its fields.
func TestDaemonSetWithoutDefaults(t *testing.T) {
	bare := newConfig()
	bare.Spec = operatorv1alpha1.ListenerOperatorSpec{}
	got, err := componentOf(t, "DaemonSet").Desired(bare, testSettings())
	if err != nil {
		t.Fatal(err)
	}
	want, err := componentOf(t, "DaemonSet").Desired(newConfig(), testSettings())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without defaults (-want +got):\n%s", diff)
	}
}

func TestForeignMessage(t *testing.T) {
	controlledBy := func(kind, name string, uid types.UID) func(client.Object) {
		return func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}})
		}
	}
	const agents, class = "DaemonSet", "StorageClass"
	for name, tc := range map[string]struct {
		component string
		change    func(client.Object)
		want      string
	}{
		"a component of the configuration":            {component: agents, change: controlledBy("ListenerOperator", "cluster", newConfig().UID)},
		"an orphan with the label of managed objects": {component: agents, change: func(o client.Object) { o.SetLabels(map[string]string{names.LabelManagedBy: "listener-operator"}) }},
		"another DaemonSet of this name":              {component: agents, want: "DaemonSet listener-node-agent exists and does not belong to this operator; delete or rename it"},
		"a StorageClass without owners":               {component: class},
		"a StorageClass with an owner that is no controller": {component: class, change: func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "ClusterRole", Name: "deployer", UID: "other"}})
		}},
		"a StorageClass with another controller": {component: class, change: controlledBy("Deployer", "d", "other"), want: "StorageClass listeners.stackable.tech belongs to Deployer d; remove that installation first"},
		"a component of an earlier configuration": {
			component: agents, change: controlledBy("ListenerOperator", "cluster", "earlier"),
			want: "DaemonSet listener-node-agent belongs to an earlier ListenerOperator cluster; waiting for the garbage collector to delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := componentOf(t, tc.component)
			object := c.Empty()
			object.SetName(c.Name)
			if tc.change != nil {
				tc.change(object)
			}
			if diff := cmp.Diff(tc.want, c.ForeignMessage(newConfig(), object)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
