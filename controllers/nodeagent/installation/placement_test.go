package installation

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// linux returns the node selector that agents always have, with more keys.
func linux(more ...string) map[string]string {
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	for _, key := range more {
		selector[key] = ""
	}
	return selector
}

// It overrides each field independently.
func TestConfigurationOverridesInheritedPlacement(t *testing.T) {
	operator := subscribed()
	theirs := Placement{linux("node-role.kubernetes.io/infra"), operator.Tolerations, suitable(&corev1.Affinity{NodeAffinity: operator.Affinity.NodeAffinity})}
	toPods := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
	own := configured().Spec.NodeAgent
	ownSelector := linux()
	maps.Copy(ownSelector, own.NodeSelector)
	for name, test := range map[string]struct {
		agent operatorv1alpha1.NodeAgentSpec
		want  Placement
	}{
		"nothing":             {want: theirs},
		"a node selector":     {operatorv1alpha1.NodeAgentSpec{NodeSelector: own.NodeSelector}, Placement{ownSelector, theirs.Tolerations, theirs.Affinity}},
		"tolerations":         {operatorv1alpha1.NodeAgentSpec{Tolerations: own.Tolerations}, Placement{theirs.NodeSelector, own.Tolerations, theirs.Affinity}},
		"an affinity":         {operatorv1alpha1.NodeAgentSpec{Affinity: own.Affinity}, Placement{theirs.NodeSelector, theirs.Tolerations, suitable(own.Affinity)}},
		"an affinity to Pods": {operatorv1alpha1.NodeAgentSpec{Affinity: toPods}, Placement{theirs.NodeSelector, theirs.Tolerations, suitable(toPods)}},
	} {
		t.Run(name, func(t *testing.T) {
			test.agent.Placement = operatorv1alpha1.PlacementLikeOperator
			check.Equal(t, "placement", test.want, DesiredPlacement(test.agent, operator))
		})
	}
}

func TestNothingIsInheritedFromAnOperatorWithoutSettings(t *testing.T) {
	everywhere := Placement{linux(), []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, suitable(nil)}
	operator := corev1.PodSpec{Containers: []corev1.Container{{Name: componentOperator}}, Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}}
	agent := operatorv1alpha1.NodeAgentSpec{Placement: operatorv1alpha1.PlacementLikeOperator}
	check.Equal(t, "placement", everywhere, DesiredPlacement(agent, operator))
	if env, err := proxyEnv(operator); env != nil || err != nil {
		t.Errorf("variables are %v (%v), want none", env, err)
	}
}

// TestNoAgentIsPlannedWhereNoneCanRun: whatever the configuration selects, and without excluding other nodes.
func TestNoAgentIsPlannedWhereNoneCanRun(t *testing.T) {
	zones := parsed[*corev1.Affinity](`nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{},
  {matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [b]}]}]}}`)
	const arch, system = corev1.LabelArchStable, corev1.LabelOSStable
	for name, test := range map[string]struct {
		affinity   *corev1.Affinity
		labels     map[string]string
		want       bool
		unsuitable string
	}{
		"an ordinary node":            {nil, map[string]string{system: "linux", arch: "arm64"}, true, ""},
		"a selected node":             {zones, map[string]string{system: "linux", arch: "amd64", "zone": "a"}, true, ""},
		"a node that is not selected": {zones, map[string]string{system: "linux", arch: "amd64"}, false, ""},
		"another architecture":        {nil, map[string]string{system: "linux", arch: "riscv64"}, false, "kubernetes.io/arch=riscv64"},
		"another, selected":           {zones, map[string]string{system: "linux", arch: "riscv64", "zone": "a"}, false, "kubernetes.io/arch=riscv64"},
		"a virtual kubelet":           {nil, map[string]string{system: "linux", arch: "amd64", "type": "virtual-kubelet"}, false, "type=virtual-kubelet"},
		"a node of KWOK":              {nil, map[string]string{system: "linux", arch: "amd64", "type": "kwok"}, false, "type=kwok"},
		"a node of Admiralty":         {nil, map[string]string{system: "linux", arch: "amd64", "virtual-kubelet.io/provider": "admiralty"}, false, "virtual-kubelet.io/provider=admiralty"},
		"a node of Liqo":              {nil, map[string]string{system: "linux", arch: "amd64", "liqo.io/type": "virtual-node"}, false, "liqo.io/type=virtual-node"},
		"a node of Fargate":           {nil, map[string]string{system: "linux", arch: "amd64", "eks.amazonaws.com/compute-type": "fargate"}, false, "eks.amazonaws.com/compute-type=fargate"},
		"another type of EKS":         {nil, map[string]string{system: "linux", arch: "amd64", "eks.amazonaws.com/compute-type": "ec2"}, true, ""},
		"Windows":                     {nil, map[string]string{system: "windows", arch: "amd64"}, false, "kubernetes.io/os=windows"},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.affinity.DeepCopy()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: test.labels}}
			placement := DesiredPlacement(operatorv1alpha1.NodeAgentSpec{Affinity: test.affinity}, corev1.PodSpec{})
			if got, err := placement.Selects(node); err != nil || got != test.want {
				t.Errorf("selected: %t, %v", got, err)
			}
			check.Equal(t, "unsuitable because of", test.unsuitable, Unsuitable(node))
			check.Equal(t, "affinity in the configuration", before, test.affinity)
		})
	}
}

func TestPlacementSelects(t *testing.T) {
	in := func(zones string) *corev1.Affinity {
		return parsed[*corev1.Affinity](`nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: zone, operator: In, values: [` + zones + `]}]}]}}`)
	}
	infra := corev1.Toleration{Key: "infra", Operator: corev1.TolerationOpExists}
	for name, test := range map[string]struct {
		agents Placement
		labels map[string]string
		taints []corev1.Taint
		want   bool
	}{
		"everything":                      {want: true},
		"a node with the label":           {agents: Placement{NodeSelector: linux()}, labels: linux(), want: true},
		"a node without the label":        {agents: Placement{NodeSelector: linux("infra")}, labels: linux()},
		"a node in the zone":              {agents: Placement{Affinity: in("a, b")}, labels: map[string]string{"zone": "b"}, want: true},
		"a node in another zone":          {agents: Placement{Affinity: in("a")}, labels: map[string]string{"zone": "b"}},
		"a tolerated taint":               {agents: Placement{Tolerations: []corev1.Toleration{infra}}, taints: []corev1.Taint{{Key: "infra", Effect: "NoSchedule"}}, want: true},
		"a taint":                         {taints: []corev1.Taint{{Key: "infra", Effect: "NoSchedule"}}},
		"a taint that evicts":             {taints: []corev1.Taint{{Key: "infra", Effect: "NoExecute"}}},
		"a taint that is a preference":    {taints: []corev1.Taint{{Key: "infra", Effect: "PreferNoSchedule"}}, want: true},
		"a temporary taint of Kubernetes": {taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: "NoExecute"}}, want: true},
		"one of two taints tolerated":     {agents: Placement{Tolerations: []corev1.Toleration{infra}}, taints: []corev1.Taint{{Key: "infra", Effect: "NoSchedule"}, {Key: "gpu", Effect: "NoSchedule"}}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}, Spec: corev1.NodeSpec{Taints: test.taints}}
			if got, err := test.agents.Selects(node); err != nil || got != test.want {
				t.Errorf("Selects returns %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
