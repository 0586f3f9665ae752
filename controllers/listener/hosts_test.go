package listener

import (
	"context"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// contendedHost is the host of Listener shop/web by the class mirrored, and of web/shop by the class plain.
const contendedHost = "shop.web.example.com"

// newIngressListener returns a Listener of a class with Ingresses, and the Ingress that it has had for some time.
func newIngressListener(namespace, name, class string, age time.Duration) (*listenersv1alpha1.Listener, *networkingv1.Ingress) {
	uid := types.UID("uid-of-" + namespace)
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(class), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	return l, &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-http", UID: "ingress-" + uid, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l, listenersv1alpha1.GroupVersion.WithKind("Listener"))},
		},
		Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("nginx"), Rules: []networkingv1.IngressRule{{Host: contendedHost}}},
	}
}

func newIngressClass(name string, template listenersv1alpha1.HostTemplate) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Ingress: &listenersv1alpha1.IngressExposure{ClassName: "nginx", HostTemplate: template},
		},
	}
}

// A new operator knows who was the first from the objects, whichever Listener it reconciles first. An object that a
// tenant wrote does not give a Listener a host that its class does not.
func TestTheFirstListenerKeepsItsHostAfterARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		otherTemplate listenersv1alpha1.HostTemplate
		otherAge      time.Duration // of its Ingress
		ownAge        time.Duration // of the Ingress of the Listener, or 0 if there is none
		otherAccepted bool
		refused       bool
	}{
		"the other has it":                            {otherTemplate: "{listener}.{namespace}.example.com", otherAge: time.Hour, refused: true},
		"both have it, the other first":               {otherTemplate: "{listener}.{namespace}.example.com", otherAge: 2 * time.Hour, ownAge: time.Hour, refused: true},
		"both have it, the other later":               {otherTemplate: "{listener}.{namespace}.example.com", otherAge: time.Hour, ownAge: 2 * time.Hour},
		"an earlier object of one that is refused":    {otherTemplate: "{listener}.{namespace}.example.com", otherAge: time.Hour, ownAge: 2 * time.Hour, otherAccepted: true, refused: true},
		"a tenant wrote it for a Listener of its own": {otherTemplate: "{listener}.{namespace}.example.org", otherAge: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			own, ownIngress := newIngressListener("shop", "web", "mirrored", tc.ownAge)
			other, otherIngress := newIngressListener("web", "shop", "plain", tc.otherAge)
			if tc.otherAccepted {
				other.Status = &listenersv1alpha1.ListenerStatus{Conditions: []metav1.Condition{{Type: listenersv1alpha1.ListenerAccepted, Status: metav1.ConditionTrue}}}
			}
			s := &state{backends: backends.All(), listener: own}
			s.with(other, otherIngress, newIngressClass("mirrored", "{namespace}.{listener}.example.com"), newIngressClass("plain", tc.otherTemplate))
			service := newState(listenersv1alpha1.ServiceTypeClusterIP).service.DeepCopy()
			service.Namespace, service.Name = "web", "shop"
			service.OwnerReferences = otherIngress.OwnerReferences
			s.with(service)
			if tc.ownAge > 0 {
				s.with(ownIngress)
			}
			c := s.newClient(t)
			r := newReconciler(s.backends, c, events.NewFakeRecorder(100))
			l := &listenersv1alpha1.Listener{}
			for range 2 { // the second finds the Service
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(own), l); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Reconcile(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(own), l); err != nil {
				t.Fatal(err)
			}
			accepted := meta.FindStatusCondition(l.Status.Conditions, listenersv1alpha1.ListenerAccepted)
			if refused := accepted.Reason == listenersv1alpha1.ReasonInvalidHost && strings.Contains(accepted.Message, "which Listener web/shop has already"); refused != tc.refused {
				t.Errorf("refused is %v, want %v: %s: %s", refused, tc.refused, accepted.Reason, accepted.Message)
			}
		})
	}
}

// How long it takes to find out that their Listeners have another host is for tenants to choose.
func TestObjectsThatTenantsWriteDoNotBlockOtherListeners(t *testing.T) {
	own, _ := newIngressListener("shop", "web", "mirrored", 0)
	other, otherIngress := newIngressListener("web", "shop", "plain", time.Hour)
	s := &state{backends: backends.All(), listener: own}
	c := s.with(other, otherIngress, newIngressClass("mirrored", "{namespace}.{listener}.example.com"), newIngressClass("plain", "{listener}.{namespace}.example.org")).newClient(t)
	looks := 0
	var r *Reconciler
	r = newReconciler(s.backends, interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if name == client.ObjectKeyFromObject(other) {
				looks++
				if !r.hosts.mu.TryLock() {
					t.Fatalf("the hosts are locked while %T %s is read", o, name)
				}
				r.hosts.mu.Unlock()
			}
			return c.Get(ctx, name, o, options...)
		},
	}), events.NewFakeRecorder(100))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(own), own); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), own); err != nil || looks == 0 {
		t.Errorf("error %v after %d looks", err, looks)
	}
}

// What is kept in memory does not grow with deleted Listeners.
func TestHostsOfListenersThatNoLongerHaveThemAreForgotten(t *testing.T) {
	h := newKeys(listenersv1alpha1.ReasonInvalidHost, newWaiting(nil))
	first := types.NamespacedName{Namespace: "shop", Name: "web"}
	h.set(first, sets.New("a", "b"), nil, false)
	h.set(first, sets.New("b"), nil, false)
	h.forget(first, nil)
	if len(h.holders)+len(h.held) > 0 {
		t.Errorf("left: %+v", h)
	}
}
