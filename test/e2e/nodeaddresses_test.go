//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// translate lets the client outside reach a node at another address, as behind NAT, until the end of the test.
func (s *scenario) translate(address string, node int) {
	s.Helper()
	s.onClient("nft", "add table ip nat-of-nodes; add chain ip nat-of-nodes output { type nat hook output priority -100; }; "+
		"add rule ip nat-of-nodes output ip daddr "+address+" dnat to "+testbed.NodeIP(node))
	s.Cleanup(func() {
		if out, err := testbed.ClientCommand(context.WithoutCancel(s.ctx), "nft", "delete table ip nat-of-nodes").CombinedOutput(); err != nil {
			s.Errorf("removing the translation: %v: %s", err, out)
		}
	})
}

// advertise annotates a node with the address to publish for it, or removes the annotation if that is nil. All Pods on
// the node are affected, so no other test may run at the same time.
func (s *scenario) advertise(ctx context.Context, node string, address *string) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{names.AnnotationAdvertisedAddress: address}}})
	if err != nil {
		s.Fatal(err)
	}
	if err := api.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch)); err != nil {
		s.Errorf("annotating %s: %v", node, err)
	}
}

// TestANodeAdvertisesAnotherAddress: a client outside reaches a node behind NAT at the address in its annotation, which
// the Pod reads without a restart. An invalid annotation is reported, and nothing of it is published. Without the
// annotation, the class chooses among the addresses of the node.
func TestANodeAdvertisesAnotherAddress(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	p := s.awaitReady("web")
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	s.awaitAnswer(own, "web")
	node := p.Spec.NodeName
	t.Cleanup(func() { s.advertise(context.WithoutCancel(s.ctx), node, nil) })

	translated := own
	translated.Address = s.freeAddress()
	s.translate(translated.Address, nodeOf(p))
	s.advertise(s.ctx, node, &translated.Address)
	s.awaitFilesAt(translated, translated)
	s.awaitAnswer(translated, "web")
	s.awaitAnswerOverUDP(translated, "web")
	mustAwait(s, &listenersv1alpha1.Listener{}, "web-listener", func(l *listenersv1alpha1.Listener) bool {
		return len(l.Status.IngressAddresses) == 1 && l.Status.IngressAddresses[0].Address == translated.Address
	})

	invalid := translated.Address + ":80"
	s.advertise(s.ctx, node, &invalid)
	message := s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonInvalidNodeAddress)
	if words := []string{node, invalid, names.AnnotationAdvertisedAddress}; !containsAll(message, words) {
		t.Errorf("condition: %s", message)
	}
	t.Logf("event: %s", s.awaitEvent("Listener", "web-listener", listenersv1alpha1.ReasonInvalidNodeAddress, invalid))
	s.awaitFilesAt(translated, translated) // the last valid address

	s.advertise(s.ctx, node, nil)
	s.awaitFilesAt(own, own)
	named := own
	named.Address, named.AddressType = node, listenersv1alpha1.AddressTypeHostname
	s.patch(class, func() {
		class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{Types: []listenersv1alpha1.NodeAddressType{"ExternalDNS", "Hostname"}}
	})
	s.awaitFilesAt(own, named)
	s.patch(class, func() {
		class.Spec.NodeAddresses = &listenersv1alpha1.NodeAddresses{CIDRs: []listenersv1alpha1.CIDR{listenersv1alpha1.CIDR(own.Address + "/32")}}
	})
	s.awaitFilesAt(own, own)
}
