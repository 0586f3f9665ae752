package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// The kinds of volumes.
const (
	inline = iota
	named
	ofClaim
	ofEphemeralClaim
)

// runs is a Pod that runs while something happens that would refuse a new one.
type runs struct {
	*mover
	name   string
	reason string
	refusal
	pod    *corev1.Pod
	before given
}

// given is what the Pod has been given.
type given struct {
	Ports    map[string]int32
	Label    string
	Listener types.UID
	Service  types.UID
	Numbers  []int32
}

// refusal is what happens.
type refusal struct {
	// volume is of one of the kinds.
	volume int
	happen func(*runs)
	// silent states that the reason is not reported, because the next Pod will not be refused.
	silent bool
	// random states that the Pod's name is random.
	random bool
}

// refusals has something that happens for each reason that may refuse a new Pod.
func refusals() map[string]refusal {
	class := func(change func(*listenersv1alpha1.ListenerClassSpec)) func(*runs) {
		return func(r *runs) { r.changeClass(change) }
	}
	spec := func(change func(*listenersv1alpha1.ListenerSpec)) func(*runs) {
		return func(r *runs) { r.changeListener(func(l *listenersv1alpha1.Listener) { change(&l.Spec) }) }
	}
	ingress := func(s *listenersv1alpha1.ListenerClassSpec, host string) {
		s.ServiceType = listenersv1alpha1.ServiceTypeClusterIP
		s.Ingress = &listenersv1alpha1.IngressExposure{ClassName: "test", HostTemplate: listenersv1alpha1.HostTemplate(host), Path: "/"}
	}
	restrict := func(s *listenersv1alpha1.ListenerClassSpec) {
		s.ServiceExternalTrafficPolicy, s.AllowedClients = ptr.To(corev1.ServiceExternalTrafficPolicyLocal), []listenersv1alpha1.CIDR{"10.0.0.0/8"}
	}
	return map[string]refusal{
		listenersv1alpha1.ReasonClassNotSet: {volume: named, happen: spec(func(s *listenersv1alpha1.ListenerSpec) { s.ClassName = nil })},
		listenersv1alpha1.ReasonClassNotFound: {happen: func(r *runs) {
			r.delete(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: r.named(r.name)}})
		}},
		listenersv1alpha1.ReasonNamespaceNotAllowed: {volume: ofClaim, happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.AllowedNamespaces = &listenersv1alpha1.AllowedNamespaces{}
		})},
		listenersv1alpha1.ReasonNoPorts: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) { s.Ports = []string{"other"} })},
		listenersv1alpha1.ReasonInvalidPorts: {volume: ofEphemeralClaim, happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.MaxPorts = ptr.To[int32](1)
		})},
		listenersv1alpha1.ReasonInvalidOverrides: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec":{"ports":"all"}}`)}
		})},
		listenersv1alpha1.ReasonInvalidAllowedClients: {volume: named, happen: func(r *runs) {
			r.changeListener(func(l *listenersv1alpha1.Listener) {
				l.Spec.AllowedClients = []listenersv1alpha1.CIDR{"192.168.0.0/16"}
			})
			r.changeClass(restrict)
		}},
		listenersv1alpha1.ReasonAllowedClientsNotEnforceable: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			restrict(s)
			s.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec":{"externalTrafficPolicy":"Cluster"}}`)}
		})},
		listenersv1alpha1.ReasonForeignNetworkPolicy: {happen: func(r *runs) {
			r.create(&networkingv1.NetworkPolicy{ObjectMeta: r.meta(r.listenerName() + exposure.ClientPolicySuffix)})
			r.changeClass(restrict)
		}},
		listenersv1alpha1.ReasonNetworkPolicyRejected: {happen: func(r *runs) {
			r.forbid("count/networkpolicies.networking.k8s.io")
			r.changeClass(restrict)
		}},
		listenersv1alpha1.ReasonNoMatchingPods: {volume: named, happen: spec(func(s *listenersv1alpha1.ListenerSpec) {
			s.ExtraPodSelectorLabels = map[string]string{"role": "leader"}
		})},
		listenersv1alpha1.ReasonServiceRejected: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceOverrides = runtime.RawExtension{Raw: []byte(`{"spec":{"sessionAffinity":"Nonsense"}}`)}
		})},
		listenersv1alpha1.ReasonQuotaExceeded: {happen: func(r *runs) {
			r.forbid(corev1.ResourceServicesLoadBalancers)
			r.changeClass(func(s *listenersv1alpha1.ListenerClassSpec) {
				s.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
			})
		}},
		listenersv1alpha1.ReasonPortLimitReached: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
			s.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{
				PortRange: "19101-19102", MaxPortsPerNamespace: ptr.To[int32](1),
			}}
		})},
		listenersv1alpha1.ReasonSharedPortsExhausted: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceType = listenersv1alpha1.ServiceTypeLoadBalancer
			s.LoadBalancer = &listenersv1alpha1.LoadBalancer{Sharing: listenersv1alpha1.LoadBalancerSharing{PortRange: "19100-19100"}}
		})},
		listenersv1alpha1.ReasonNotServed: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceType = listenersv1alpha1.ServiceTypeClusterIP
			s.Route = &listenersv1alpha1.RouteExposure{}
		})},
		listenersv1alpha1.ReasonNoSinglePod: {volume: named, happen: class(func(s *listenersv1alpha1.ListenerClassSpec) { ingress(s, "{port}.{podName}.{namespace}.example.com") })},
		listenersv1alpha1.ReasonInvalidHost: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) { ingress(s, "{listener}.{namespace}.example.com") })},
		reasons.Foreign("Ingress"): {volume: ofClaim, happen: func(r *runs) {
			r.create(&networkingv1.Ingress{ObjectMeta: r.meta(r.listenerName() + "-http"), Spec: networkingv1.IngressSpec{
				Rules: []networkingv1.IngressRule{{Host: "foreign.example.com"}},
			}})
			r.changeClass(func(s *listenersv1alpha1.ListenerClassSpec) { ingress(s, "{port}.{listener}.{namespace}.example.com") })
		}},
		listenersv1alpha1.ReasonInvalidAdvertisement: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.Advertise = &listenersv1alpha1.Advertise{AddressTemplate: "edge.example.com", PortTemplate: "1"}
		})},
		listenersv1alpha1.ReasonNoHostPorts: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) {
			s.ServiceType, s.HostPort = listenersv1alpha1.ServiceTypeClusterIP, &listenersv1alpha1.HostPortExposure{}
		})},
		listenersv1alpha1.ReasonInvalidClaim: {volume: ofClaim, silent: true, happen: func(r *runs) {
			r.annotateClaim(names.AnnotationPorts, "other")
		}},
		listenersv1alpha1.ReasonSelectorChanged: {volume: ofClaim, happen: func(r *runs) {
			r.annotateClaim(names.AnnotationListenerClass, "")
			r.annotateClaim(names.AnnotationListenerName, "other")
		}},
		listenersv1alpha1.ReasonInvalidVolume: {happen: class(func(s *listenersv1alpha1.ListenerClassSpec) { s.PinnedNodePorts = true })},
		listenersv1alpha1.ReasonForeignListener: {happen: func(r *runs) {
			r.changeListener(func(l *listenersv1alpha1.Listener) { l.Annotations, l.OwnerReferences = nil, nil })
		}},
		listenersv1alpha1.ReasonPodIsCopy: {volume: ofClaim, silent: true, random: true, happen: func(r *runs) {
			other := r.pod.DeepCopy()
			r.change(r.pod, func() { r.pod.OwnerReferences = nil })
			other.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: r.name + "-other", OwnerReferences: other.OwnerReferences}
			other.Spec.NodeName = ""
			r.Expect(r.Create(r.Context(), other)).To(Succeed())
		}},
		listenersv1alpha1.ReasonLabelsRemoved: {happen: func(r *runs) {
			for range 2 {
				r.change(r.pod, func() {
					maps.DeleteFunc(r.pod.Labels, func(key, _ string) bool { return strings.HasPrefix(key, names.PodMountLabelPrefix) })
				})
				r.Eventually(func() string {
					now, _ := r.has("192.0.2.0")
					return now.Label
				}).Should(Equal(r.before.Label))
			}
		}},
		listenersv1alpha1.ReasonPinnedToNode: {volume: ofClaim, silent: true, happen: func(r *runs) {
			volume := r.persistentVolume()
			r.change(volume, func() { volume.Spec.NodeAffinity = claim.NodeAffinity("elsewhere") })
		}},
		listenersv1alpha1.ReasonVolumeNotRestored: {volume: ofClaim, happen: func(r *runs) {
			r.annotateClaim(names.AnnotationListenerClass, "")
			r.delete(r.persistentVolume())
		}},
		listenersv1alpha1.ReasonInvalidRelease: {volume: ofClaim, happen: func(r *runs) { r.annotateClaim(names.AnnotationRelease, "soon") }},
	}
}

