package holdings

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/serviceaddresses"
	"github.com/listener-operator/listener-operator/internal/registry"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

// newAdvertisedListener returns a Listener of an age with these targets in its status.
func newAdvertisedListener(namespace string, age time.Duration, targets ...listenersv1alpha1.Target) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Status:     &listenersv1alpha1.ListenerStatus{Targets: targets},
	}
}

func targetAt(address string) listenersv1alpha1.Target {
	return listenersv1alpha1.Target{Address: "192.0.2.1", Ports: map[string]int32{"http": 30080}, Advertised: listenersv1alpha1.IngressAddress{
		Address: address, Ports: map[string]int32{"http": 443},
	}}
}

// newHoldings returns the Holdings of Listeners, which know what their statuses show.
func newHoldings(t *testing.T, listeners ...client.Object) *Holdings {
	t.Helper()
	c := fakeclient.New(t, interceptor.Funcs{}, listeners...)
	h := New(&observe.Reader{Client: c, Backends: backends.List{serviceaddresses.Backend()}, Kinds: &observe.Kinds{}})
	h.Know(t.Context())
	return h
}

// give has a pass give targets to a Listener, in place of what it had, or in addition unless they are complete.
func give(h *Holdings, l *listenersv1alpha1.Listener, complete bool, targets ...listenersv1alpha1.Target) *exposure.Refusal {
	s := &observe.Snapshot{Listener: l, Class: &listenersv1alpha1.ListenerClass{}}
	pass := h.Registry.Begin(s.ServiceKey())
	refusal := h.reserveAdvertised(context.Background(), pass, s, targets)
	if refusal == nil {
		pass.Commit(func(registry.Key) bool { return !complete })
	}
	return refusal
}

// A new operator knows from the statuses who has an address, whichever Listener it reconciles first, and from then on
// from what it has given.
func TestTheFirstListenerKeepsItsAdvertisedAddressAfterARestart(t *testing.T) {
	const shared, another = "edge.example.com", "other.example.com"
	given := func(complete bool, targets ...listenersv1alpha1.Target) func(*Holdings, *listenersv1alpha1.Listener) {
		return func(h *Holdings, other *listenersv1alpha1.Listener) { _ = give(h, other, complete, targets...) }
	}
	for name, tc := range map[string]struct {
		own, other *listenersv1alpha1.Listener
		before     func(h *Holdings, other *listenersv1alpha1.Listener)
		refused    bool
	}{
		"nobody has it":                 {own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour)},
		"the other has it":              {own: newAdvertisedListener("own", 2*time.Hour), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true},
		"both have it, the other first": {own: newAdvertisedListener("own", 0, targetAt(shared)), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true},
		"both have it, the other later": {own: newAdvertisedListener("own", 2*time.Hour, targetAt(shared)), other: newAdvertisedListener("other", time.Hour, targetAt(shared))},
		"the other was given it, and its status lacks it": {
			own: newAdvertisedListener("own", 2*time.Hour), other: newAdvertisedListener("other", time.Hour), refused: true, before: given(true, targetAt(shared)),
		},
		"the other was given another, and its status is outdated": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), before: given(true, targetAt(another)),
		},
		"the other is incomplete for a moment": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true, before: given(false, targetAt(another)),
		},
		"the other has none by its class, and its status is outdated": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), before: given(true),
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHoldings(t, tc.own, tc.other)
			if tc.before != nil {
				tc.before(h, tc.other)
			}
			refusal := give(h, tc.own, true, targetAt(shared))
			if refused := refusal != nil; refused != tc.refused {
				t.Fatalf("refused: %v", refusal)
			}
			if tc.refused && !strings.Contains(refusal.Message, "a port of Listener own/web is at edge.example.com:443, which Listener other/web has already") {
				t.Errorf("message: %s", refusal.Message)
			}
			want := &listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindAdvertisedAddress, Value: "edge.example.com:443", Holder: "other/web"}
			if tc.refused && !reflect.DeepEqual(refusal.WaitingFor, want) {
				t.Errorf("waits for %+v, want %+v", refusal.WaitingFor, want)
			}
		})
	}
}

// Another one no longer has it.
func TestListenersThatWaitForAnAdvertisedAddressAreReconciled(t *testing.T) {
	for name, free := range map[string]func(h *Holdings, l *listenersv1alpha1.Listener){
		"it is deleted":            func(h *Holdings, l *listenersv1alpha1.Listener) { h.Registry.Forget(client.ObjectKeyFromObject(l)) },
		"its class has none":       func(h *Holdings, l *listenersv1alpha1.Listener) { _ = give(h, l, true) },
		"its class has other ones": func(h *Holdings, l *listenersv1alpha1.Listener) { _ = give(h, l, true, targetAt("other.example.com")) },
	} {
		t.Run(name, func(t *testing.T) {
			first, later := newAdvertisedListener("first", time.Hour, targetAt("edge.example.com")), newAdvertisedListener("later", 0)
			h := newHoldings(t, first, later)
			if refusal := give(h, later, true, targetAt("edge.example.com")); refusal == nil {
				t.Fatal("not refused")
			}
			free(h, first)
			if !h.Waiting.Freed.Has("AdvertisedAddress/edge.example.com:443") {
				t.Errorf("Listeners are reconciled that wait for %v", h.Waiting.Freed)
			}
			if refusal := give(h, later, true, targetAt("edge.example.com")); refusal != nil {
				t.Errorf("still refused: %v", refusal)
			}
		})
	}
}
