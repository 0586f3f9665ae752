package confinement_test

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/nodeagent"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// TestOperatorCannotLiftItsConfinement uses a token of the operator.
func TestOperatorCannotLiftItsConfinement(t *testing.T) {
	w := operator.NewWorld(t, apiserver.Config(t))
	thief := w.ConfinedOperator()
	forbidden := func(o client.Object, requests map[string]error) {
		t.Helper()
		for verb, err := range requests {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s of %T %s returns %v, want forbidden", verb, o, o.GetName(), err)
			}
		}
	}
	for _, p := range policies(t) {
		for _, o := range []client.Object{p.Policy, p.Binding} {
			w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
			changed := o.DeepCopyObject().(client.Object)
			changed.SetLabels(map[string]string{"changed": "yes"})
			forbidden(o, map[string]error{
				"patch":  thief.Patch(t.Context(), changed, client.MergeFrom(o)),
				"update": thief.Update(t.Context(), changed),
				"delete": thief.Delete(t.Context(), o),
			})
			owners := o.GetOwnerReferences()
			if len(owners) != 1 || owners[0].Kind != "CustomResourceDefinition" || owners[0].Name != "listeneroperators.listener-operator.dev" || owners[0].UID == "" {
				t.Errorf("%T %s would not be deleted with the CRD: its owners are %+v", o, o.GetName(), owners)
			}
		}
	}
	// No policy applies to policies, so those that change objects are the administrator's alone.
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		mutating := operator.Object(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: `+kind+`, metadata: {name: `+names.InjectionPolicy+`}}`)
		forbidden(mutating, map[string]error{
			"create": thief.Create(t.Context(), mutating.DeepCopy()),
			"patch":  thief.Patch(t.Context(), mutating.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}"))),
			"update": thief.Update(t.Context(), mutating.DeepCopy()),
			"delete": thief.Delete(t.Context(), mutating.DeepCopy()),
		})
	}
	crd := operator.Object(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: listeneroperators.listener-operator.dev}}`)
	forbidden(crd, map[string]error{"delete": thief.Delete(t.Context(), crd, client.DryRunAll)})
}

// The policies are created before there is a configuration, and again when an administrator has deleted them. Existing
// ones are not modified.
func TestConfinementIsIndependentOfTheConfiguration(t *testing.T) {
	w := operator.NewWorld(t, apiserver.Config(t))
	c := reconciler(w, w.Operator())
	all := policies(t)
	existing := all[0].Policy.DeepCopy()
	w.Expect(w.Create(t.Context(), existing)).To(Succeed())
	for range 2 {
		c()
	}
	for _, p := range all {
		for _, o := range []client.Object{p.Policy, p.Binding} {
			w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
		}
	}
	w.Expect(all[0].Policy.ResourceVersion).To(Equal(existing.ResourceVersion), "an existing policy was modified")
	w.Expect(w.Delete(t.Context(), existing)).To(Succeed())
	c()
	w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(existing), existing)).To(Succeed(), "it is created again")
}

// reconciler returns a function that reconciles with the operator's permissions.
func reconciler(w *operator.World, c client.Client) func() {
	r := &confinement.Reconciler{Client: operator.Cached(c, w.Client), APIReader: c}
	return func() {
		w.Helper()
		_, err := r.Reconcile(w.Context(), reconcile.Request{})
		w.Expect(err).NotTo(HaveOccurred())
	}
}