// cannotRefuse has why other reasons refuse no Pod that runs.
var cannotRefuse = map[string][]string{
	"the containers, volumes and annotations that a Pod is created with decide": {
		listenersv1alpha1.ReasonDuplicatePortName, listenersv1alpha1.ReasonInvalidName, reasons.NotInjected, reasons.FailedMount, reasons.FailedBinding,
	},
	"only ports without a number, and Services without a cluster IP, need one": {
		listenersv1alpha1.ReasonNodePortsExhausted, listenersv1alpha1.ReasonClusterIPsExhausted,
	},
	"an exposure that is not complete leaves the previous one, as with the Ingress here": {
		listenersv1alpha1.ReasonLoadBalancerPortsError, listenersv1alpha1.ReasonUnusableAddress, listenersv1alpha1.ReasonNoRoutablePorts,
		listenersv1alpha1.ReasonRouteNotAdmitted, listenersv1alpha1.ReasonNoGatewayListener, listenersv1alpha1.ReasonGatewayPortsExhausted,
		listenersv1alpha1.ReasonListenerSetNotAllowed, listenersv1alpha1.ReasonGatewayRouteNotAccepted, listenersv1alpha1.ReasonAddressTaken,
	},
	"TestEntriesOfPodListeners has the previous addresses": {listenersv1alpha1.ReasonInvalidNodeAddress},
	"a user has deleted the Listener or the node, or taken the Service": {
		listenersv1alpha1.ReasonListenerNotFound, listenersv1alpha1.ReasonForeignService, listenersv1alpha1.ReasonNodesMissing, listenersv1alpha1.ReasonNodesNotReady, listenersv1alpha1.ReasonNodeLost,
	},
	"records follow the addresses, and nothing follows the records": {listenersv1alpha1.ReasonForeignDNSEndpoint, listenersv1alpha1.ReasonDNSEndpointRejected},
	"nothing is written":                                          {listenersv1alpha1.ReasonRequestRejected, listenersv1alpha1.ReasonReleaseRefused},
	"it says that a Pod has no address yet":                       {listenersv1alpha1.ReasonWaitingForAddress},
	"it is about the end of the Pod":                              {listenersv1alpha1.ReasonEvictionRefused, listenersv1alpha1.ReasonNotEvicted},
	"the volume is created again, as here without its annotation": {reasons.ClaimLost},
}

