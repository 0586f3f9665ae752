//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/traefik"
)

// buildTimeout is how long building Traefik may take on a machine that has other work.
const buildTimeout = 20 * time.Minute

// ingressController is Traefik.
var ingressController installation

// traefikAddress returns the address at which clients reach Traefik.
func traefikAddress() string { return testbed.FreeIP(cluster.MaxFree) }

// ensureTraefik builds and installs Traefik if it does not run yet.
func (s *scenario) ensureTraefik() {
	s.Helper()
	s.ensureLoadBalancer()
	ingressController.ensure(s, "Traefik", buildTimeout, func(ctx context.Context) error {
		return traefik.Install(ctx, testbed, traefikAddress(), os.Stderr)
	})
}

// byIngress returns the spec of a class whose Listeners are exposed through Ingresses that Traefik serves.
func byIngress(hostTemplate listenersv1alpha1.HostTemplate, change func(*listenersv1alpha1.IngressExposure)) listenersv1alpha1.ListenerClassSpec {
	exposure := &listenersv1alpha1.IngressExposure{ClassName: traefik.IngressClass, HostTemplate: hostTemplate}
	if change != nil {
		change(exposure)
	}
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: exposure}
}

// traefikClient returns a client outside the cluster that resolves every host to Traefik.
func traefikClient(trust *tls.Config) *http.Client {
	return clientOf(traefikAddress(), 5*time.Second, trust)
}

// awaitThroughTraefik waits until a client outside reaches a Pod through Traefik at a URL, and the Pod reads this
// address, and no other, in its files.
func (s *scenario) awaitThroughTraefik(trust *tls.Config, url string, a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.awaitThrough(traefikClient(trust), url, a, want)
}

// awaitThrough is awaitThroughTraefik for any client that resolves hosts.
func (s *scenario) awaitThrough(by *http.Client, url string, a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		if name, err := fetch(ctx, by, url+"/whoami"); err != nil || name != want {
			return fmt.Errorf("%q answered at %s, want %s: %w", name, url, want, err)
		}
		raw, err := fetch(ctx, by, url+"/files")
		if err != nil {
			return err
		}
		return checkFiles(raw, a)
	})
}

// generated accepts the certificate that Traefik generates.
var generated = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // no other server is at its address

// awaitHost waits until a Pod has exactly this address, and until a client outside reaches the Pod at it through
// Traefik and the Pod reads it in its files.
func (s *scenario) awaitHost(p *corev1.Pod, want listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.awaitEntry(p, "listener", func(entry listenersv1alpha1.PodListener) bool {
		return entry.Scope == listenersv1alpha1.ListenerScopeCluster && cmp.Equal(entry.IngressAddresses, []listenersv1alpha1.IngressAddress{want})
	})
	s.awaitThroughTraefik(generated, urlOf(want, "http", ""), want, p.Name)
}

// Traefik serves it by a host of its own, over HTTP and then HTTPS, and by other hosts after the class has changed.
// Traefik stops and starts again, and nothing changes. An Ingress goes with its Listener.
func TestEachReplicaIsReachedByItsIngress(t *testing.T) {
	s := newScenario(t)
	s.ensureTraefik()
	class := s.createClass(byIngress("{podName}.{namespace}.shop.example.test", nil))
	s.create(statefulSet("web", 2, byClass(class.Name)))
	pods := []*corev1.Pod{s.awaitReady("web-0"), s.awaitReady("web-1")}
	check := func(domain string, port int32) {
		t.Helper()
		for _, p := range pods {
			s.awaitHost(p, hostAddress(p.Name+"."+s.namespace+"."+domain, "http", port))
		}
	}
	check("shop.example.test", 80)
	s.patch(class, func() {
		class.Spec.Ingress.HostTemplate, class.Spec.Ingress.TLS = "{podName}.{namespace}.secure.example.test", &listenersv1alpha1.IngressTLS{}
	})
	check("secure.example.test", 443)
	before := hostAddress("web-0."+s.namespace+".shop.example.test", "http", 80)
	s.eventually(func(ctx context.Context) error {
		if name, err := fetch(ctx, traefikClient(generated), urlOf(before, "http", "/whoami")); err == nil {
			return errors.New(name + " is still reached by its former host")
		}
		return nil
	})

	s.scaleTraefik(0)
	now := hostAddress("web-0."+s.namespace+".secure.example.test", "http", 443)
	if _, err := fetch(s.timeoutContext(), traefikClient(generated), urlOf(now, "http", "/whoami")); err == nil {
		t.Error("Traefik still answers")
	}
	s.awaitHosts("listener-web-0", now.Address)
	s.scaleTraefik(1)
	check("secure.example.test", 443)
	for _, p := range pods {
		s.checkNotRestarted(p)
	}

	own := s.createListener("own", class.Name, port("http", 8080, corev1.ProtocolTCP))
	s.awaitCondition("own", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonNoSinglePod)
	s.patch(class, func() { class.Spec.Ingress.HostTemplate = "{listener}.{namespace}.shop.example.test" })
	s.awaitHosts("own", "own."+s.namespace+".shop.example.test")
	s.remove(own)
	mustAwaitDeleted(s, &networkingv1.Ingress{}, s.key("own-http"))
}

// scaleTraefik stops or starts Traefik, and waits until it has stopped or serves.
func (s *scenario) scaleTraefik(replicas int32) {
	s.Helper()
	key := client.ObjectKey{Namespace: traefik.Namespace, Name: "traefik"}
	deployment := mustGet(s, &appsv1.Deployment{}, key)
	s.patch(deployment, func() { deployment.Spec.Replicas = ptr.To(replicas) })
	mustAwait(s, &appsv1.Deployment{}, key, func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration >= deployment.Generation && d.Status.Replicas == replicas && d.Status.ReadyReplicas == replicas
	})
	var pods corev1.PodList
	s.eventually(func(ctx context.Context) error {
		if err := api.List(ctx, &pods, client.InNamespace(traefik.Namespace)); err != nil || len(pods.Items) == int(replicas) {
			return err
		}
		return fmt.Errorf("Traefik has %d Pods", len(pods.Items))
	})
}

// Nobody serves the IngressClass, and conditions and events say so. The Pod starts when the class names another one.
// The exposure that was left is removed.
func TestAPodWaitsForItsIngressController(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.ensureTraefik()
	class := s.createClass(byIngress("{listener}.{namespace}.shop.example.test", func(e *listenersv1alpha1.IngressExposure) { e.ClassName = "nobodys" }))
	s.create(pod("web", byClass(class.Name)))
	s.awaitCondition("web-listener", listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForIngress)
	t.Logf("event: %s", s.awaitEvent("Pod", "web", listenersv1alpha1.ReasonWaitingForAddress, "IngressClass nobodys"))
	s.patch(class, func() { class.Spec.Ingress.ClassName = traefik.IngressClass })
	p := s.awaitReady("web")
	s.awaitHost(p, hostAddress("web-listener."+s.namespace+".shop.example.test", "http", 80))

	s.patch(class, func() { class.Spec.Ingress, class.Spec.ServiceType = nil, listenersv1alpha1.ServiceTypeNodePort })
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	mustAwaitDeleted(s, &networkingv1.Ingress{}, s.key("web-listener-http"))
	s.awaitListener("web-listener", 1)
	t.Logf("the Pod had the address %s while its class changed", own.Address)
}
