package decide

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// So the time says how long it has lasted, and a status is written only if something else has changed.
func TestAListenerSaysSinceWhenItWaitsForTheSame(t *testing.T) {
	start := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	host := listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindHost, Value: "h", Holder: "shop/first"}
	for name, tc := range map[string]struct {
		change func(w *listenersv1alpha1.WaitingFor)
		kept   bool
	}{
		"the same":        {func(*listenersv1alpha1.WaitingFor) {}, true},
		"another holder":  {func(w *listenersv1alpha1.WaitingFor) { w.Holder = "shop/second" }, true},
		"a limit":         {func(w *listenersv1alpha1.WaitingFor) { w.NamespaceLimit = true }, true},
		"another value":   {func(w *listenersv1alpha1.WaitingFor) { w.Value = "i" }, false},
		"another kind":    {func(w *listenersv1alpha1.WaitingFor) { w.Kind = listenersv1alpha1.WaitingKindAdvertisedAddress }, false},
		"nothing anymore": {func(w *listenersv1alpha1.WaitingFor) { w.Kind = "" }, false},
	} {
		before, waiting := host, host
		before.Since = start
		tc.change(&waiting)
		o := &Outcome{Written: &observe.Written{Refusal: exposure.Refuse("Some", "").Awaiting(waiting)}, Now: metav1.NewTime(start.Add(time.Hour))}
		got := waitingFor(o, &listenersv1alpha1.ListenerStatus{WaitingFor: &before})
		if waiting.Since = o.Now; tc.kept {
			waiting.Since = start
		}
		if waiting.Kind == "" && got != nil || waiting.Kind != "" && !reflect.DeepEqual(got, &waiting) {
			t.Errorf("%s: got %+v, want %+v", name, got, waiting)
		}
	}
	if got := waitingFor(&Outcome{Written: &observe.Written{}}, &listenersv1alpha1.ListenerStatus{WaitingFor: &host}); got != nil {
		t.Errorf("accepted, and waits for %+v", got)
	}
}
