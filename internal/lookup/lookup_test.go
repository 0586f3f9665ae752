package lookup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/lookup"
)

func TestOnlyAnObjectThatDoesNotExistIsNil(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "1"}}).Build()
	for name, exists := range map[string]bool{"worker": true, "another": false} {
		node, err := lookup.Get(t.Context(), c, client.ObjectKey{Name: name}, &corev1.Node{})
		if err != nil || (node != nil) != exists {
			t.Errorf("%s: got %v and error %v", name, node, err)
		}
		for _, uid := range []types.UID{"1", "2"} {
			object, err := lookup.WithUID[client.Object](t.Context(), c, client.ObjectKey{Name: name}, uid, &corev1.Node{})
			if err != nil || (object != nil) != (exists && uid == "1") {
				t.Errorf("%s with uid %s: got %v and error %v", name, uid, object, err)
			}
		}
	}
}

func TestErrorNamesTheObject(t *testing.T) {
	unavailable := errors.New("unavailable")
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return unavailable
		},
	})
	node, err := lookup.Get(t.Context(), c, client.ObjectKey{Name: "worker"}, &corev1.Node{})
	if node != nil || !errors.Is(err, unavailable) || err.Error() != "reading Node worker: unavailable" {
		t.Errorf("got %v and error %v", node, err)
	}
	if pod, err := lookup.WithUID(t.Context(), c, client.ObjectKey{Namespace: "default", Name: "web"}, "1", &corev1.Pod{}); pod != nil ||
		!errors.Is(err, unavailable) || err.Error() != "reading Pod default/web: unavailable" {
		t.Errorf("got %v and error %v", pod, err)
	}
}

func TestASimilarNameIsMeant(t *testing.T) {
	list := &corev1.NodeList{}
	for _, name := range []string{"external-stable", "external-unstable", "cluster-internal", "lb"} {
		list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, want := range map[string]string{
		"external-unstabel": "; did you mean external-unstable?", "External_Stable": "; did you mean external-stable?", "cluster": "; did you mean cluster-internal?",
		"lp": "; did you mean lb?", "lb": "", "nodeport": "", "": "", strings.Repeat("a", 254): "",
	} {
		if got := lookup.DidYouMean(name, list); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
