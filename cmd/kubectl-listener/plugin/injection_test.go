package plugin_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// annotatedPod returns a Pod that asks for a volume, and has none.
func annotatedPod(w *world) *corev1.Pod {
	pod := w.newPod("annotated", "")
	pod.Annotations = map[string]string{names.AnnotationInject: w.class.Name}
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}

const notEnabled = "an administrator has not set spec.injection"

// Each step removes the cause that the command has named before.
func TestWhySaysWhyAnAnnotationWasNotActedOn(t *testing.T) {
	w := newWorld(t)
	pod := annotatedPod(w)
	w.create(t, pod)
	expect := func(text string) {
		t.Helper()
		if p := whyOf(t, w.namespace, pod.Name).Problem; p == nil || p.Kind != "Pod" || p.Reason != "NotInjected" || !strings.Contains(p.Message, "not acted on, because "+text) {
			t.Errorf("the problem is %+v, want %q", p, text)
		}
	}
	policies := injectionPolicies(t)
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}

	expect("the namespace does not opt in; an administrator lets it by: kubectl label namespace " + w.namespace + " " + names.LabelInjection + "=enabled")
	optIn := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.LabelInjection+`":"enabled"}}}`))
	check.Must(t, w.Patch(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, optIn))
	nowhere := map[string]string{"no": "namespace"} // they would act on the Pods below
	policies[0].(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.MatchConstraints.NamespaceSelector.MatchLabels = nowhere
	policies[2].(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec.MatchConstraints.NamespaceSelector.MatchLabels = nowhere
	for _, policy := range policies[:3] {
		expect("the MutatingAdmissionPolicy listener-operator-injection is not installed")
		w.create(t, policy)
	}
	expect(notEnabled)
	w.create(t, config)
	expect(notEnabled)
	config.Spec.Injection = operatorv1alpha1.InjectionEnabled
	w.update(t, config)
	expect("the Pod is older than its annotation or what permits that")

	// Operators hand annotations on to all their Pods.
	pod = annotatedPod(w)
	pod.Name, pod.Annotations[names.AnnotationInjectContainers] = "unlisted", "other another"
	w.create(t, pod)
	out, err := run(t, apiserver.Config(t), "why", pod.Name, "-n", w.namespace)
	if !errors.Is(err, command.ErrProblem) || !strings.Contains(out, "✗ Pod "+w.namespace+"/unlisted") || !strings.Contains(out, "names no container of the Pod") || strings.Contains(out, "mounts no listener volume") {
		t.Errorf("error %v, output:\n%s", err, out)
	}

	pod = annotatedPod(w)
	pod.Name, pod.Spec.Volumes = "injected", []corev1.Volume{objects.InlineVolume("listener", ofListener("absent"))}
	w.create(t, pod)
	if p := whyOf(t, w.namespace, pod.Name).Problem; p == nil || p.Kind != "Listener" {
		t.Errorf("the problem is %+v", p)
	}
}

// A user who may read Pods only does not get a wrong cause.
func TestWhyDoesNotGuessWhatTheUserMayNotRead(t *testing.T) {
	w := newWorld(t)
	pod := annotatedPod(w)
	w.create(t, pod)
	config := w.user(t, rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}})
	if p := resultOf(t, config, "why", pod.Name, "-n", w.namespace).Problem; p == nil || !strings.Contains(p.Message, "ask an administrator to run this command") {
		t.Errorf("the problem is %+v", p)
	}
}

// What is meant for the operator, and has no effect, is named first, whether the Pod has another volume or not.
func TestWhyNamesWhatHasNoEffect(t *testing.T) {
	w := newWorld(t)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "set", Annotations: map[string]string{names.AnnotationInject: "x", names.AnnotationPorts: "http"}},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "set"}, Annotations: map[string]string{names.AnnotationPorts: "http"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	w.create(t, set)
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"label":  {func(p *corev1.Pod) { p.Labels = map[string]string{names.AnnotationInject: "x"} }, "the label " + names.AnnotationInject + " has no effect on a Pod"},
		"typo":   {func(p *corev1.Pod) { p.Annotations = map[string]string{"listener-operator.dev/injekt": "x"} }, "did you mean " + names.AnnotationInject + "?"},
		"prefix": {func(p *corev1.Pod) { p.Annotations = map[string]string{"listeners.stackable.tech/inject": "x"} }, "did you mean " + names.AnnotationInject + "?"},
		"workload": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		},
			"the annotation " + names.AnnotationInject + " has no effect on a StatefulSet: it must be in spec.template.metadata.annotations"},
		"driver": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{objects.InlineVolume("listener", ofClass(w.class.Name))}
			p.Spec.Volumes[0].CSI.Driver = "listener.stackable.tech"
		}, `volume "listener" names the driver listener.stackable.tech: did you mean listeners.stackable.tech?`},
	} {
		pod := annotatedPod(w)
		pod.Name, pod.Annotations = name, nil
		tc.change(pod)
		w.create(t, pod)
		if p := whyOf(t, w.namespace, name).Problem; p == nil || p.Kind != "Pod" || p.Reason != "IgnoredKey" || p.Message != tc.want && !strings.HasSuffix(p.Message, tc.want) && !strings.HasPrefix(p.Message, tc.want) {
			t.Errorf("%s: the problem is %+v, want %q", name, p, tc.want)
		}
	}
	unlisted := annotatedPod(w)
	unlisted.Name, unlisted.Annotations[names.AnnotationInjectContainers] = "unlisted", "x"
	w.create(t, unlisted)
	claim := w.claim.DeepCopy()
	check.Must(t, w.Get(context.Background(), client.ObjectKeyFromObject(claim), claim))
	claim.Annotations[names.AttributeKeep], claim.Annotations["listeners.stackable.tech/listener-nam"] = "true", "x"
	w.update(t, claim)
	out, err := run(t, apiserver.Config(t), "why", "pvc/"+claim.Name, "-n", w.namespace)
	for _, text := range []string{names.AttributeKeep + " has no effect on a claim", "listeners.stackable.tech/listener-nam is unknown: did you mean " + names.AnnotationListenerName + "?"} {
		if !strings.Contains(out, text) {
			t.Errorf("error %v, want %q in:\n%s", err, text, out)
		}
	}
	if strings.Contains(out, "No step is wrong") {
		t.Errorf("nothing is wrong, although annotations have no effect:\n%s", out)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	mistake := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+names.LabelInjection+`":"enabled"},"labels":{"`+names.LabelInjection+`":"true"}}}`))
	check.Must(t, w.Patch(context.Background(), namespace, mistake))
	out, _ = run(t, apiserver.Config(t), "doctor")
	for _, text := range []string{
		"must be the label of a Namespace", "is \"true\", and must be enabled or disabled", "driver listener.stackable.tech: did you mean", "has no effect on a StatefulSet",
		"the label " + names.AnnotationInject + " has no effect on a Pod", names.AttributeKeep + " has no effect on a claim",
		"the annotation " + names.AnnotationInjectContainers + " names no container of the Pod",
	} {
		if !strings.Contains(out, text) {
			t.Errorf("want %q in:\n%s", text, out)
		}
	}
}
