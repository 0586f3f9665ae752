package listener

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// TunnelAnnotation among a class's serviceAnnotations stands for the field by which a class would ask for
// TunnelBackend.
const TunnelAnnotation = "example.com/tunnel"

// TunnelBackend returns a backend that the operator does not have, with a kind of its own.
func TunnelBackend(domain string) *exposure.Backend {
	kind := tunnelVersion.WithKind("Tunnel")
	return &exposure.Backend{
		Name: "Tunnel",
		Exposes: func(class *listenersv1alpha1.ListenerClass) bool {
			return class.Spec.ServiceAnnotations[TunnelAnnotation] != ""
		},
		Generates: []*exposure.Kind{{
			GroupVersionKind: kind, Resource: "tunnels", ForeignReason: "ForeignTunnel", RejectedReason: "TunnelRejected",
			AddToScheme: func(scheme *runtime.Scheme) error {
				scheme.AddKnownTypes(tunnelVersion, &Tunnel{}, &TunnelList{})
				metav1.AddToGroupVersion(scheme, tunnelVersion)
				return nil
			},
		}},
		Objects: func(l *exposure.Listener, _ exposure.Others) ([]exposure.Desired, *exposure.Refusal) {
			o := &unstructured.Unstructured{Object: map[string]any{"host": l.Name + "." + domain}}
			o.SetGroupVersionKind(kind)
			o.SetNamespace(l.Namespace)
			o.SetName(l.Name)
			exposure.SetOwner(o, l.Listener)
			return []exposure.Desired{{Unstructured: o}}, nil
		},
		Addresses: func(l *exposure.Listener, _ exposure.Placement) exposure.Exposed {
			if len(l.Objects) == 0 {
				return exposure.Exposed{Reason: "WaitingForTunnel"}
			}
			return exposure.Exposed{Complete: true, Addresses: []listenersv1alpha1.IngressAddress{{
				Address: l.Objects[0].(*Tunnel).Host, AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{},
			}}}
		},
	}
}

// BackendsWithTunnel is what backends.All returns when TunnelBackend is added to it.
func BackendsWithTunnel() backends.List {
	return slices.Concat(backends.List{TunnelBackend("example.com")}, backends.All())
}

var tunnelVersion = schema.GroupVersion{Group: "tunnels.example.com", Version: "v1"}

// Tunnel is the kind of TunnelBackend.
type Tunnel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Host string `json:"host"`
}

// TunnelList is a list of Tunnels.
type TunnelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Tunnel `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (t *Tunnel) DeepCopyObject() runtime.Object {
	c := *t
	t.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *TunnelList) DeepCopyObject() runtime.Object {
	c := &TunnelList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Tunnel))
	}
	return c
}

func withTunnelClass(s *state) {
	s.backends = BackendsWithTunnel()
	s.class.Spec.Route, s.class.Spec.ServiceAnnotations = nil, map[string]string{TunnelAnnotation: "true"}
}

func TestAdditionalBackendNeedsNoChangeOfTheController(t *testing.T) {
	s := newRouteState(ownRoute("http", admittedAs("http.example.com"))).change(withTunnelClass)
	o := s.reconcile(t, 1, interceptor.Funcs{}, nil)
	if diff := cmp.Diff([]string{"web.example.commap[]"}, o.addresses()); diff != "" || o.err != nil {
		t.Errorf("error %v, addresses (-want +got):\n%s", o.err, diff)
	}
	if len(o.routes) > 0 {
		t.Errorf("Routes of the previous backend are left: %v", o.routes)
	}
	s.change(withPublished(map[string]string{"http.example.com": "http"}))
	o = s.with(&Tunnel{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}).reconcile(t, 1, interceptor.Funcs{}, nil)
	if got := o.condition(listenersv1alpha1.ListenerAccepted).Reason; got != "ForeignTunnel" {
		t.Errorf("got reason %s for a Tunnel that the Listener does not control", got)
	}
	if diff := cmp.Diff([]string{"http.example.commap[http:443]"}, o.addresses()); diff != "" {
		t.Errorf("addresses beside a foreign Tunnel (-want +got):\n%s", diff)
	}
}

func TestAdditionalBackendCanHaveHeadlessServices(t *testing.T) {
	s := newState(clusterIP).change(withTunnelClass).with(&Tunnel{ObjectMeta: ownRoute("http").ObjectMeta})
	s.backends[0].Headless, s.service = true, nil
	if o := s.reconcile(t, 1, interceptor.Funcs{}, nil); o.err != nil || o.service == nil || o.service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("error %v, Service %+v", o.err, o.service)
	}
}

// Clients need time to learn the addresses of the third backend, too.
func TestPreviousExposureStaysWhenBackendChangesTwice(t *testing.T) {
	tunnel := &Tunnel{ObjectMeta: ownRoute("http").ObjectMeta}
	s := newRouteState(ownRoute("http", admittedAs("h.example.com")), tunnel).change(withNodePortService).change(withTunnelClass)
	s.class.Spec.ServiceType = nodePort
	o := s.operator(t, interceptor.Funcs{})
	o.wantRequeue(0, 10*time.Second)
	change(o, s.class.Name, func(class *listenersv1alpha1.ListenerClass) { class.Spec.ServiceAnnotations = nil })
	o.wantRequeue(9*time.Second, 10*time.Second)
	o.wantRemoval(10 * time.Second)
	if got := get[corev1.Service](o, key.Name); got.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("got a Service of type %q, want NodePort", got.Spec.Type)
	}
}
