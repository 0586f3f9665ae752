package walk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// TestDoctorChecksPermissionsThatTheOperatorHas compares the list with config/rbac.
func TestDoctorChecksPermissionsThatTheOperatorHas(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for account, file := range map[string]string{names.Operator: "operator.yaml", names.NodeAgent: "node-agent.yaml"} {
		raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal([]byte(document), role); err == nil && role.Kind == "ClusterRole" {
				rules[account] = append(rules[account], role.Rules...)
			}
		}
	}
	for account, needed := range map[string][]authorizationv1.ResourceAttributes{
		names.Operator: operatorPermissions, names.NodeAgent: append(agentPermissions, sccPermission),
	} {
		for _, p := range needed {
			resource, _ := strings.CutSuffix(p.Resource+"/"+p.Subresource, "/")
			if !slices.ContainsFunc(rules[account], func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.APIGroups, p.Group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, p.Verb) &&
					(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, p.Name))
			}) {
				t.Errorf("config/rbac does not give %s the permission %+v", account, p)
			}
		}
	}
}

// There is no API server, which would establish each definition at once.
func TestADefinitionThatIsNotEstablishedIsReported(t *testing.T) {
	const name = "listeners.listeners.stackable.tech"
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[apiextensionsv1.ConditionStatus]check.State{
		apiextensionsv1.ConditionTrue: check.OK, apiextensionsv1.ConditionFalse: check.Failed,
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: status},
			}},
		}).Build()
		f := New(&check.Examination{Client: c}).definition(t.Context(), check.Finding{Kind: "CustomResourceDefinition", Name: name}, "v1alpha1")
		if f.State != want || want == check.Failed && f.Message != "is not established" {
			t.Errorf("established %s: %s: %s, want %s", status, f.State, f.Message, want)
		}
	}
}

func TestFindingsAboutTheConfiguration(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*operatorv1alpha1.ListenerOperator) {
		return func(o *operatorv1alpha1.ListenerOperator) {
			o.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "message"}}
		}
	}
	for name, tc := range map[string]struct {
		change         func(*operatorv1alpha1.ListenerOperator)
		state          check.State
		reason, remedy string
	}{
		"available":        {condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionTrue, "AsExpected"), check.OK, "", ""},
		"not available":    {condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionFalse, operatorv1alpha1.ReasonApplyFailed), check.Failed, "ApplyFailed", "Do what the message says. The log of the operator has more: kubectl logs --namespace operators deployment/listener-operator"},
		"another operator": {condition(operatorv1alpha1.ConditionDegraded, metav1.ConditionTrue, operatorv1alpha1.ReasonOtherOperatorRunning), check.Failed, "OtherOperatorRunning", "See what blocks the move (kubectl listener migrate), and follow docs/moving-over.md"},
		"another domain":   {condition(operatorv1alpha1.ConditionDegraded, metav1.ConditionFalse, operatorv1alpha1.ReasonOtherClusterDomain), check.Warning, "OtherClusterDomain", ""},
		"progressing":      {condition(operatorv1alpha1.ConditionProgressing, metav1.ConditionTrue, "RollingOut"), check.Warning, "RollingOut", ""},
		"not observed":     {func(o *operatorv1alpha1.ListenerOperator) { o.Status.Conditions = nil }, check.Failed, "", check.RemedyOperator},
		"changed":          {func(o *operatorv1alpha1.ListenerOperator) { o.Generation = 2 }, check.Failed, "", check.RemedyOperator},
		"unmanaged":        {func(o *operatorv1alpha1.ListenerOperator) { o.Spec.ManagementState = operatorv1alpha1.Unmanaged }, check.Warning, "Unmanaged", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			condition(operatorv1alpha1.ConditionAvailable, metav1.ConditionTrue, "AsExpected")(o)
			o.Status.ObservedGeneration = 1
			tc.change(o)
			f := (&Installation{namespace: "operators", config: o}).configurationFinding(check.Finding{})
			if f.State != tc.state || f.Reason != tc.reason || f.Remedy != tc.remedy {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestDifference(t *testing.T) {
	list := func(values ...any) map[string]any { return map[string]any{"spec": map[string]any{"modes": values}} }
	for name, tc := range map[string]struct {
		desired, observed map[string]any
		want              string
	}{
		"equal":                   {list("a", "b"), list("a", "b"), ""},
		"another order":           {list("a", "b"), list("b", "a"), ""},
		"a value is missing":      {list("a", "b"), list("a"), ".spec.modes"},
		"there is another value":  {list("a"), list("a", "b"), ".spec.modes"},
		"a value differs":         {list("a", "b"), list("a", "c"), ".spec.modes"},
		"a field of the observed": {map[string]any{}, list("a"), ""},
		"any value":               {map[string]any{"spec": nil}, list("a"), ""},
		"false is left out":       {map[string]any{"seLinuxMount": false}, map[string]any{}, ""},
		"true is left out":        {map[string]any{"podInfoOnMount": true}, map[string]any{}, ".podInfoOnMount"},
	} {
		if got := difference("", tc.desired, tc.observed); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAnOperatorThatDoesNothingIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas, available int32
		renewed             time.Duration // ago
		want                string
	}{
		"it works":                {1, 1, time.Second, ""},
		"scaled to 0":             {0, 0, time.Hour, "is scaled to 0 replicas, so nothing follows changes"},
		"no Pod is available":     {1, 0, time.Hour, "has no available Pod, so nothing follows changes"},
		"nobody renews the lease": {1, 1, time.Hour + 15*time.Second, "has available Pods, but none that works: the lease of the leader expired 60m ago, so nothing follows changes"},
	} {
		t.Run(name, func(t *testing.T) {
			of := metav1.ObjectMeta{Namespace: "operators", Name: names.Operator}
			lease := &coordinationv1.Lease{ObjectMeta: of, Spec: coordinationv1.LeaseSpec{
				LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-tc.renewed))),
			}}
			deployment := &appsv1.Deployment{ObjectMeta: of, Spec: appsv1.DeploymentSpec{Replicas: &tc.replicas}, Status: appsv1.DeploymentStatus{AvailableReplicas: tc.available}}
			w := New(&check.Examination{Client: fake.NewClientBuilder().WithObjects(lease, deployment).WithIndex(deployment, "metadata.name", func(o client.Object) []string {
				return []string{o.GetName()}
			}).Build()})
			w.operator(t.Context())
			got := ""
			for _, f := range w.Findings {
				got += f.Message
			}
			if got != tc.want || w.Err != nil {
				t.Errorf("got %q and error %v, want %q", got, w.Err, tc.want)
			}
			w.Findings = nil
			w.Add(check.Finding{Kind: "Listener"}.FailedBy(listenersv1alpha1.ReasonClassNotFound, "does not exist"))
			w.operator(t.Context())
			w.Conclude()
			if wrong := w.Problem.Kind == "Deployment"; wrong != (tc.want != "") {
				t.Errorf("with a Listener that is wrong, the problem is %+v", w.Problem)
			}
		})
	}
}