// Whoever has a token of the operator may create a policy, with the name that a later version has for one, before that
// version is installed. The operator cannot change it.
func TestPoliciesOfOtherVersionsAreReported(t *testing.T) {
	w := operator.NewWorld(t, apiserver.Config(t))
	thief, all := w.Operator(), policies(t)
	weak, lifted, later := all[0].Policy, all[1].Binding, all[2].Policy.DeepCopy()
	weak.Spec.MatchConstraints.ExcludeResourceRules = weak.Spec.MatchConstraints.ResourceRules
	lifted.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	later.Name += ".later"
	others := []client.Object{weak, lifted, later}
	for _, o := range others {
		w.Expect(thief.Create(t.Context(), o)).To(Succeed())
	}
	reconcileOnce := reconciler(w, thief)
	reconcileOnce()
	w.Expect(confinement.Others(t.Context(), w.Client)).To(ConsistOf(
		"ValidatingAdmissionPolicy "+weak.Name+" differs from the one of this version; delete it, and the operator creates it again",
		"ValidatingAdmissionPolicyBinding "+lifted.Name+" differs from the one of this version; delete it, and the operator creates it again",
		"ValidatingAdmissionPolicy "+later.Name+" belongs to another version of the operator; if none is installed, delete it",
	))
	for _, o := range others {
		version := o.GetResourceVersion()
		w.Expect(w.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
		w.Expect(o.GetResourceVersion()).To(Equal(version), "%s was modified", o.GetName())
		w.Expect(w.Delete(t.Context(), o)).To(Succeed())
	}
	reconcileOnce()
	w.Expect(confinement.Others(t.Context(), w.Client)).To(BeEmpty())
}

// Each policy denies, concerns the operator alone, which the API server decides before it evaluates anything else, and
// has the name of its file.
func TestPoliciesAreAlike(t *testing.T) {
	for _, c := range policies(t) {
		t.Run(c.Policy.Name, func(t *testing.T) {
			want := []admissionregistrationv1.MatchCondition{{
				Name: "operator", Expression: "request.userInfo.username.matches('^system:serviceaccount:[^:]+:" + names.Operator + "$')",
			}}
			check.Equal(t, "match conditions", want, c.Policy.Spec.MatchConditions)
			wantFailure := admissionregistrationv1.Fail
			if c.Policy.Spec.ParamKind != nil {
				wantFailure = admissionregistrationv1.Ignore // an API server that does not know the kind denies requests of all users
				for _, rule := range c.Policy.Spec.MatchConstraints.ResourceRules {
					if len(rule.ResourceNames) == 0 {
						t.Error("a policy with a parameter concerns objects of any name")
					}
				}
			}
			check.Equal(t, "failure policy", wantFailure, *c.Policy.Spec.FailurePolicy)
			check.Equal(t, "actions", []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, c.Binding.Spec.ValidationActions)
			if c.Binding.Name != c.Policy.Name || c.Binding.Spec.PolicyName != c.Policy.Name {
				t.Errorf("its binding is %s, and binds %s", c.Binding.Name, c.Binding.Spec.PolicyName)
			}
			check.Equal(t, "owners", []metav1.OwnerReference{owner}, c.Policy.OwnerReferences)
			if _, err := os.Stat("policies/" + strings.TrimPrefix(c.Policy.Name, names.Operator+".") + ".yaml"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// optional are the kinds that the operator writes where the cluster serves them.
var optional = []crds.CRD{
	crds.Routes, crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints,
	crds.TLSRoutes, crds.TCPRoutes, crds.UDPRoutes, crds.HTTPRoutes, crds.ListenerSets, crds.Certificates,
	crds.DNSEndpoints,
}

// installNodeAgent starts the controller of the node agent, with the operator's permissions, and returns when it has
// installed everything that the cluster serves.
func installNodeAgent(w *operator.World) (stop func()) {
	w.Helper()
	token := w.Token()
	apis, err := platform.Watch(w.Context(), token)
	w.Expect(err).NotTo(HaveOccurred())
	_, stop = apiserver.RunManager(w, token, w.Namespace, func(mgr ctrl.Manager) error {
		return (&nodeagent.Reconciler{Client: mgr.GetClient(), Namespace: w.Namespace, Image: operator.Image, APIs: apis, Clock: clock.RealClock{}}).SetupWithManager(mgr)
	})
	for _, component := range installation.Components() {
		if component.Optional.Empty() || apis.Serves(component.Optional) {
			w.Eventually(func() error { return w.Get(w.Context(), component.Key(w.Namespace), component.Empty()) }).Should(Succeed(), component.Name)
		}
	}
	return stop
}

// policies returns the policies of another owner.
func policies(t *testing.T) []confinement.Bound {
	t.Helper()
	all, err := confinement.Policies(owner)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d policies, %v", len(all), err)
	}
	return all
}

var owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "uid"}

// allowedOrDenied checks that an error is a denial with a message, or nil if want is "".
func allowedOrDenied(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("error is %v, want %q", err, want)
	}
}