func (r *runs) listenerName() string {
	switch r.volume {
	case named, ofClaim:
		return r.name
	default:
		return r.pod.Name + "-" + r.pod.Spec.Volumes[0].Name
	}
}

func (r *runs) change(o client.Object, change func()) {
	r.Helper()
	r.Eventually(func() error {
		if err := r.Get(r.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return r.Update(r.Context(), o)
	}).Should(Succeed())
}

func (r *runs) changeClass(change func(*listenersv1alpha1.ListenerClassSpec)) {
	r.Helper()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: r.named(r.name)}}
	r.change(class, func() { change(&class.Spec) })
}

func (r *runs) changeListener(change func(*listenersv1alpha1.Listener)) {
	r.Helper()
	listener := &listenersv1alpha1.Listener{ObjectMeta: r.meta(r.listenerName())}
	r.change(listener, func() { change(listener) })
}

func (r *runs) annotateClaim(key, value string) {
	r.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: r.meta(r.name)}
	r.change(pvc, func() {
		if pvc.Annotations[key] = value; value == "" {
			delete(pvc.Annotations, key)
		}
	})
}

// forbid has a ResourceQuota permit nothing of a kind.
func (r *runs) forbid(kind corev1.ResourceName) {
	r.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: r.meta(r.name)}
	quota.Spec.Hard = corev1.ResourceList{kind: resource.MustParse("0")}
	r.create(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
	r.Expect(r.Status().Update(r.Context(), quota)).To(Succeed())
}

