package listener

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
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

func newAdvertised(c client.Reader) *advertised {
	return &advertised{newKeys(listenersv1alpha1.ReasonAddressTaken, newWaiting(c), statusEndpoints)}
}

// A new operator knows from the statuses who has an address, whichever Listener it reconciles first, and from then on
// from what it has given.
func TestTheFirstListenerKeepsItsAdvertisedAddressAfterARestart(t *testing.T) {
	const shared, another = "edge.example.com", "other.example.com"
	for name, tc := range map[string]struct {
		own, other *listenersv1alpha1.Listener
		before     func(x *advertised, other *listenersv1alpha1.Listener)
		refused    bool
	}{
		"nobody has it":                 {own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour)},
		"the other has it":              {own: newAdvertisedListener("own", 2*time.Hour), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true},
		"both have it, the other first": {own: newAdvertisedListener("own", 0, targetAt(shared)), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true},
		"both have it, the other later": {own: newAdvertisedListener("own", 2*time.Hour, targetAt(shared)), other: newAdvertisedListener("other", time.Hour, targetAt(shared))},
		"the other was given it, and its status lacks it": {
			own: newAdvertisedListener("own", 2*time.Hour), other: newAdvertisedListener("other", time.Hour), refused: true,
			before: func(x *advertised, other *listenersv1alpha1.Listener) {
				_ = x.reserve(t.Context(), &snapshot{listener: other, class: &listenersv1alpha1.ListenerClass{}}, []listenersv1alpha1.Target{targetAt(shared)}, true)
			},
		},
		"the other was given another, and its status is outdated": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)),
			before: func(x *advertised, other *listenersv1alpha1.Listener) {
				_ = x.reserve(t.Context(), &snapshot{listener: other, class: &listenersv1alpha1.ListenerClass{}}, []listenersv1alpha1.Target{targetAt(another)}, true)
			},
		},
		"the other is incomplete for a moment": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)), refused: true,
			before: func(x *advertised, other *listenersv1alpha1.Listener) {
				_ = x.reserve(t.Context(), &snapshot{listener: other, class: &listenersv1alpha1.ListenerClass{}}, []listenersv1alpha1.Target{targetAt(another)}, false)
			},
		},
		"the other has none by its class, and its status is outdated": {
			own: newAdvertisedListener("own", 0), other: newAdvertisedListener("other", time.Hour, targetAt(shared)),
			before: func(x *advertised, other *listenersv1alpha1.Listener) {
				_ = x.reserve(t.Context(), &snapshot{listener: other}, nil, true)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newAdvertised(fakeclient.New(t, interceptor.Funcs{}, tc.own, tc.other))
			if tc.before != nil {
				tc.before(x, tc.other)
			}
			s := &snapshot{listener: tc.own, class: &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}}
			refusal := x.reserve(t.Context(), s, []listenersv1alpha1.Target{targetAt(shared)}, true)
			if refused := refusal != nil; refused != tc.refused {
				t.Fatalf("refused: %v", refusal)
			}
			if tc.refused && !strings.Contains(refusal.Message, "a port of Listener own/web is at edge.example.com:443, which Listener other/web has already") {
				t.Errorf("message: %s", refusal.Message)
			}
		})
	}
}

// Another one no longer has it.
func TestListenersThatWaitForAnAdvertisedAddressAreReconciled(t *testing.T) {
	for name, free := range map[string]func(x *advertised, l *listenersv1alpha1.Listener){
		"it is deleted": func(x *advertised, l *listenersv1alpha1.Listener) {
			x.forget(client.ObjectKeyFromObject(l))
		},
		"its class has none": func(x *advertised, l *listenersv1alpha1.Listener) {
			_ = x.reserve(t.Context(), &snapshot{listener: l}, nil, true)
		},
		"its class has other ones": func(x *advertised, l *listenersv1alpha1.Listener) {
			_ = x.reserve(t.Context(), &snapshot{listener: l, class: &listenersv1alpha1.ListenerClass{}}, []listenersv1alpha1.Target{targetAt("other.example.com")}, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			first, later := newAdvertisedListener("first", time.Hour, targetAt("edge.example.com")), newAdvertisedListener("later", 0)
			x := newAdvertised(fakeclient.New(t, interceptor.Funcs{}, first, later))
			s := &snapshot{listener: later, class: &listenersv1alpha1.ListenerClass{}}
			if refusal := x.reserve(t.Context(), s, []listenersv1alpha1.Target{targetAt("edge.example.com")}, true); refusal == nil {
				t.Fatal("not refused")
			}
			free(x, first)
			if !x.waiting.freed.Equal(sets.New("AddressTaken/edge.example.com:443")) {
				t.Errorf("Listeners are reconciled that were refused %v", x.waiting.freed)
			}
			if refusal := x.reserve(t.Context(), s, []listenersv1alpha1.Target{targetAt("edge.example.com")}, true); refusal != nil {
				t.Errorf("still refused: %v", refusal)
			}
		})
	}
}
