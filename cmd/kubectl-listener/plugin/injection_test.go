package plugin_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// annotatedPod returns a Pod that asks for a volume, and has none.
func annotatedPod(w *world) *corev1.Pod {
	pod := w.newPod("annotated", "")
	pod.Annotations = map[string]string{names.AnnotationInject: w.class.Name}
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	return pod
}

// Each step removes the cause that the command has named before.
func TestWhySaysWhyAnAnnotationWasNotActedOn(t *testing.T) {
	w := newWorld(t)
	pod := annotatedPod(w)
	w.create(t, pod)
	expect := func(text string) {
		t.Helper()
		out, err := run(t, apiserver.Config(t), "why", pod.Name, "-n", w.namespace, "-o", "json")
		if p := decode(t, out, err).Problem; p == nil || p.Kind != "Pod" || p.Reason != "NotInjected" || !strings.Contains(p.Message, "not acted on, because "+text) {
			t.Errorf("the problem is %+v, want %q", p, text)
		}
	}
	policy, binding := injectionPolicy(t)
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}

	expect("the namespace does not opt in; an administrator lets it by: kubectl label namespace " + w.namespace + " " + names.LabelInjection + "=enabled")
	optIn := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.LabelInjection+`":"enabled"}}}`))
	if err := w.Patch(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, optIn); err != nil {
		t.Fatal(err)
	}
	expect("the MutatingAdmissionPolicy listener-operator-injection is not installed")
	policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels = map[string]string{"no": "namespace"} // it would act on the Pods below
	w.create(t, policy)
	expect("the MutatingAdmissionPolicy listener-operator-injection is not installed")
	w.create(t, binding)
	expect("an administrator has not set spec.injection")
	w.create(t, config)
	expect("an administrator has not set spec.injection")
	config.Spec.Injection = operatorv1alpha1.InjectionEnabled
	w.update(t, config)
	expect("the Pod is older than what permits that, or each of its containers")

	pod = annotatedPod(w)
	pod.Name, pod.Spec.Volumes = "other", []corev1.Volume{{Name: "listener"}}
	w.create(t, pod)
	expect(`the Pod has another volume "listener"`)

	// Operators hand annotations on to all their Pods.
	pod = annotatedPod(w)
	pod.Name, pod.Annotations[names.AnnotationInjectContainers] = "unlisted", "other, another"
	w.create(t, pod)
	out, err := run(t, apiserver.Config(t), "why", pod.Name, "-n", w.namespace)
	if !strings.Contains(out, "! Pod "+w.namespace+"/unlisted") || !strings.Contains(out, "names no container of the Pod") || strings.Contains(out, "mounts no listener volume") {
		t.Errorf("error %v, output:\n%s", err, out)
	}

	pod = annotatedPod(w)
	pod.Name, pod.Spec.Volumes = "injected", []corev1.Volume{objects.InlineVolume("listener", map[string]string{names.AnnotationListenerName: "absent"})}
	w.create(t, pod)
	out, err = run(t, apiserver.Config(t), "why", pod.Name, "-n", w.namespace, "-o", "json")
	if p := decode(t, out, err).Problem; p == nil || p.Kind != "Listener" {
		t.Errorf("the problem is %+v", p)
	}
}

// A user who may read Pods only does not get a wrong cause.
func TestWhyDoesNotGuessWhatTheUserMayNotRead(t *testing.T) {
	w := newWorld(t)
	pod := annotatedPod(w)
	w.create(t, pod)
	w.create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "user"}},
	})
	out, err := run(t, apiserver.WithToken(t, apiserver.Config(t), w.namespace, "user"), "why", pod.Name, "-n", w.namespace, "-o", "json")
	if p := decode(t, out, err).Problem; p == nil || !strings.Contains(p.Message, "ask an administrator to run this command") {
		t.Errorf("the problem is %+v", p)
	}
}
