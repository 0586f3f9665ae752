package exposure_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

func TestClusterIPsAreAllocated(t *testing.T) {
	dual := func(spec *corev1ac.ServiceSpecApplyConfiguration) {
		spec.WithIPFamilyPolicy(corev1.IPFamilyPolicyPreferDualStack)
	}
	for name, tc := range map[string]struct {
		cidrs  []listenersv1alpha1.CIDR
		change func(*corev1ac.ServiceSpecApplyConfiguration)
		last   []string
		taken  []string
		want   []string // or nothing if there is none
		waits  bool     // others have all
	}{
		"the only one": {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32"}, want: []string{"10.97.0.4"}},
		"not that of the network, nor the broadcast address": {
			cidrs: []listenersv1alpha1.CIDR{"10.97.0.0/30"}, taken: []string{"10.97.0.1"}, want: []string{"10.97.0.2"},
		},
		"none if all are taken":                    {cidrs: []listenersv1alpha1.CIDR{"10.97.0.0/30"}, taken: []string{"10.97.0.1", "10.97.0.2"}, waits: true},
		"of the next range if all are taken":       {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32", "10.98.0.4/32"}, taken: []string{"10.97.0.4"}, want: []string{"10.98.0.4"}},
		"the last one, of any range":               {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32", "10.98.0.0/24"}, last: []string{"10.98.0.77"}, want: []string{"10.98.0.77"}},
		"not the last one if another one has it":   {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/31"}, last: []string{"10.97.0.4"}, taken: []string{"10.97.0.4"}, want: []string{"10.97.0.5"}},
		"not the last one if no range contains it": {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32"}, last: []string{"10.96.0.1", "no address"}, want: []string{"10.97.0.4"}},
		"of the family of the first range":         {cidrs: []listenersv1alpha1.CIDR{"fd00::4/128", "10.97.0.4/32"}, want: []string{"fd00::4"}},
		"of the family of the Service": {
			cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32", "fd00::4/128"}, want: []string{"fd00::4"},
			change: func(spec *corev1ac.ServiceSpecApplyConfiguration) { spec.WithIPFamilies(corev1.IPv6Protocol) },
		},
		"of two families":                  {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32", "fd00::4/128"}, change: dual, want: []string{"10.97.0.4", "fd00::4"}},
		"of two families, IPv6 first":      {cidrs: []listenersv1alpha1.CIDR{"fd00::4/128", "10.97.0.4/32"}, change: dual, want: []string{"fd00::4", "10.97.0.4"}},
		"none without a range of a family": {cidrs: []listenersv1alpha1.CIDR{"10.97.0.4/32"}, change: dual},
	} {
		t.Run(name, func(t *testing.T) {
			class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "routed"}}
			class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: tc.cidrs}
			service := corev1ac.Service("web", "shop").WithSpec(corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP))
			if tc.change != nil {
				tc.change(service.Spec)
			}
			got, refusal := exposure.AllocateClusterIPs(class, service, tc.last, func(a netip.Addr) bool { return slices.Contains(tc.taken, a.String()) })
			if diff := cmp.Diff(tc.want, got); diff != "" || (refusal == nil) != (tc.want != nil) {
				t.Errorf("cluster IPs (-want +got):\n%srefusal: %v", diff, refusal)
			}
			if refusal != nil && refusal.Reason != listenersv1alpha1.ReasonClusterIPsExhausted {
				t.Errorf("refused as %s", refusal.Reason)
			}
			want := listenersv1alpha1.WaitingFor{Kind: listenersv1alpha1.WaitingKindClusterIP}
			if waits := refusal != nil && refusal.WaitingFor != nil; waits != tc.waits || waits && *refusal.WaitingFor != want {
				t.Errorf("refused: %+v", refusal)
			}
		})
	}
}

// Each address is used once, also if the range is larger than what is tried.
func TestAllClusterIPsOfARangeAreUsed(t *testing.T) {
	for cidr, want := range map[listenersv1alpha1.CIDR]int{"10.97.1.0/24": 254, "fd00::/64": 1<<16 - 2} {
		class := &listenersv1alpha1.ListenerClass{}
		class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{cidr}}
		service := corev1ac.Service("web", "shop").WithSpec(corev1ac.ServiceSpec())
		tried := map[netip.Addr]bool{}
		_, refusal := exposure.AllocateClusterIPs(class, service, nil, func(a netip.Addr) bool {
			tried[a] = netip.MustParsePrefix(string(cidr)).Contains(a)
			return true
		})
		if refusal == nil || len(tried) != want {
			t.Errorf("%s: %d addresses are tried, want %d; refusal: %v", cidr, len(tried), want, refusal)
		}
		for address, contained := range tried {
			if !contained {
				t.Errorf("%s does not contain %s", cidr, address)
			}
		}
	}
}

func TestOverridesChooseClusterIPs(t *testing.T) {
	class := &listenersv1alpha1.ListenerClass{}
	class.Spec.ClusterIPs = &listenersv1alpha1.ClusterIPs{CIDRs: []listenersv1alpha1.CIDR{"10.97.0.0/24"}}
	for name, tc := range map[string]struct {
		spec *corev1ac.ServiceSpecApplyConfiguration
		want bool
	}{
		"nothing":      {corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP), true},
		"a cluster IP": {corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP).WithClusterIP("10.96.0.7"), false},
		"cluster IPs":  {corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP).WithClusterIPs("10.96.0.7"), false},
		"the type":     {corev1ac.ServiceSpec().WithType(corev1.ServiceTypeNodePort), false},
	} {
		if got := exposure.RequestsClusterIPs(class, corev1ac.Service("web", "shop").WithSpec(tc.spec)); got != tc.want {
			t.Errorf("overrides set %s: %t", name, got)
		}
	}
	service := corev1ac.Service("web", "shop").WithSpec(corev1ac.ServiceSpec())
	if got := exposure.WithClusterIPs(service, []string{"10.97.0.4", "fd00::4"}).Spec; ptr.Deref(got.ClusterIP, "") != "10.97.0.4" || len(got.ClusterIPs) != 2 {
		t.Errorf("the Service requests %v", got.ClusterIPs)
	}
	if service.Spec.ClusterIP != nil {
		t.Error("the Service itself has changed")
	}
}