func (r *runs) persistentVolume() *corev1.PersistentVolume {
	r.Helper()
	pvc := &corev1.PersistentVolumeClaim{}
	r.Expect(r.Get(r.Context(), client.ObjectKey{Namespace: r.namespace, Name: r.name}, pvc)).To(Succeed())
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.VolumeName(pvc)}}
}

// start creates the Pod, its controller, and its volume.
func (r *runs) start() {
	r.Helper()
	r.create(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: r.named(r.name)}, Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort,
	}})
	set := r.statefulSet(r.name)
	r.create(set)
	selector := map[string]string{names.AnnotationListenerClass: r.named(r.name)}
	r.pod = r.mover.pod(0)
	r.pod.Name, r.pod.OwnerReferences = r.name+"-0", controlledBy(set)
	if !r.random {
		r.pod.GenerateName, r.pod.Labels = r.name+"-", map[string]string{appsv1.StatefulSetPodNameLabel: r.name + "-0"}
	}
	r.pod.Spec.Containers[0].Ports = append(r.pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "admin", ContainerPort: 81})
	pvc := claimOf(r.namespace, r.name)
	switch r.volume {
	case inline:
		selector[names.AttributeKeep] = "true"
		r.pod.Spec.Volumes[0], pvc = objects.InlineVolume("listener", selector), nil
	case named:
		r.create(&listenersv1alpha1.Listener{ObjectMeta: r.meta(r.name), Spec: listenersv1alpha1.ListenerSpec{
			ClassName: ptr.To(r.named(r.name)), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}, {Name: "admin", Port: 81}},
		}})
		selector = map[string]string{names.AnnotationListenerName: r.name}
		fallthrough
	case ofClaim:
		r.pod.Spec.Volumes[0] = objects.ClaimVolume("listener", r.name)
	case ofEphemeralClaim:
		r.pod.Spec.Volumes[0] = objects.EphemeralVolume("listener", selector)
		pvc.Name = r.pod.Name + "-listener"
	}
	r.create(r.pod)
	if pvc == nil {
		return
	}
	maps.Copy(pvc.Annotations, selector)
	if r.volume == ofEphemeralClaim {
		pvc.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	}
	r.create(pvc)
}

// has returns what the Pod has been given at an address, or why not.
func (r *runs) has(address string) (g given, problem string) {
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: r.namespace, Name: name} }
	pod, listener, service, published := &corev1.Pod{}, &listenersv1alpha1.Listener{}, &corev1.Service{}, &listenersv1alpha1.PodListeners{}
	if err := errors.Join(
		r.Get(r.Context(), key(r.pod.Name), pod), r.Get(r.Context(), key(r.listenerName()), listener), r.Get(r.Context(), key(r.listenerName()), service),
		r.Get(r.Context(), key(listenersv1alpha1.PodListenersName(r.pod.UID)), published),
	); err != nil {
		return g, err.Error()
	}
	entry := published.Spec.Listeners["listener"]
	if len(entry.IngressAddresses) != 1 || entry.IngressAddresses[0].Address != address {
		return g, fmt.Sprintf("addresses %+v, of the Listener %+v", entry.IngressAddresses, listener.Status.IngressAddresses)
	}
	g = given{entry.IngressAddresses[0].Ports, pod.Labels[names.PodMountLabel(listener.UID)], listener.UID, service.UID, nil}
	for _, p := range service.Spec.Ports {
		g.Numbers = append(g.Numbers, p.NodePort)
	}
	return g, ""
}

