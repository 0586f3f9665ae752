//go:build e2e

package e2e

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// createClass creates a ListenerClass, named like the scenario's namespace, and deletes it at the end of the test.
func (s *scenario) createClass(spec listenersv1alpha1.ListenerClassSpec) *listenersv1alpha1.ListenerClass {
	s.Helper()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: spec}
	s.createUntilEnd(class)
	return class
}

func pinned() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: true}
}

func unpinned() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}
}

func loadBalanced() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("e2e.example/by-hand"),
	}
}

// byClass returns the annotations of a claim that names a class.
func byClass(class string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: class}
}

// byName returns the annotations of a claim that names a Listener.
func byName(name string) map[string]string {
	return map[string]string{names.AnnotationListenerName: name}
}

// podSpec returns the spec of a Pod that runs the test server and mounts these volumes, which the caller has to define.
func podSpec(volumes ...string) corev1.PodSpec {
	server := corev1.Container{
		Name:  "server",
		Image: serverImage,
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
			{Name: "echo", ContainerPort: 9090, Protocol: corev1.ProtocolUDP},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 1,
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, volume := range volumes {
		server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/listeners/" + volume})
	}
	return corev1.PodSpec{
		Containers:                    []corev1.Container{server},
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// pod returns a Pod that runs the test server, with the ephemeral listener volume "listener", whose claim has these
// annotations.
func pod(name string, claim map[string]string) *corev1.Pod {
	return podWith(name, objects.EphemeralVolume("listener", claim))
}

// podWith returns a Pod that runs the test server and mounts these volumes.
func podWith(name string, volumes ...corev1.Volume) *corev1.Pod {
	labels := map[string]string{"app": name}
	var mounted []string
	for _, v := range volumes {
		mounted = append(mounted, v.Name)
		if v.Ephemeral != nil {
			v.Ephemeral.VolumeClaimTemplate.Labels = labels
		}
	}
	spec := podSpec(mounted...)
	spec.Volumes = volumes
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec}
}

// spread makes the replicas of a StatefulSet run on different nodes.
func spread(set *appsv1.StatefulSet) {
	set.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: set.Spec.Selector,
	}}
}

// onNode returns the node selector of Pods that run on a node.
func onNode(name string) map[string]string { return map[string]string{corev1.LabelHostname: name} }

// statefulSet returns a StatefulSet that runs the test server, and has a claim with these annotations for each replica.
func statefulSet(name string, replicas int32, annotations map[string]string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("listener")},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "listener", Annotations: annotations, Labels: labels},
				Spec:       objects.ClaimSpec(""),
			}},
		},
	}
}

// notOn returns the affinity of Pods that do not run on a node.
func notOn(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
			}},
		}}},
	}}
}

// createBootstrapListener creates a Listener named "bootstrap", for claims that name it.
func (s *scenario) createBootstrapListener(class string) {
	s.Helper()
	s.createListener("bootstrap", class, port("http", 8080, corev1.ProtocolTCP))
}

// removeService deletes a Service, and waits until the operator has created it again and it meets the condition.
func (s *scenario) removeService(name string, condition func(*corev1.Service) bool) {
	s.Helper()
	service := mustGet(s, &corev1.Service{}, s.key(name))
	s.remove(service)
	mustAwait(s, &corev1.Service{}, s.key(name), func(again *corev1.Service) bool { return again.UID != service.UID && condition(again) })
}

// assignAddress sets the address of a Service as a load balancer's controller does.
func (s *scenario) assignAddress(service *corev1.Service, address string) {
	s.Helper()
	before := service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	if err := api.Status().Patch(s.ctx, service, client.MergeFrom(before)); err != nil {
		s.Fatalf("assigning an address: %v", err)
	}
}

// createListener creates a Listener that no volume uses yet.
func (s *scenario) createListener(name, class string, ports ...listenersv1alpha1.ListenerPort) *listenersv1alpha1.Listener {
	s.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &class, Ports: ports},
	}
	s.create(l)
	return l
}

func port(name string, number int32, protocol corev1.Protocol) listenersv1alpha1.ListenerPort {
	return listenersv1alpha1.ListenerPort{Name: name, Port: number, Protocol: &protocol}
}

// createClasses creates several classes, deletes them at the end of the test, and returns them by suffix of their
// names.
func (s *scenario) createClasses(specs map[string]listenersv1alpha1.ListenerClassSpec) map[string]*listenersv1alpha1.ListenerClass {
	s.Helper()
	made := map[string]*listenersv1alpha1.ListenerClass{}
	for suffix, spec := range specs {
		class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + suffix}, Spec: spec}
		s.createUntilEnd(class)
		made[suffix] = class
	}
	return made
}
