package podlisteners_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// TestPodsFollowWhatTheirListenerPublishes: a Pod keeps the address of its node while the node has another one for
// seconds, and gets the same one if it starts then, also after a restart of the operator.
func TestPodsFollowWhatTheirListenerPublishes(t *testing.T) {
	at := func(address string) []listenersv1alpha1.IngressAddress {
		return []listenersv1alpha1.IngressAddress{{Address: address, AddressType: listenersv1alpha1.AddressTypeIP, Ports: portMap}}
	}
	const mine, other = "192.0.2.1", "192.0.2.9"
	for name, tc := range map[string]struct {
		addresses []corev1.NodeAddress
		seen      bool // by this process, before the addresses changed
		previous  string
		listener  string // what it publishes
		want      string
	}{
		"another address comes first":                          {[]corev1.NodeAddress{objects.InternalIP(other), objects.InternalIP(mine)}, true, mine, mine, mine},
		"another address comes first, after a restart":         {[]corev1.NodeAddress{objects.InternalIP(other), objects.InternalIP(mine)}, false, mine, mine, mine},
		"the address is another one":                           {[]corev1.NodeAddress{objects.InternalIP(other)}, true, mine, mine, mine},
		"the address is another one, after a restart":          {[]corev1.NodeAddress{objects.InternalIP(other)}, false, mine, mine, mine},
		"the node has no address":                              {nil, true, mine, mine, mine},
		"a Pod starts while another address comes first":       {[]corev1.NodeAddress{objects.InternalIP(other), objects.InternalIP(mine)}, true, "", mine, mine},
		"a Pod starts while the address is another one":        {[]corev1.NodeAddress{objects.InternalIP(other)}, true, "", mine, mine},
		"the Listener has followed":                            {[]corev1.NodeAddress{objects.InternalIP(other)}, false, mine, other, other},
		"a Pod starts on a node that the Listener has not had": {[]corev1.NodeAddress{objects.InternalIP(other)}, false, "", mine, other},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Listener.Status.IngressAddresses = at(tc.listener)
			if tc.previous != "" {
				w.publishedBefore(map[string]listenersv1alpha1.PodListener{
					"listener": {Scope: "Node", IngressAddresses: at(tc.previous), PersistentVolumeName: "pvc-claim-uid", ListenerName: "web"},
				})
			}
			nodes := settling.NewNodes(clocktesting.NewFakePassiveClock(time.Now()))
			if tc.seen {
				nodes.Settle(w.Node, nil)
			}
			w.Node.Status.Addresses = tc.addresses
			c := fakeclient.New(t, interceptor.Funcs{}, w.Objects(w.existing)...)
			r := newReconciler(c, events.NewFakeRecorder(10))
			r.Nodes = nodes
			r.Receive(t.Context(), w.Pod)
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: objectKey}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(at(tc.want), published(t, c).Listeners["listener"].IngressAddresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