// note returns what a condition of the Listener, or an event of the Pod or its claim, says with the reason, or "".
func (r *runs) note() string {
	listener, all := &listenersv1alpha1.Listener{}, &eventsv1.EventList{}
	if errors.Join(r.Get(r.Context(), client.ObjectKey{Namespace: r.namespace, Name: r.listenerName()}, listener),
		r.List(r.Context(), all, client.InNamespace(r.namespace))) != nil {
		return ""
	}
	for _, c := range listener.Status.Conditions {
		if c.Reason == r.reason {
			return c.Message
		}
	}
	for _, e := range all.Items {
		if strings.HasPrefix(e.Regarding.Name, r.name) && e.Reason == r.reason {
			return e.Note
		}
	}
	return ""
}

// TestWhatRunsStays lets happen what refuses a new Pod, for each reason that may, to a Pod that runs. What it was given
// stays, and its addresses follow those of its node, also after the operator restarts.
func TestWhatRunsStays(t *testing.T) {
	m := newMover(t, nil)
	m.period = time.Second
	m.restart()
	happens := refusals()
	var all []*runs
	for _, reason := range slices.Sorted(maps.Keys(happens)) {
		r := &runs{mover: m, name: fmt.Sprintf("run%02d", len(all)), reason: reason, refusal: happens[reason]}
		r.start()
		all = append(all, r)
	}
	follow := func(address string) {
		t.Helper()
		for _, r := range all {
			m.Eventually(func() string {
				now, problem := r.has(address)
				if problem == "" && r.before.Listener != "" {
					problem = cmp.Diff(r.before, now)
				}
				return problem
			}).Should(BeEmpty(), r.reason)
		}
		for _, r := range all {
			r.before, _ = r.has(address)
		}
	}
	follow("192.0.2.0")
	for _, r := range all {
		r.happen(r)
	}
	for _, r := range all {
		if !r.silent {
			m.Eventually(r.note).ShouldNot(BeEmpty(), r.reason)
		}
	}
	for i, address := range []string{"192.0.2.9", "192.0.2.8"} {
		if i > 0 {
			m.restart()
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.namespace + "-node-0"}}
		m.setStatus(node, func() { node.Status.Addresses = []corev1.NodeAddress{objects.InternalIP(address)} })
		follow(address)
	}
}

// The table of reasons is the list.
func TestWhatRunsStaysHasEachReason(t *testing.T) {
	known := map[string]bool{}
	for reason := range refusals() {
		known[reason] = true
	}
	for why, all := range cannotRefuse {
		for _, reason := range all {
			if known[reason] {
				t.Errorf("%s is in both lists, the second one says: %s", reason, why)
			}
			known[reason] = true
		}
	}
	for _, kind := range backends.All().Generated() { // as with the Ingress above
		known[kind.ForeignReason()], known[kind.RejectedReason()] = true, true
	}
	concerned := []string{"Listener", "PersistentVolumeClaim", "Pod"}
	for _, section := range reasons.Sections() {
		for _, r := range section.Reasons {
			concerns := len(r.On) == 0 || slices.ContainsFunc(r.On, func(kind string) bool { return slices.Contains(concerned, kind) })
			if r.Severity == reasons.Error && concerns && !known[r.Name] {
				t.Errorf("nothing tests, or says, that %s takes nothing from a Pod that runs", r.Name)
			}
		}
	}
}
