package dnsendpoint

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// newListener returns a Listener with a name that leads to n addresses, each with as many ports.
func newListener(n int) *exposure.Listener {
	l, class := &listenersv1alpha1.Listener{Status: &listenersv1alpha1.ListenerStatus{}}, &listenersv1alpha1.ListenerClass{}
	class.Spec.Hostname = &listenersv1alpha1.Hostname{Template: "{listener}.{namespace}.example.com", Records: listenersv1alpha1.HostnameRecordsDNSEndpoint}
	l.Name, l.Namespace = "web", "shop"
	for i := range n {
		target := listenersv1alpha1.Target{Address: fmt.Sprintf("10.0.%d.%d", i/256, i%256), AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{}}
		for j := range n {
			target.Ports[fmt.Sprint("p", j)] = int32(j + 30000)
		}
		target.Advertised = listenersv1alpha1.IngressAddress{Address: "web.shop.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: target.Ports}
		l.Status.Targets = append(l.Status.Targets, target)
	}
	return &exposure.Listener{Listener: l, Class: class}
}

// TestWrittenDNSEndpoint compares with a golden file, which the test of the policies that confine the operator reads.
func TestWrittenDNSEndpoint(t *testing.T) {
	l := newListener(1)
	l.Namespace, l.Name, l.UID = "default", "shop", "uid"
	l.Status.Targets[0].Advertised.Address = "shop.default.example.com"
	golden.Compare(t, "dnsendpoint", desiredFor(l))
}

func TestDNSEndpointsCostLinearTime(t *testing.T) {
	growth.CheckLinear(t, map[string]growth.Work{
		"DNSEndpoint: addresses and their ports": {Size: 30, Product: true, Do: func(n int) {
			kept, err := trim(desiredFor(newListener(n)))
			if err != nil {
				panic(err)
			}
			read(kept.(*unstructured.Unstructured))
		}},
	}, ".", "github.com/listener-operator/listener-operator/internal/records")
}

// Editors of a namespace can write a DNSEndpoint of any size in the place of the operator's.
func TestLargeDNSEndpointsCostNoMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		size int
		own  bool
		want bool
	}{"of the operator": {10, true, true}, "of others": {10, false, false}, "too large": {maxSize, true, false}} {
		endpoint := apply.Object(names.KindDNSEndpoint, types.NamespacedName{Namespace: "shop", Name: "web"})
		endpoint.Object["spec"] = map[string]any{"endpoints": []any{map[string]any{"dnsName": strings.Repeat("x", tc.size)}}}
		endpoint.SetAnnotations(map[string]string{"a": "b"})
		if tc.own {
			exposure.SetOwner(endpoint, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
		}
		o, err := trim(endpoint)
		check.Must(t, err)
		kept := o.(*unstructured.Unstructured)
		if _, has := kept.Object["spec"]; has != tc.want || len(kept.GetAnnotations()) > 0 {
			t.Errorf("the spec of a DNSEndpoint %s is kept: %v", name, has)
		}
	}
}
