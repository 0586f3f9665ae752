//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/test/maven"
)

// The test runs the recipe with another name of the class. When the class changes, the operator restarts one broker
// after the other, and the client reaches each at its new address: at node ports, a load balancer of its own, a port of
// a Gateway, and through a proxy in front of the cluster. For later changes, the brokers are restarted by hand, because
// the operator waits for minutes before it does so again.
func TestProductKafkaFollowsItsClass(t *testing.T) {
	s := newRecipe(t, maven.KafkaImage, maven.Kafka)
	gateway := s.createEnvoyGateway()
	balancers := []string{s.freeAddress(), s.freeAddress(), s.freeAddress(), s.freeAddress()} // of the bootstrap, and of each broker
	class := s.createBalancedClass(nil)
	balanced := class.Spec
	s.setPool(balancers...)
	client, front := s.connectCustomer(), s.startProxy()
	proxied := unpinned()
	proxied.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: proxyAddress, PortTemplate: "{nodePort}"}
	nodes := []string{testbed.NodeIP(1), testbed.NodeIP(2), testbed.NodeIP(3)}

	var k *kafka
	for _, way := range []struct {
		name      string
		spec      listenersv1alpha1.ListenerClassSpec
		restart   listenersv1alpha1.OnAddressChange
		addresses []string
		dial      func(ctx context.Context, network, address string) (net.Conn, error)
	}{
		{"node ports", unpinned(), listenersv1alpha1.OnAddressChangeRestart, nodes, testbed.ClientDial},
		{"a load balancer", balanced, listenersv1alpha1.OnAddressChangeRestart, balancers, testbed.ClientDial},
		{"ports of a Gateway", s.byRange(listenersv1alpha1.GatewayRouteKindTCP, "external", 20000, 20999), "", []string{gateway}, testbed.ClientDial},
		{"a proxy in front", proxied, "", []string{proxyAddress}, client.dial},
	} {
		way.spec.OnAddressChange, way.spec.Ports = way.restart, []string{"external"}
		s.patch(class, func() { class.Spec = way.spec })
		if k == nil {
			k = s.startKafka(class.Name)
		}
		k.awaitAddresses(way.addresses)
		if way.restart == "" {
			s.kubectl("rollout", "restart", "statefulset/kafka")
			s.kubectl("rollout", "status", "statefulset/kafka", "--timeout=5m")
		}
		if way.spec.Advertise != nil {
			front.configure(s)
		}
		k.dial = way.dial
		k.use(way.name, 3)
	}
}

// Each broker has a cluster IP that all nodes announce to a router by BGP, and the client behind the router has no
// other way to it.
func TestProductKafkaAtRoutedClusterIPs(t *testing.T) {
	s := newRecipe(t, maven.KafkaImage, maven.Kafka)
	s.createRoutedRange()
	client := s.connectRouter()
	s.startBGP(client, true)
	k := s.startKafka(s.createClass(routedClusterIPs()).Name)
	k.dial = client.dial
	k.use("routed cluster IPs", 3)
}

// The test runs the recipe and its patch for TLS, changed as docs/tls.md says for clusters before Kubernetes 1.37. The
// client trusts the issuer, and verifies each broker at its address.
func TestProductKafkaHasCertificatesOfCertManager(t *testing.T) {
	s := newRecipe(t, maven.KafkaImage, maven.Kafka)
	crds.Remove(t, api, certManagerKinds...) // an earlier run may have left them
	crds.Install(t, api, certManagerKinds...)
	defer crds.Remove(t, api, certManagerKinds...)
	trust := s.startCertManager()
	const label = "labels: {" + names.LabelCertificate + ": kafka}\n"
	k := s.startKafka(s.withIssuer().Name,
		"  name: kafka-bootstrap\nspec:", "  name: kafka-bootstrap\n  "+label+"spec:",
		"        name: listener\n        annotations:", "        name: listener\n        "+label+"        annotations:",
	)
	s.applyTLS("kafka", `
          projected:
            sources:
              - podCertificate:
                  signerName: listener-operator.dev/address
                  keyType: ECDSAP256
                  credentialBundlePath: bundle.pem
`, `
          secret:
            secretName: kafka`+names.CertificateSuffix+`
            items: [{key: tls-combined.pem, path: bundle.pem}]
`)
	k.dial = dialTrusting(trust)
	k.use("with certificates of cert-manager", 3)
}

// startKafka starts the recipe with a class, and returns it without having used it. replacements are pairs of texts.
func (s *scenario) startKafka(class string, replacements ...string) *kafka {
	s.Helper()
	s.provideDisks(maven.User, slices.Concat(claimsOf("data", "kafka-controller", 3), claimsOf("data", "kafka", 3))...)
	s.applyRecipe("kafka", append(replacements, "external-unstable", class)...)
	s.awaitReplicas("kafka-controller", 3)
	s.awaitReplicas("kafka", 3)
	return &kafka{scenario: s, written: map[string][]string{}, dial: testbed.ClientDial}
}

// awaitAddresses waits until the Listeners of the brokers, and that which clients begin with, have no other addresses
// than these.
func (k *kafka) awaitAddresses(addresses []string) {
	k.Helper()
	k.eventually(func(context.Context) error {
		for _, listener := range []string{"kafka-bootstrap", "listener-kafka-0", "listener-kafka-1", "listener-kafka-2"} {
			endpoints, err := k.endpoints(listener, "external")
			if err != nil {
				return err
			}
			for endpoint := range strings.SplitSeq(endpoints, ",") {
				if host, _, err := net.SplitHostPort(endpoint); err != nil || !slices.Contains(addresses, host) {
					return fmt.Errorf("listener %s has the endpoints %s (%w), want those of %v", listener, endpoints, err, addresses)
				}
			}
		}
		return nil
	})
}
