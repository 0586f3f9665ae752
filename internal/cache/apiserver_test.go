package cache_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// The operator decides from the cached Service whether to apply it again. A Service as desired needs no request after a
// restart, and a Service that another manager has changed is repaired.
func TestCachedServiceShowsWhetherItIsAsDesired(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(apiserver.Timeout)
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	options := cache.Options("operators")
	options.Scheme = apiserver.Scheme()
	cached, err := ctrlcache.New(apiserver.Config(t), options)
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = cached.Start(t.Context()) }()

	key := client.ObjectKey{Namespace: namespace, Name: "web"}
	// applied applies the Service as a process that has just started, and reports whether that sent a request.
	applied := func(g Gomega, observed client.Object) bool {
		desired, err := apply.Unstructured(corev1ac.Service(key.Name, namespace).
			WithLabels(map[string]string{"app": "web"}).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Listener").WithName(key.Name).WithUID("uid").WithController(true)).
			WithSpec(corev1ac.ServiceSpec().WithPorts(corev1ac.ServicePort().WithName("http").WithPort(80).WithProtocol(corev1.ProtocolTCP))))
		g.Expect(err).NotTo(HaveOccurred())
		_, err = apply.New(c, names.FieldManagerService).Apply(t.Context(), desired, observed)
		g.Expect(err).NotTo(HaveOccurred())
		return desired.GetResourceVersion() != ""
	}
	fromCache := func(g Gomega) *corev1.Service {
		service := &corev1.Service{}
		g.Expect(cached.Get(t.Context(), key, service)).To(Succeed())
		return service
	}
	g.Expect(applied(g, nil)).To(BeTrue())
	g.Eventually(func(g Gomega) bool { return applied(g, fromCache(g)) }).Should(BeFalse())

	live := &corev1.Service{}
	g.Expect(c.Get(t.Context(), key, live)).To(Succeed())
	changed := live.DeepCopy()
	changed.Labels["app"] = "theirs"
	g.Expect(c.Patch(t.Context(), changed, client.MergeFrom(live))).To(Succeed())
	g.Eventually(func(g Gomega) bool { return applied(g, fromCache(g)) }).Should(BeTrue())
	g.Expect(c.Get(t.Context(), key, live)).To(Succeed())
	g.Expect(live.Labels).To(HaveKeyWithValue("app", "web"))
	g.Eventually(func(g Gomega) bool { return applied(g, fromCache(g)) }).Should(BeFalse())
}
