package tenancy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/tenancy"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func classFor(allowed *listenersv1alpha1.AllowedNamespaces) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "public"}, Spec: listenersv1alpha1.ListenerClassSpec{AllowedNamespaces: allowed},
	}
}

func TestCheck(t *testing.T) {
	public := &metav1.LabelSelector{MatchLabels: map[string]string{"exposure": "public"}}
	c := fakeclient.Cached(fakeclient.New(t, interceptor.Funcs{},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"exposure": "public"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "test"}},
	), "operators")
	for name, tc := range map[string]struct {
		allowed *listenersv1alpha1.AllowedNamespaces
		want    map[string]string // part of the problem by namespace; "" if it is allowed
	}{
		"no restriction":   {nil, map[string]string{"shop": "", "test": "", "unknown": ""}},
		"empty":            {&listenersv1alpha1.AllowedNamespaces{}, map[string]string{"shop": "does not allow namespace shop", "test": "does not allow namespace test"}},
		"names":            {&listenersv1alpha1.AllowedNamespaces{Names: []string{"other", "test"}}, map[string]string{"shop": "does not allow", "test": ""}},
		"selector":         {&listenersv1alpha1.AllowedNamespaces{Selector: public}, map[string]string{"shop": "", "test": "does not allow", "unknown": "does not allow"}},
		"empty selector":   {&listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{}}, map[string]string{"shop": "", "test": "", "unknown": ""}},
		"names, selector":  {&listenersv1alpha1.AllowedNamespaces{Names: []string{"test"}, Selector: public}, map[string]string{"shop": "", "test": "", "unknown": "does not allow"}},
		"invalid selector": {&listenersv1alpha1.AllowedNamespaces{Names: []string{"test"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": ""}}}, map[string]string{"shop": "selector is not valid", "test": ""}},
	} {
		for namespace, want := range tc.want {
			got, err := tenancy.Check(t.Context(), c, classFor(tc.allowed), namespace)
			if err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s, namespace %s: got %q, want %q (%v)", name, namespace, got, want, err)
			}
		}
	}
}

func TestErrorOfReadingANamespaceIsReturned(t *testing.T) {
	broken := errors.New("the cache is not ready")
	c := fakeclient.New(t, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return broken
	}})
	if _, err := tenancy.Check(t.Context(), c, classFor(&listenersv1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{}}), "shop"); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
