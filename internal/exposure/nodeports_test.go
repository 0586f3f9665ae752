package exposure_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// severalPorts gives the Listener ports of several protocols, two of them with the same number.
func severalPorts(l *listenersv1alpha1.Listener) {
	l.Spec.Ports = []listenersv1alpha1.ListenerPort{
		{Name: "dns-tcp", Port: 53}, {Name: "dns-udp", Port: 53, Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: "http", Port: 80},
	}
}

func TestLostNodePorts(t *testing.T) {
	last := map[string]int32{"dns-tcp": 30053, "dns-udp": 30053, "http": 30080, "removed": 30090}
	all := map[string]int32{"dns-tcp": 30053, "dns-udp": 30053, "http": 30080}
	service := func(ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}
	}
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		override    string
		existing    *corev1.Service
		want        map[string]int32
	}{
		"deleted Service":                                      {serviceType: nodePort, want: all},
		"Service without node ports":                           {serviceType: nodePort, existing: service(corev1.ServicePort{Name: "http", Port: 80}), want: all},
		"Service with node ports":                              {serviceType: nodePort, existing: service(corev1.ServicePort{Name: "other", Port: 81, NodePort: 31081})},
		"load balancer":                                        {serviceType: loadBalancer, want: all},
		"load balancer without node ports":                     {serviceType: loadBalancer, override: `{spec: {allocateLoadBalancerNodePorts: false}}`},
		"cluster IP":                                           {serviceType: clusterIP},
		"type set by an override":                              {serviceType: clusterIP, override: `{spec: {type: NodePort}}`, want: all},
		"another type set by an override":                      {serviceType: nodePort, override: `{spec: {type: ClusterIP}}`},
		"type removed by an override":                          {serviceType: nodePort, override: `{spec: {type: null}}`},
		"node port set by an override":                         {serviceType: nodePort, override: `{spec: {ports: [{port: 80, nodePort: 30100}]}}`, want: map[string]int32{"dns-tcp": 30053, "dns-udp": 30053}},
		"node port of another port set by an override":         {serviceType: nodePort, override: `{spec: {ports: [{port: 81, name: more, nodePort: 30080}]}}`, want: map[string]int32{"dns-tcp": 30053, "dns-udp": 30053}},
		"node port to allocate set by an override (0 is none)": {serviceType: nodePort, override: `{spec: {ports: [{port: 80, nodePort: 0}]}}`, want: all},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(tc.serviceType), newListener()
			severalPorts(listener)
			if tc.override != "" {
				class.Spec.ListenerOverrides = &listenersv1alpha1.ListenerOverrides{Allowed: []listenersv1alpha1.ServiceField{"spec.type", "spec.ports", "spec.ports.nodePort", "spec.allocateLoadBalancerNodePorts"}}
				listener.Spec.ObjectOverrides = []runtime.RawExtension{serviceOverride(t, tc.override)}
			}
			desired, err := backends.All().Of(class).Service(class, listener)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tc.want, exposure.LostNodePorts(desired, tc.existing, last), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceWithNodePortsGolden(t *testing.T) {
	class, listener := newClass(nodePort), newListener()
	severalPorts(listener)
	without, err := backends.All().Of(class).Service(class, listener)
	if err != nil {
		t.Fatal(err)
	}
	with := exposure.WithNodePorts(without, exposure.LostNodePorts(without, nil, map[string]int32{"dns-tcp": 30053, "dns-udp": 30053, "http": 30080}))
	golden.Compare(t, "service-nodeport-again", with)
	golden.Compare(t, "service-nodeport-several-ports", without) // is not changed
}

func TestNodePortsLeadToTheSameContainerPorts(t *testing.T) {
	existing := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "dns-tcp", Port: 5353, NodePort: 30053}, {Name: "dns-udp", Port: 5353, NodePort: 30053}, {Name: "http"}, {Name: "removed", NodePort: 30090},
	}}}
	for name, tc := range map[string]struct {
		override  string
		existing  *corev1.Service
		requested map[string]int32
		want      map[string]string
	}{
		"not known":                       {},
		"requested":                       {requested: map[string]int32{"http": 30080}, want: map[string]string{"http": "30080"}},
		"of the Service, by name":         {existing: existing, want: map[string]string{"dns-tcp": "30053", "dns-udp": "30053"}},
		"requested instead":               {existing: existing, requested: map[string]int32{"dns-tcp": 30054, "dns-udp": 30054}, want: map[string]string{"dns-tcp": "30054", "dns-udp": "30054"}},
		"set by an override":              {override: `{spec: {ports: [{port: 80, nodePort: 30081}]}}`, want: map[string]string{"http": "30081"}},
		"a target set by an override":     {override: `{spec: {ports: [{port: 80, targetPort: web, nodePort: 30081}]}}`, want: map[string]string{"http": "web"}},
		"a number set by an override":     {override: `{spec: {ports: [{port: 80, targetPort: 8080}]}}`, requested: map[string]int32{"http": 30080}, want: map[string]string{"http": "8080"}},
		"a port added by an override":     {override: `{spec: {ports: [{port: 82, name: more, nodePort: 30082}]}}`, want: map[string]string{"more": "30082"}},
		"none allocated (0 is no number)": {override: `{spec: {ports: [{port: 80, nodePort: 0}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(nodePort), newListener()
			severalPorts(listener)
			if tc.override != "" {
				class.Spec.ServiceOverrides = rawYAML(t, tc.override)
			}
			desired, err := backends.All().Of(class).Service(class, listener)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, p := range exposure.WithTargetPorts(exposure.WithNodePorts(desired, tc.requested), tc.existing).Spec.Ports {
				if p.TargetPort != nil {
					got[*p.Name] = p.TargetPort.String()
				}
			}
			if diff := gocmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			unchanged, err := backends.All().Of(class).Service(class, listener)
			if diff := gocmp.Diff(unchanged, desired); diff != "" || err != nil {
				t.Errorf("error %v, the Service was changed:\n%s", err, diff)
			}
		})
	}
}

func TestAllocatedNodePorts(t *testing.T) {
	numbers := utilnet.PortRange{Base: 31000, Size: 4}
	service := func(ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}}
	}
	for name, tc := range map[string]struct {
		serviceType listenersv1alpha1.ServiceType
		override    string
		existing    *corev1.Service
		requested   map[string]int32
		taken       []int32
		want        []string // the ports that get a number
		without     string
	}{
		"all ports":          {want: []string{"dns-tcp", "dns-udp", "http"}},
		"another type":       {serviceType: clusterIP},
		"requested ones":     {requested: map[string]int32{"http": 30080}, want: []string{"dns-tcp", "dns-udp"}},
		"those that exist":   {existing: service(corev1.ServicePort{Name: "http", Port: 81, NodePort: 30080}), want: []string{"dns-tcp", "dns-udp"}},
		"those of overrides": {override: `{spec: {ports: [{port: 80, nodePort: 31000}]}}`, want: []string{"dns-tcp", "dns-udp"}},
		"the numbers left":   {taken: []int32{31001, 31002}, want: []string{"dns-tcp", "dns-udp", "http"}},
		"one number left":    {taken: []int32{31000, 31001, 31003}, without: "http"},
		"no number left":     {taken: []int32{31000, 31001, 31002, 31003}, without: "dns-tcp"},
		"no number needed":   {taken: []int32{31000, 31001, 31002, 31003}, requested: map[string]int32{"dns-tcp": 1, "dns-udp": 1, "http": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			class, listener := newClass(cmp.Or(tc.serviceType, nodePort)), newListener()
			severalPorts(listener)
			if tc.override != "" {
				class.Spec.ServiceOverrides = rawYAML(t, tc.override)
			}
			desired, err := backends.All().Of(class).Service(class, listener)
			if err != nil {
				t.Fatal(err)
			}
			got, without := exposure.AllocateNodePorts(desired, tc.existing, tc.requested, numbers, func(n int32) bool { return slices.Contains(tc.taken, n) })
			if diff := gocmp.Diff(tc.want, slices.Sorted(maps.Keys(got)), cmpopts.EquateEmpty()); diff != "" || without != tc.without {
				t.Errorf("without %q, ports (-want +got):\n%s", without, diff)
			}
			again, _ := exposure.AllocateNodePorts(desired, tc.existing, tc.requested, numbers, func(n int32) bool { return slices.Contains(tc.taken, n) })
			if diff := gocmp.Diff(got, again); diff != "" {
				t.Errorf("the numbers are not the same again:\n%s", diff)
			}
			if got["dns-tcp"] != got["dns-udp"] || got["http"] != 0 && got["http"] == got["dns-tcp"] {
				t.Errorf("got %v, want one number for each number of a port", got)
			}
			for _, number := range got {
				if !numbers.Contains(int(number)) || slices.Contains(tc.taken, number) || tc.override != "" && number == 31000 {
					t.Errorf("got %v", got)
				}
			}
		})
	}
}
