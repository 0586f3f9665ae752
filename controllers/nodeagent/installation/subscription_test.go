package installation

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// subscribed returns the operator's Deployment as OLM creates it for a Subscription with all settings, and for a bundle
// whose images need pull secrets.
func subscribed() *appsv1.Deployment {
	labels := map[string]string{"app": "operator"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator, Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "second-mirror"}},
					NodeSelector:     map[string]string{"node-role.kubernetes.io/infra": ""},
					Tolerations:      []corev1.Toleration{{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists}},
					Affinity: &corev1.Affinity{
						NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
							NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
								{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}},
							}}},
						}},
						PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
							{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}},
						}},
					},
					Containers: []corev1.Container{
						{Name: "sidecar", Image: "sidecar", Env: []corev1.EnvVar{{Name: "HTTP_PROXY", Value: "http://of-the-sidecar"}}},
						{
							Name: componentOperator, Image: "operator",
							Env: []corev1.EnvVar{
								{Name: "OPERATOR_NAMESPACE", Value: "somewhere"},
								{Name: "NO_PROXY", Value: ".cluster.local,10.0.0.0/8"},
								{Name: "HTTPS_PROXY", Value: "http://proxy.example:3128"},
								{Name: "GODEBUG", Value: "http2debug=1"},
							},
							Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}},
						},
					},
				},
			},
		},
	}
}

func TestSubscriptionSettingsAreInherited(t *testing.T) {
	for name, placement := range map[string]operatorv1alpha1.Placement{
		"subscribed": operatorv1alpha1.PlacementEverywhere, "like-operator": operatorv1alpha1.PlacementLikeOperator,
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig()
			config.Spec.NodeAgent.Placement = placement
			s := testSettings()
			s.OperatorPod = subscribed().Spec.Template.Spec
			object, err := componentOf(t, "DaemonSet").Desired(config, s)
			if err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "daemonset-"+name, object)
		})
	}
}

func TestProxyVariablesThatReferToOthersAreNotInherited(t *testing.T) {
	for name, variable := range map[string]corev1.EnvVar{
		"a Secret": {Name: "HTTPS_PROXY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "proxy"}, Key: "url",
		}}},
		"another variable": {Name: "HTTPS_PROXY", Value: "http://$(HOST):3128"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testSettings()
			s.OperatorPod = corev1.PodSpec{Containers: []corev1.Container{{Name: componentOperator, Env: []corev1.EnvVar{variable}}}}
			_, err := componentOf(t, "DaemonSet").Desired(newConfig(), s)
			if err == nil || !strings.Contains(err.Error(), "environment variable HTTPS_PROXY of Deployment listener-operator refers to another object or variable") {
				t.Errorf("error is %v", err)
			}
		})
	}
}
