package listener

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/counter"
)

// Clients do not notice the first addresses.
func TestChangesOfAddressesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		before []listenersv1alpha1.IngressAddress
		want   float64
	}{
		"first":  {nil, 0},
		"others": {[]listenersv1alpha1.IngressAddress{{Address: "192.0.2.1", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 80}}}, 1},
	} {
		s := newState(listenersv1alpha1.ServiceTypeClusterIP)
		s.listener.Status = &listenersv1alpha1.ListenerStatus{IngressAddresses: tc.before}
		before := counter.Value(t, "listener_operator_address_changes_total")
		if o := s.reconcile(t, 2, interceptor.Funcs{}, nil); o.err != nil || len(o.listener.Status.IngressAddresses) != 1 {
			t.Fatalf("%s: error %v, status %+v", name, o.err, o.listener.Status)
		}
		if got := counter.Value(t, "listener_operator_address_changes_total") - before; got != tc.want {
			t.Errorf("%s: %v changes are counted, want %v", name, got, tc.want)
		}
	}
}
