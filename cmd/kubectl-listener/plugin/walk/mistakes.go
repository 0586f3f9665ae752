package walk

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/keys"
	"github.com/listener-operator/listener-operator/internal/lookup"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// mistakes returns what a Pod says about the operator in vain: keys, and the names of drivers.
func mistakes(pod *corev1.Pod) []string {
	problems := keys.Problems("a Pod", pod)
	for v := range check.Each(pod.Spec.Volumes) {
		if v.CSI == nil || claim.IsInline(v) {
			continue
		}
		driver := v.CSI.Driver
		selector, _ := claim.ParseSelector(v.CSI.VolumeAttributes)
		similar := strings.Contains(driver, "listener") || message.Differing(driver, names.Driver) <= 2
		if similar || selector != (claim.Selector{}) {
			problem := fmt.Sprintf("volume %q names the driver %s: did you mean %s?", v.Name, driver, names.Driver)
			problems = append(problems, problem)
		}
	}
	return problems
}

// misplacedKeys returns that a workload has annotations that belong on its Pods, and that its template does not have.
func misplacedKeys(kind string, workload metav1.Object) (problems []string) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(workload)
	if err != nil {
		return nil
	}
	template, _, _ := unstructured.NestedStringMap(fields, "spec", "template", "metadata", "annotations")
	for key := range workload.GetAnnotations() {
		if _, ok := template[key]; !ok && keys.Belongs(keys.Pod, key) {
			problem := fmt.Sprintf("the annotation %s has no effect on a %s: it must be in "+
				"spec.template.metadata.annotations", key, kind)
			problems = append(problems, problem)
		}
	}
	slices.Sort(problems)
	return problems
}

// misplacedByOwners returns what is misplaced on the workloads that control a Pod, and that the user may read.
func (w *Walk) misplacedByOwners(ctx context.Context, pod *corev1.Pod) (problems []string) {
	for owner := metav1.GetControllerOf(pod); owner != nil; {
		object, err := w.Client.Scheme().New(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		workload, ok := object.(client.Object)
		key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
		if err != nil || !ok || w.Get(ctx, key, workload) != check.Present {
			return problems
		}
		problems = append(problems, misplacedKeys(owner.Kind, workload)...)
		owner = metav1.GetControllerOf(workload)
	}
	return problems
}

// Ignored adds warnings about namespaces, nodes and workloads with keys that have no effect.
func (w *Walk) Ignored(ctx context.Context) {
	for _, l := range []struct {
		kind     string
		list     client.ObjectList
		problems func(kind string, o metav1.Object) []string
	}{
		{"a Namespace", lookup.MetadataList(corev1.SchemeGroupVersion.WithKind("NamespaceList")), keys.Problems},
		{"a Node", &corev1.NodeList{}, keys.Problems},
		{"Deployment", &appsv1.DeploymentList{}, misplacedKeys},
		{"StatefulSet", &appsv1.StatefulSetList{}, misplacedKeys},
		{"DaemonSet", &appsv1.DaemonSetList{}, misplacedKeys},
	} {
		if w.List(ctx, l.list) != check.Present {
			continue
		}
		_ = meta.EachListItem(l.list, func(item runtime.Object) error { // which returns no error
			o := item.(client.Object)
			w.warn(w.About(o), l.problems(l.kind, o))
			return nil
		})
	}
}

// Concerns reports whether a Pod has a listener volume, or is meant to have one. isListener reports whether a claim of
// the Pod's namespace is for a listener volume.
func Concerns(pod *corev1.Pod, isListener func(claim string) bool) bool {
	isVolume := func(v corev1.Volume) bool {
		return isEphemeral(&v) || claim.IsInline(&v) || isListener(claim.NameOf(pod, &v))
	}
	return awaitsInjection(pod) || len(mistakes(pod)) > 0 || slices.ContainsFunc(pod.Spec.Volumes, isVolume)
}

// meant reports what a Pod means in vain, or that it has no listener volume and means none. f is about the Pod.
func (w *Walk) meant(ctx context.Context, f check.Finding, pod *corev1.Pod, mounts bool) {
	problems, awaits := mistakes(pod), awaitsInjection(pod)
	if mounts || awaits {
		w.warn(f, problems)
	}
	if len(problems) == 0 && !mounts && !awaits {
		problems = w.misplacedByOwners(ctx, pod)
	}
	switch {
	case awaits:
		w.withoutInjection(ctx, f, pod)
	case mounts:
	case len(problems) > 0:
		w.Add(f.FailedBy(reasons.IgnoredKey, strings.Join(problems, "; ")))
	default:
		w.Add(f.Failed("", "mounts no listener volume", fmt.Sprintf("Give it a csi volume with driver %s, and with "+
			"the volume attribute %s or %s: docs/volumes.md",
			names.Driver, names.AnnotationListenerClass, names.AnnotationListenerName)))
	}
}
