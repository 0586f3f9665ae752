package source

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// counted returns a client with two Pods and a Node, and the number of requests for lists and for single objects.
func counted(forbidden bool) (c client.Client, lists, gets *int) {
	lists, gets = new(int), new(int)
	pod := func(namespace, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}, Spec: corev1.PodSpec{NodeName: node}}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c = fake.NewClientBuilder().WithRESTMapper(mapper).WithObjects(pod("shop", "a"), pod("other", "b"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				*lists++
				if forbidden {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
				}
				return c.List(ctx, list, options...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				*gets++
				return c.Get(ctx, key, o, options...)
			},
		}).Build()
	return c, lists, gets
}

func TestEachKindIsListedOnce(t *testing.T) {
	c, lists, gets := counted(false)
	s := List(c)
	for name, tc := range map[string]struct {
		options []client.ListOption
		want    int
	}{
		"all":            {nil, 2},
		"of a namespace": {[]client.ListOption{client.InNamespace("shop")}, 1},
		"on a node":      {[]client.ListOption{client.MatchingFields{"spec.nodeName": "b"}}, 1},
		"not on a node":  {[]client.ListOption{client.MatchingFields{"spec.nodeName": ""}}, 0},
		"of a namespace on a node": {
			[]client.ListOption{client.InNamespace("shop"), client.MatchingFields{"spec.nodeName": "b"}}, 0,
		},
		"with labels": {[]client.ListOption{client.HasLabels{"app"}}, 0},
	} {
		var pods corev1.PodList
		if err := s.List(t.Context(), &pods, tc.options...); err != nil || len(pods.Items) != tc.want {
			t.Errorf("%s: error %v, %d Pods", name, err, len(pods.Items))
		}
	}
	pod := &corev1.Pod{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-0"}, pod); err != nil || pod.Spec.NodeName != "a" {
		t.Errorf("error %v, %+v", err, pod.Spec)
	}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "absent"}, pod); !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
	if *lists != 1 || *gets != 0 {
		t.Errorf("%d lists, and %d single objects", *lists, *gets)
	}
	if err := s.Get(t.Context(), client.ObjectKey{Name: "a"}, &corev1.Node{}); err != nil || *lists != 1 || *gets != 1 {
		t.Errorf("a kind of which one object is read: error %v, %d lists, %d single objects", err, *lists, *gets)
	}
}

func TestWhatTheUserMayNotListDoesNotLookAbsent(t *testing.T) {
	c, lists, _ := counted(true)
	s := List(c)
	for range 2 {
		if err := s.List(t.Context(), &corev1.PodList{}); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
		if err := s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "absent"}, &corev1.Pod{}); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
	}
	if *lists != 1 {
		t.Errorf("%d lists", *lists)
	}
}
