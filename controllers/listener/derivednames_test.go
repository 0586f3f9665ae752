package listener

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listener/observe"
	"github.com/listener-operator/listener-operator/internal/names"
)

// withoutServiceName are names of Listeners that are not those of Services.
var withoutServiceName = []string{"7days-data", "web.one", strings.Repeat("a", 70)}

// newListenerNamed returns a new Listener of a name.
func newListenerNamed(name string, serviceType listenersv1alpha1.ServiceType) *state {
	return newState(serviceType).change(func(s *state) { s.listener.Name, s.service = name, nil })
}

// Objects of other owners lead to it, too, by what is derived from its name.
func TestAListenerIsExposedWhateverItsName(t *testing.T) {
	for _, name := range withoutServiceName {
		s := newListenerNamed(name, clusterIP)
		o := s.operator(t, interceptor.Funcs{})
		o.reconcile(name)
		change(o, names.Service(name), func(service *corev1.Service) {
			service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
		})
		listener, service := o.reconcile(name), get[corev1.Service](o, names.Service(name))
		accepted := observe.Condition(listener, listenersv1alpha1.ListenerAccepted)
		if ptr.Deref(listener.Status.ServiceName, "") != service.Name || accepted.Status != metav1.ConditionTrue || !strings.Contains(accepted.Message, "Service shop/"+service.Name+" ") {
			t.Errorf("%s: Service %s, status %+v", name, service.Name, listener.Status)
		}
		if got := listener.Status.IngressAddresses; len(got) != 1 || got[0].Address != service.Name+".shop.svc.cluster.local" {
			t.Errorf("%s: published %v", name, got)
		}
		label := names.ListenerLabel(name)
		if service.Labels["app.kubernetes.io/instance"] != label || service.Spec.Selector[names.PodMountLabel("listener-uid")] != label {
			t.Errorf("%s: the Service has labels %v and selector %v", name, service.Labels, service.Spec.Selector)
		}

		service.OwnerReferences, service.Labels = nil, nil // as that of another owner
		pod := newPod("0", corev1.PodRunning)
		pod.Labels = map[string]string{names.PodMountLabel("listener-uid"): label}
		pv := newVolume("pv-1", func(pv *corev1.PersistentVolume) { pv.Labels[names.LabelListenerName] = label })
		want := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.listener)}
		for what, got := range map[string][]reconcile.Request{
			"Service": o.serviceToListeners(t.Context(), service), "Pod": o.podToListeners(t.Context(), pod), "PersistentVolume": o.volumeToListeners(t.Context(), pv),
		} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: the %s leads to %v", name, what, got)
			}
		}
	}
}

func TestAServiceThatHasTheDerivedNameIsLeftAlone(t *testing.T) {
	const name = "7days-data"
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: names.Service(name)}}
	listener := newListenerNamed(name, clusterIP).with(theirs).operator(t, interceptor.Funcs{}).reconcile(name)
	wantCondition(t, observe.Condition(listener, listenersv1alpha1.ListenerAccepted), listenersv1alpha1.ReasonForeignService, "shop/l-7days-data-")
}

// The numbers of its Service are its own, and so are those in its status while its Service is missing.
func TestANodePortOfARangeStaysWithAListenerWhateverItsName(t *testing.T) {
	for what, having := range map[string]func(*state){
		"the Service": func(s *state) {
			s.service = otherService(31500)
			s.service.Namespace, s.service.Name = key.Namespace, names.Service(s.listener.Name)
			s.service.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.listener, listenersv1alpha1.GroupVersion.WithKind("Listener"))}
		},
		"the status": func(s *state) {
			s.listener.Status = &listenersv1alpha1.ListenerStatus{
				ServiceName: ptr.To(names.Service(s.listener.Name)), NodePorts: map[string]int32{"http": 31500}, IngressAddresses: []listenersv1alpha1.IngressAddress{},
			}
		},
	} {
		for _, name := range withoutServiceName {
			s := newListenerNamed(name, nodePort).change(withRange("31500-31500")).change(having)
			o := s.operator(t, interceptor.Funcs{})
			observePorts(t, o.Reconciler)
			if s.service != nil { // the watch does not show that yet
				o.delete(s.service)
			}
			o.reconcile(name)
			if service := get[corev1.Service](o, names.Service(name)); service.Spec.Ports[0].NodePort != 31500 {
				t.Errorf("%s of %s had the number: the Service is %+v", what, name, service.Spec)
			}
		}
	}
}
