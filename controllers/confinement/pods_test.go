package confinement_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// TestOperatorOnlyLabelsAndEvictsPods gives the operator all permissions on Pods, far more than its ClusterRole, so
// that only the policies restrict it. They do so in any namespace.
func TestOperatorOnlyLabelsAndEvictsPods(t *testing.T) {
	const (
		onlyLabel   = "the listener operator may only label Pods"
		onlyLabels  = "may change nothing of a Pod but its labels"
		otherLabels = "may change no labels of a Pod but those that begin with"
		withoutUID  = "may not evict a Pod without its uid"
		otherEnd    = "may not change how an evicted Pod ends"
	)
	w := operator.NewWorld(t, apiserver.Config(t))
	for _, c := range policies(t) {
		if c.Policy.Name == "listener-operator.pods" || c.Policy.Name == "listener-operator.evictions" {
			w.Expect(w.Create(t.Context(), c.Policy)).To(Succeed())
			w.Expect(w.Create(t.Context(), c.Binding)).To(Succeed())
		}
	}
	w.Grant(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}})
	confined, err := client.New(w.Token(), client.Options{Scheme: apiserver.Scheme()})
	w.Expect(err).NotTo(HaveOccurred())
	label, earlier := names.PodMountLabel("a-uid"), names.PodMountLabel("an-earlier-uid")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: "web", Labels: map[string]string{"app": "web", earlier: "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"example.com/stay"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	w.Expect(w.Create(t.Context(), pod)).To(Succeed())
	// It takes a moment until the API server enforces a new policy, and grants new permissions.
	w.Eventually(func() error { return confined.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring(onlyLabel)))

	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string // "" for allowed
	}{
		"a mount label":                  {change: func(p *corev1.Pod) { p.Labels[label] = "web" }},
		"another value of a mount label": {change: func(p *corev1.Pod) { p.Labels[earlier] = "other" }},
		"the removal of a mount label":   {change: func(p *corev1.Pod) { delete(p.Labels, earlier) }},
		"another label":                  {change: func(p *corev1.Pod) { p.Labels["role"] = "primary" }, want: otherLabels},
		"another value of another label": {change: func(p *corev1.Pod) { p.Labels["app"] = "shop" }, want: otherLabels},
		"the removal of another label":   {change: func(p *corev1.Pod) { delete(p.Labels, "app") }, want: otherLabels},
		"a mount label and another one":  {change: func(p *corev1.Pod) { p.Labels[label], p.Labels["app"] = "web", "shop" }, want: otherLabels},
		"an annotation":                  {change: func(p *corev1.Pod) { p.Annotations["a"] = "c" }, want: onlyLabels},
		"no annotations":                 {change: func(p *corev1.Pod) { p.Annotations = nil }, want: onlyLabels},
		"no finalizers":                  {change: func(p *corev1.Pod) { p.Finalizers = nil }, want: onlyLabels},
		"an owner":                       {change: func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{owner} }, want: onlyLabels},
		"an image":                       {change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil:1" }, want: onlyLabels},
		"a deadline":                     {change: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }, want: onlyLabels},
		"a toleration": {change: func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: "Exists"})
		}, want: onlyLabels},
		"no labels": {change: func(p *corev1.Pod) { p.Labels = map[string]string{} }, want: otherLabels},
	} {
		t.Run("patching "+name, func(t *testing.T) {
			changed := pod.DeepCopy()
			tc.change(changed)
			allowedOrDenied(t, confined.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll), tc.want)
		})
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "other"}, Spec: pod.Spec}
	allowedOrDenied(t, confined.Create(t.Context(), other, client.DryRunAll), onlyLabel)
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	allowedOrDenied(t, confined.SubResource("binding").Create(t.Context(), pod.DeepCopy(), binding), onlyLabel)
	uid := metav1.NewUIDPreconditions(string(pod.UID))
	for name, tc := range map[string]struct {
		options *metav1.DeleteOptions
		want    string // "" for allowed
	}{
		"one Pod":          {options: &metav1.DeleteOptions{Preconditions: uid}},
		"without its uid":  {options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}, want: withoutUID},
		"without options":  {want: withoutUID},
		"at once":          {options: &metav1.DeleteOptions{Preconditions: uid, GracePeriodSeconds: ptr.To[int64](0)}, want: otherEnd},
		"in another order": {options: &metav1.DeleteOptions{Preconditions: uid, PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}, want: otherEnd},
	} {
		t.Run("evicting "+name, func(t *testing.T) {
			eviction := &policyv1.Eviction{DeleteOptions: tc.options}
			allowedOrDenied(t, confined.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), eviction, client.DryRunAll), tc.want)
		})
	}
	changed := pod.DeepCopy()
	changed.Labels["app"] = "shop"
	w.Expect(w.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)).To(Succeed(), "by others")
}
