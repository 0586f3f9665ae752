package podlisteners_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/settling"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// TestPodsFollowWhatTheirListenerPublishes: a Pod keeps the address of its node while the node has another one for
// seconds, and gets the same one if it starts then, also after a restart of the operator.
func TestPodsFollowWhatTheirListenerPublishes(t *testing.T) {
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
				w.publishedBefore(ofNode(at(tc.previous)...))
			}
			nodes := settling.NewNodes(clocktesting.NewFakePassiveClock(time.Now()))
			if tc.seen {
				nodes.Settle(w.Node, nil)
			}
			w.Node.Status.Addresses = tc.addresses
			c := w.start(t, interceptor.Funcs{})
			c.Nodes = nodes
			c.reconcile()
			check.Equal(t, "addresses", at(tc.want), published(t, c.client).Listeners["listener"].IngressAddresses)
		})
	}
}
