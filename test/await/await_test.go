package await_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/test/await"
)

// noConfigMap reports that the list is empty.
func noConfigMap(l *corev1.ConfigMapList) string {
	if len(l.Items) == 0 {
		return "no ConfigMap"
	}
	return ""
}

func TestChangeBetweenListAndWatchIsSeen(t *testing.T) {
	c := fakeclient.New(t, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, l, options...)
			if err != nil {
				return nil, err
			}
			return w, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}})
		},
	})
	var reported []string
	got, err := await.List(t.Context(), c, &corev1.ConfigMapList{}, noConfigMap, func(s string) { reported = append(reported, s) }, client.InNamespace("x"))
	if err != nil || len(got.Items) != 1 {
		t.Errorf("got %v, %v", got.Items, err)
	}
	if !slices.Equal(reported, []string{"no ConfigMap"}) {
		t.Errorf("reported %q", reported)
	}
}

func TestErrorContainsCauseAndMissingState(t *testing.T) {
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	_, err := await.List(ctx, fakeclient.New(t, interceptor.Funcs{}), &corev1.ConfigMapList{}, noConfigMap, func(string) {})
	if !errors.Is(err, late) || err.Error() != "too late: no ConfigMap" {
		t.Errorf("error is %v", err)
	}
}
