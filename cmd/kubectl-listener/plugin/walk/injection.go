package walk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/config/injection"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

const (
	kindInjection   = "MutatingAdmissionPolicy"
	remedyInjection = "Apply injection.yaml of the operator's release: docs/volumes.md#by-an-annotation"
)

// AwaitsInjection reports whether a Pod has no volume in spite of the annotation that asks for it.
func AwaitsInjection(pod *corev1.Pod) bool {
	_, asks := pod.Annotations[names.AnnotationInject]
	return asks && !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == injectedName(pod) && claim.IsInline(&v) })
}

func injectedName(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[names.AnnotationInjectVolume], names.InjectedVolume)
}

// withoutInjection reports why a Pod has no volume in spite of its annotation. That no container is listed may be
// meant: operators hand annotations on to all their Pods. f is about the Pod.
func (w *Walk) withoutInjection(ctx context.Context, f check.Finding, pod *corev1.Pod) {
	listed := strings.FieldsFunc(pod.Annotations[names.AnnotationInjectContainers], func(r rune) bool { return r == ',' || r == ' ' })
	if len(listed) > 0 && !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool { return slices.Contains(listed, c.Name) }) {
		w.Add(f.Warning(reasons.NotInjected, fmt.Sprintf("the annotation %s names no container of the Pod, so the Pod gets no volume", names.AnnotationInjectContainers)))
		return
	}
	w.Add(f.FailedBy(reasons.NotInjected, fmt.Sprintf("the annotation %s was not acted on, because %s", names.AnnotationInject, w.notInjected(ctx, pod))))
}

// notInjected returns why the annotation of a Pod was not acted on.
func (w *Walk) notInjected(ctx context.Context, pod *corev1.Pod) string {
	if name := injectedName(pod); slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
		return fmt.Sprintf("the Pod has another volume %q; name one that it does not have by the annotation %s", name, names.AnnotationInjectVolume)
	}
	namespace, config := tenancy.Namespace(), &operatorv1alpha1.ListenerOperator{}
	because := "the Pod is older than what permits that, or each of its containers mounts something else at the path; name another one by the annotation " +
		names.AnnotationInjectPath
	for _, c := range []struct {
		kind, name string
		object     client.Object
		fits       func() bool // if it exists
		because    string
	}{
		{"Namespace", pod.Namespace, namespace, func() bool { return namespace.Labels[names.LabelInjection] == "enabled" },
			fmt.Sprintf("the namespace does not opt in; an administrator lets it by: kubectl label namespace %s %s=enabled", pod.Namespace, names.LabelInjection)},
		{kindInjection, names.InjectionPolicy, &admissionregistrationv1.MutatingAdmissionPolicy{}, nil, w.withoutPolicy()},
		{kindInjection + "Binding", names.InjectionPolicy, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, nil, w.withoutPolicy()},
		{"ListenerOperator", operatorv1alpha1.ListenerOperatorName, config, func() bool { return config.Spec.Injection == operatorv1alpha1.InjectionEnabled },
			"an administrator has not set spec.injection of ListenerOperator/cluster to Enabled"},
	} {
		switch found := w.Follow(ctx, check.Finding{Kind: c.kind, Name: c.name}, c.object); {
		case found == check.Forbidden:
			because = "you may not read why; ask an administrator to run this command"
		case found == check.Missing, c.fits != nil && !c.fits():
			return c.because
		}
	}
	return because
}

// withoutPolicy returns what it means that the policy does not exist.
func (w *Walk) withoutPolicy() string {
	if _, served := Served(w.Client, &exposure.Kind{GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind(kindInjection)}); !served {
		return "Kubernetes has no " + kindInjection + " before version 1.36; give the Pod an inline volume instead"
	}
	return fmt.Sprintf("the %s %s is not installed; an administrator applies injection.yaml of the operator's release", kindInjection, names.InjectionPolicy)
}

// injection follows the policy by which Pods get volumes, and its binding, which only administrators may change.
func (w *Walk) injection(ctx context.Context, i *Installation) {
	policy, binding, err := injection.Policy()
	w.Err = cmp.Or(w.Err, err)
	installed, bound := &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	follow := func(kind string, object client.Object, equal func() bool) {
		f := check.Finding{Kind: kind, Name: names.InjectionPolicy}
		switch found := w.Follow(ctx, f, object); {
		case found == check.Missing && i.config != nil && i.config.Spec.Injection == operatorv1alpha1.InjectionEnabled:
			w.Add(f.Failed("", "does not exist, so annotations of Pods are not acted on", remedyInjection))
		case found == check.Present && !equal():
			w.Add(f.Failed("", "differs from the one of this version, and may change any new Pod", "Find out who has changed it. "+remedyInjection))
		case found == check.Present:
			w.Add(f.OK("is installed"))
		}
	}
	follow(kindInjection, installed, func() bool { return equality.Semantic.DeepEqual(installed.Spec, policy.Spec) })
	follow(kindInjection+"Binding", bound, func() bool { return equality.Semantic.DeepEqual(bound.Spec, binding.Spec) })
}
