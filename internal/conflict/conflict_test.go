package conflict_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/conflict"
)

func TestRequeueHidesNothingButConflicts(t *testing.T) {
	outdated := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("outdated"))
	failure := errors.New("the API server is unavailable")
	for name, tc := range map[string]struct {
		err    error
		hidden bool
	}{
		"no error":                           {nil, true},
		"a conflict":                         {outdated, true},
		"a wrapped conflict":                 {fmt.Errorf("applying Service web: %w", outdated), true},
		"several conflicts":                  {errors.Join(outdated, fmt.Errorf("applying: %w", outdated)), true},
		"another error":                      {failure, false},
		"another error after a conflict":     {errors.Join(outdated, failure), false},
		"another error in a wrapped joining": {fmt.Errorf("reconciling: %w", errors.Join(outdated, failure)), false},
	} {
		t.Run(name, func(t *testing.T) {
			own := reconcile.Result{RequeueAfter: time.Hour}
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return own, tc.err })
			result, err := conflict.Requeue(inner).Reconcile(t.Context(), reconcile.Request{})
			if tc.hidden != (err == nil) || !tc.hidden && !errors.Is(err, tc.err) {
				t.Errorf("error is %v", err)
			}
			if soon := result.RequeueAfter > 0 && result.RequeueAfter < time.Second; soon != (tc.err != nil && tc.hidden) {
				t.Errorf("requeued after %s", result.RequeueAfter)
			}
		})
	}
}
