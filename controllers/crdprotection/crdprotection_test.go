package crdprotection_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/crdprotection"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// kept are the CustomResourceDefinitions, with a part of what is lost with them.
var kept = map[string]string{
	"listeners.listeners.stackable.tech":       "all Listeners with their Services",
	"listenerclasses.listeners.stackable.tech": "all ListenerClasses",
	"podlisteners.listeners.stackable.tech":    "the addresses of all Pods",
	"listeneroperators.listener-operator.dev":  "the node agents",
}

func crd(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(name)
	return crd
}

// TestCRDsCannotBeDeletedWhileThereAreListeners deletes by dry runs, which the API server admits or denies as others.
func TestCRDsCannotBeDeletedWhileThereAreListeners(t *testing.T) {
	g := NewWithT(t)
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	apiserver.StartManager(t, nil, namespace, func(mgr ctrl.Manager) error {
		return (&crdprotection.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).SetupWithManager(mgr)
	})
	remove := func(name string) error {
		return c.Delete(t.Context(), crd(name), client.DryRunAll)
	}
	denies := func(name string) string {
		if err := remove(name); apierrors.IsForbidden(err) {
			return err.Error()
		}
		return ""
	}
	for name := range kept {
		g.Expect(remove(name)).To(Succeed(), name)
	}

	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	g.Expect(c.Create(t.Context(), listener)).To(Succeed())
	for name, loss := range kept {
		g.Eventually(denies).WithArguments(name).WithTimeout(apiserver.Timeout).Should(And(ContainSubstring(loss),
			ContainSubstring("kubectl annotate customresourcedefinition "+name+" listener-operator.dev/allow-deletion=true")), name)
	}
	all := c.DeleteAllOf(t.Context(), crd(""), client.DryRunAll)
	g.Expect(all).To(MatchError(ContainSubstring("its deletion deletes")))

	// A policy or a binding that another client deleted is created again.
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}} {
		o.SetName("listener-operator-crds")
		g.Expect(c.Delete(t.Context(), o)).To(Succeed())
		g.Eventually(func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(o), o) }).WithTimeout(apiserver.Timeout).Should(Succeed())
	}

	// An update is not a deletion, and an annotation permits the deletion of its CustomResourceDefinition alone.
	const annotated = "podlisteners.listeners.stackable.tech"
	annotate := func(value string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"listener-operator.dev/allow-deletion":`+value+`}}}`))
		g.Expect(c.Patch(t.Context(), crd(annotated), patch)).To(Succeed())
	}
	g.Eventually(denies).WithArguments(annotated).WithTimeout(apiserver.Timeout).ShouldNot(BeEmpty())
	annotate(`"true"`)
	g.Expect(remove(annotated)).To(Succeed())
	g.Expect(denies("listeners.listeners.stackable.tech")).NotTo(BeEmpty())
	annotate("null")

	g.Expect(c.Delete(t.Context(), listener)).To(Succeed())
	for name := range kept {
		g.Eventually(remove).WithArguments(name).WithTimeout(apiserver.Timeout).Should(Succeed(), name)
	}
}
