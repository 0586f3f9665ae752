package requests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRequeueHidesNothingButNormalOperation(t *testing.T) {
	outdated := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("outdated"))
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("being terminated"))
	ending.ErrStatus.Details.Causes = append(ending.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("denied by a policy"))
	failure := errors.New("the API server is unavailable")
	for name, tc := range map[string]struct {
		err              error
		hidden, requeued bool
	}{
		"no error":                            {nil, true, false},
		"a conflict":                          {outdated, true, true},
		"a wrapped conflict":                  {fmt.Errorf("applying Service web: %w", outdated), true, true},
		"several conflicts":                   {errors.Join(outdated, fmt.Errorf("applying: %w", outdated)), true, true},
		"a namespace that ends":               {fmt.Errorf("creating Service web: %w", ending), true, false},
		"a conflict in a namespace that ends": {errors.Join(ending, outdated), true, true},
		"another error":                       {failure, false, false},
		"a denied write":                      {denied, false, false},
		"another error after a conflict":      {errors.Join(outdated, failure), false, false},
		"another error in a namespace's end":  {errors.Join(ending, failure), false, false},
		"another error in a wrapped joining":  {fmt.Errorf("reconciling: %w", errors.Join(outdated, failure)), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			own := reconcile.Result{RequeueAfter: time.Hour}
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return own, tc.err })
			result, err := Requeue("test", inner).Reconcile(t.Context(), reconcile.Request{})
			if tc.hidden != (err == nil) || !tc.hidden && !errors.Is(err, tc.err) {
				t.Errorf("error is %v", err)
			}
			if tc.err != nil && tc.hidden && !tc.requeued && result.RequeueAfter != 0 {
				t.Errorf("requeued after %s", result.RequeueAfter)
			}
			if soon := result.RequeueAfter > 0 && result.RequeueAfter < time.Second; soon != tc.requeued {
				t.Errorf("requeued after %s", result.RequeueAfter)
			}
		})
	}
}
