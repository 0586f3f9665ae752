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

// none is what is missing until there is a ConfigMap.
func none(l *corev1.ConfigMapList) string {
	if len(l.Items) == 0 {
		return "there is none"
	}
	return ""
}

func TestAChangeBetweenLookAndWatchIsSeen(t *testing.T) {
	c := fakeclient.New(t, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, l, options...)
			if err != nil {
				return nil, err
			}
			return w, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a"}})
		},
	})
	var said []string
	got, err := await.List(t.Context(), c, &corev1.ConfigMapList{}, none, func(s string) { said = append(said, s) }, client.InNamespace("x"))
	if err != nil || len(got.Items) != 1 {
		t.Errorf("got %v, %v", got.Items, err)
	}
	if !slices.Equal(said, []string{"there is none"}) {
		t.Errorf("said %q", said)
	}
}

func TestTheErrorHasTheCauseAndWhatIsMissing(t *testing.T) {
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	_, err := await.List(ctx, fakeclient.New(t, interceptor.Funcs{}), &corev1.ConfigMapList{}, none, func(string) {})
	if !errors.Is(err, late) || err.Error() != "too late: there is none" {
		t.Errorf("error is %v", err)
	}
}
