package plugin_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// shop is a namespace with replicas that have addresses of their own and one that they share.
type shop struct {
	world
	pods atomic.Int64
}

// newShop creates a shop without replicas. It stays when the test ends: to delete thousands of objects takes minutes.
func newShop(t *testing.T, config *rest.Config, namespace string) *shop {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: apiserver.Scheme()})
	check.Must(t, err)
	s := &shop{world: world{Client: c, namespace: namespace}}
	s.createForever(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s.createForever(t, &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-stable"},
		Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeNodePort, Pinning: &listenersv1alpha1.Pinning{Policy: listenersv1alpha1.PinningPolicyRequired},
		},
	})
	s.createForever(t, &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-public"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer},
	})
	return s
}

// addNode creates a node with a node agent.
func (s *shop) addNode(t *testing.T, name string) *corev1.Node {
	node := objects.Node(name)
	s.createForever(t, node)
	s.createForever(t, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: names.Driver, NodeID: name, TopologyKeys: []string{names.TopologyKey}}}},
	})
	return node
}

// addListener creates a Listener with its Service.
func (s *shop) addListener(t *testing.T, name, class string, serviceType corev1.ServiceType, addresses ...listenersv1alpha1.IngressAddress) *listenersv1alpha1.Listener {
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(s.namespace + class), Ports: []listenersv1alpha1.ListenerPort{{Name: "broker", Port: 9092}}},
	}
	s.createForever(t, l)
	l.Status = &listenersv1alpha1.ListenerStatus{
		ServiceName: ptr.To(name), IngressAddresses: addresses, ObservedGeneration: l.Generation,
		Conditions: []metav1.Condition{
			newCondition(listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted),
			newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionTrue, listenersv1alpha1.ReasonAddressesAssigned),
		},
	}
	s.updateStatus(t, l)
	s.createForever(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(l, listenersv1alpha1.GroupVersion.WithKind("Listener"))},
		},
		// Not of the type of the class, because an API server has few node ports.
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "broker", Port: 9092}}},
	})
	return l
}

func address(host string, port int32) listenersv1alpha1.IngressAddress {
	return at(host, map[string]int32{"broker": port})
}

// addPod creates a Pod that runs on a node and mounts these Listeners.
func (s *shop) addPod(t *testing.T, name, node string, listeners ...*listenersv1alpha1.Listener) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	var volumes []string
	for _, l := range listeners {
		pvc := s.newClaim(name+"-"+l.Name, ofListener(l.Name))
		s.createForever(t, pvc)
		pv := claim.Volume(pvc, l.Name)
		pv.Spec.NodeAffinity = claim.NodeAffinity(node)
		s.createForever(t, pv)
		pvc.Spec.VolumeName = pv.Name
		s.update(t, pvc)
		pvc.Status.Phase = corev1.ClaimBound
		s.updateStatus(t, pvc)
		pod.Labels[names.PodMountLabel(l.UID)] = l.Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(l.Name, pvc.Name))
		main := &pod.Spec.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: l.Name, MountPath: "/" + l.Name})
		volumes = append(volumes, pv.Name)
	}
	s.createForever(t, pod)
	number := s.pods.Add(1)
	ip := fmt.Sprintf("10.1.%d.%d", number/250, 1+number%250)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	s.updateStatus(t, pod)
	published := listenersv1alpha1.NewPodListeners(client.ObjectKeyFromObject(pod), pod.UID, node)
	for i, l := range listeners {
		published.Spec.Listeners[l.Name] = listenersv1alpha1.PodListener{
			Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: l.Status.IngressAddresses, PersistentVolumeName: volumes[i], ListenerName: l.Name,
		}
		s.createForever(t, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: l.Name + "-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: l.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.namespace, Name: pod.Name, UID: pod.UID},
			}},
		})
	}
	s.createForever(t, published)
	return pod
}

// addKafka creates three brokers on three nodes, and a Listener that they share.
func (s *shop) addKafka(t *testing.T) {
	t.Helper()
	bootstrap := s.addListener(t, "kafka-bootstrap", "-public", corev1.ServiceTypeLoadBalancer, address("kafka.shop.example.com", 9092))
	for i := range int32(3) {
		node := fmt.Sprintf("%s-worker-%d", s.namespace, i+1)
		s.addNode(t, node)
		own := s.addListener(t, fmt.Sprintf("listener-kafka-%d", i), "-stable", corev1.ServiceTypeNodePort, address(fmt.Sprintf("203.0.113.%d", 7+i), 30092+i))
		s.addPod(t, fmt.Sprintf("kafka-%d", i), node, own, bootstrap)
	}
}

// addWaiting creates a Pod whose claim names a class that does not exist.
func (s *shop) addWaiting(t *testing.T) {
	t.Helper()
	pvc := s.newClaim("listener-web-0", ofClass("fast-lane"))
	s.createForever(t, pvc)
	s.createForever(t, s.newPod("web-0", pvc.Name))
}

// addMany creates Listeners, each with a Pod of its own, and every tenth with a second one.
func (s *shop) addMany(t *testing.T, n int32) {
	t.Helper()
	for i := range 20 {
		s.addNode(t, fmt.Sprintf("%s-worker-%02d", s.namespace, i))
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			l := s.addListener(t, fmt.Sprintf("listener-broker-%04d", i), "-stable", corev1.ServiceTypeNodePort, address(fmt.Sprintf("203.0.%d.%d", 113+i/250, 1+i%250), 30000+i))
			for j := range 1 + min(1, i%10/9) {
				s.addPod(t, fmt.Sprintf("broker-%04d-%d", i, j), fmt.Sprintf("%s-worker-%02d", s.namespace, (i+j)%20), l)
			}
		})
	}
	group.Wait()
}
