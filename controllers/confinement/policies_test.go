package confinement

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

// Messages of denials of the operator.
const (
	onlyLabel   = "the listener operator may only label Pods"
	onlyLabels  = "may change nothing of a Pod but its labels"
	otherLabels = "may change no labels of a Pod but those that begin with"
	withoutUID  = "may not evict a Pod without its uid"
	otherEnd    = "may not change how an evicted Pod ends"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// operatorOf returns a client with the identity of the operator in a namespace.
func operatorOf(t *testing.T, namespace string) client.Client {
	t.Helper()
	config := apiserver.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + names.Operator,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// denied reports whether an error is a denial with this message.
func denied(err error, message string) bool {
	return err != nil && strings.Contains(err.Error(), message)
}

// permitPods gives the operator all permissions on Pods, far more than its ClusterRole, so that only the policy
// restricts it.
func permitPods(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "pods-" + namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: names.Operator}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// It does so in any namespace.
func TestOperatorOnlyLabelsAndEvictsPods(t *testing.T) {
	admin, namespace := apiserver.Client(t), apiserver.Namespace(t)
	all, err := Policies(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "uid"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Policy.Name != "listener-operator.pods" && c.Policy.Name != "listener-operator.evictions" {
			continue
		}
		for _, o := range []client.Object{c.Policy, c.Binding} {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	permitPods(t, admin, namespace)
	operator := operatorOf(t, namespace)
	label := names.PodMountLabel("a-uid")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", Labels: map[string]string{"app": "web", names.PodMountLabel("an-earlier-uid"): "web"},
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"example.com/stay"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	// It takes a moment until the API server enforces a new policy, and grants new permissions.
	NewWithT(t).Eventually(func() error {
		return operator.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll)
	}, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring(onlyLabel)))

	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string // "" for allowed
	}{
		"a mount label":                  {change: func(p *corev1.Pod) { p.Labels[label] = "web" }},
		"another value of a mount label": {change: func(p *corev1.Pod) { p.Labels[names.PodMountLabel("an-earlier-uid")] = "other" }},
		"the removal of a mount label":   {change: func(p *corev1.Pod) { delete(p.Labels, names.PodMountLabel("an-earlier-uid")) }},
		"another label":                  {change: func(p *corev1.Pod) { p.Labels["role"] = "primary" }, want: otherLabels},
		"another value of another label": {change: func(p *corev1.Pod) { p.Labels["app"] = "shop" }, want: otherLabels},
		"the removal of another label":   {change: func(p *corev1.Pod) { delete(p.Labels, "app") }, want: otherLabels},
		"a mount label and another one":  {change: func(p *corev1.Pod) { p.Labels[label], p.Labels["app"] = "web", "shop" }, want: otherLabels},
		"an annotation":                  {change: func(p *corev1.Pod) { p.Annotations["a"] = "c" }, want: onlyLabels},
		"no annotations":                 {change: func(p *corev1.Pod) { p.Annotations = nil }, want: onlyLabels},
		"no finalizers":                  {change: func(p *corev1.Pod) { p.Finalizers = nil }, want: onlyLabels},
		"an owner": {change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		}, want: onlyLabels},
		"an image":   {change: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil:1" }, want: onlyLabels},
		"a deadline": {change: func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }, want: onlyLabels},
		"a toleration": {change: func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: "Exists"})
		}, want: onlyLabels},
		"no labels": {change: func(p *corev1.Pod) { p.Labels = map[string]string{} }, want: otherLabels},
	} {
		t.Run("patching "+name, func(t *testing.T) {
			changed := pod.DeepCopy()
			tc.change(changed)
			err := operator.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
			if tc.want == "" && err != nil || tc.want != "" && !denied(err, tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
	for name, write := range map[string]func() error{
		"creating a Pod": func() error {
			other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}, Spec: pod.Spec}
			return operator.Create(t.Context(), other, client.DryRunAll)
		},
		"binding a Pod": func() error {
			return operator.SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := write(); !denied(err, onlyLabel) {
				t.Errorf("error is %v, want %q", err, onlyLabel)
			}
		})
	}
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
			err := operator.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{DeleteOptions: tc.options}, client.DryRunAll)
			if tc.want == "" && err != nil || tc.want != "" && !denied(err, tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
	t.Run("others are not confined", func(t *testing.T) {
		changed := pod.DeepCopy()
		changed.Labels["app"] = "shop"
		if err := admin.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll); err != nil {
			t.Error(err)
		}
	})
}

// Each policy denies, concerns the operator alone, which the API server decides before it evaluates anything else, and
// has the name of its file.
func TestPoliciesAreAlike(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "uid"}
	all, err := Policies(owner)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d policies, %v", len(all), err)
	}
	for _, c := range all {
		t.Run(c.Policy.Name, func(t *testing.T) {
			want := []admissionregistrationv1.MatchCondition{{
				Name: "operator", Expression: "request.userInfo.username.matches('^system:serviceaccount:[^:]+:" + names.Operator + "$')",
			}}
			if diff := cmp.Diff(want, c.Policy.Spec.MatchConditions); diff != "" {
				t.Errorf("match conditions (-want +got):\n%s", diff)
			}
			wantFailure := admissionregistrationv1.Fail
			if c.Policy.Spec.ParamKind != nil {
				wantFailure = admissionregistrationv1.Ignore // an API server that does not know the kind denies requests of all users
				for _, rule := range c.Policy.Spec.MatchConstraints.ResourceRules {
					if len(rule.ResourceNames) == 0 {
						t.Error("a policy with a parameter concerns objects of any name")
					}
				}
			}
			if *c.Policy.Spec.FailurePolicy != wantFailure {
				t.Errorf("the failure policy is %s", *c.Policy.Spec.FailurePolicy)
			}
			if diff := cmp.Diff([]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, c.Binding.Spec.ValidationActions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if c.Binding.Name != c.Policy.Name || c.Binding.Spec.PolicyName != c.Policy.Name {
				t.Errorf("its binding is %s, and binds %s", c.Binding.Name, c.Binding.Spec.PolicyName)
			}
			if diff := cmp.Diff([]metav1.OwnerReference{owner}, c.Policy.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if _, err := files.Open("policies/" + strings.TrimPrefix(c.Policy.Name, names.Operator+".") + ".yaml"); err != nil {
				t.Error(err)
			}
		})
	}
}
