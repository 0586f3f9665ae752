package requests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func TestRequeueHidesNothingButNormalOperation(t *testing.T) {
	outdated := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("outdated"))
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("being terminated"))
	ending.ErrStatus.Details.Causes = append(ending.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("exceeded quota: addresses, requested: services=1, used: services=2, limited: services=2"))
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("denied by a policy"))
	failure := errors.New("the API server is unavailable")
	for name, tc := range map[string]struct {
		err              error
		hidden, requeued bool
	}{
		"no error":                            {hidden: true},
		"a conflict":                          {err: outdated, hidden: true, requeued: true},
		"a wrapped conflict":                  {err: fmt.Errorf("applying Service web: %w", outdated), hidden: true, requeued: true},
		"several conflicts":                   {err: errors.Join(outdated, fmt.Errorf("applying: %w", outdated)), hidden: true, requeued: true},
		"a namespace that ends":               {err: fmt.Errorf("creating Service web: %w", ending), hidden: true},
		"a conflict in a namespace that ends": {err: errors.Join(ending, outdated), hidden: true, requeued: true},
		"a quota":                             {err: quota, hidden: true, requeued: true},
		"a quota and a conflict":              {err: errors.Join(quota, fmt.Errorf("applying: %w", outdated)), hidden: true, requeued: true},
		"another error after a quota":         {err: errors.Join(quota, failure)},
		"another error":                       {err: failure},
		"a denied write":                      {err: denied},
		"another error after a conflict":      {err: errors.Join(outdated, failure)},
		"another error in a namespace's end":  {err: errors.Join(ending, failure)},
		"another error in a wrapped joining":  {err: fmt.Errorf("reconciling: %w", errors.Join(outdated, failure))},
	} {
		t.Run(name, func(t *testing.T) {
			own := reconcile.Result{RequeueAfter: time.Hour}
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return own, tc.err })
			result, err := Requeue(newManager(t), "test", inner).Reconcile(t.Context(), reconcile.Request{})
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

// A quota may be raised at any time, and nothing watches it.
func TestARequestThatAQuotaRefusesIsRepeatedLessAndLessOften(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("exceeded quota: addresses"))
	err := error(quota)
	r := Requeue(newManager(t), "test", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, err }))
	after := func() time.Duration {
		result, err := r.Reconcile(t.Context(), request("shop", 0))
		check.Must(t, err)
		return result.RequeueAfter
	}
	first := after()
	if second := after(); first <= 0 || first > time.Second || second != 2*first {
		t.Errorf("repeated after %s, and then after %s", first, second)
	}
	for range 20 {
		after()
	}
	if last := after(); last != maxDelay {
		t.Errorf("repeated after %s in the end, want %s", last, maxDelay)
	}
	err = nil
	after()
	err = quota
	if again := after(); again != first {
		t.Errorf("after the quota was raised and exceeded again, repeated after %s, want %s", again, first)
	}
}

// testManager is a manager with a client and a recorder of events.
type testManager struct {
	manager.Manager
	client client.Client
	events *events.FakeRecorder
}

func newManager(t *testing.T, objects ...client.Object) *testManager {
	return &testManager{client: fakeclient.New(t, interceptor.Funcs{}, objects...), events: events.NewFakeRecorder(10)}
}

func (m *testManager) GetClient() client.Client                       { return m.client }
func (m *testManager) GetEventRecorder(string) recorder.EventRecorder { return m.events }

func TestARequestThatTakesLongIsReportedOnItsNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace string
		takes     time.Duration
		reported  bool
	}{
		"long":           {"shop", 16 * time.Second, true},
		"not long":       {"shop", 14 * time.Second, false},
		"of the cluster": {"", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := newManager(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			synctest.Test(t, func(t *testing.T) {
				r := Requeue(mgr, "test", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					time.Sleep(tc.takes)
					return reconcile.Result{}, nil
				}))
				if _, err := r.Reconcile(t.Context(), request(tc.namespace, 7)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			})
			select {
			case got := <-mgr.events.Events:
				if want := "Warning SlowRequest the controller test has worked for more than 15s on 7. Look for objects in the namespace"; !tc.reported || !strings.HasPrefix(got, want) {
					t.Errorf("reported %q", got)
				}
			default:
				if tc.reported {
					t.Error("not reported")
				}
			}
		})
	}
}

func TestExceededQuotaIsToldFromOtherRejections(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	says := errors.New("exceeded quota: addresses, requested: services=1, used: services=2, limited: services=2")
	const want = `services "web" is forbidden: exceeded quota: addresses, requested: services=1, used: services=2, limited: services=2`
	if got := ExceededQuota(fmt.Errorf("applying Service web: %w", apierrors.NewForbidden(services, "web", says))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, err := range []error{
		nil, says, apierrors.NewForbidden(services, "web", errors.New("denied by a policy")), apierrors.NewConflict(services, "web", says),
	} {
		if got := ExceededQuota(err); got != "" {
			t.Errorf("%v is taken for a quota: %q", err, got)
		}
	}
}
