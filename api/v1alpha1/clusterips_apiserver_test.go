package v1alpha1_test

import (
	"fmt"
	"testing"
)

func TestInvalidClusterIPsAreRejectedWithTheCause(t *testing.T) {
	const ip = "serviceType: ClusterIP, preferredAddressType: IP"
	with := func(class, cidrs string) string { return fmt.Sprintf("{%s, clusterIPs: {cidrs: %s}}", class, cidrs) }
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"a range":                {spec: with(ip, "[10.97.0.0/24]")},
		"ranges of two families": {spec: with(ip+", ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]", `[10.97.0.0/24, "fd00::/64"]`)},
		"of the family":          {spec: with(ip+", ipFamilies: [IPv6]", `["fd00::/64"]`)},
		"an advertised address":  {spec: with(ip+", advertise: {addressTemplate: edge.example.com, portTemplate: \"443\"}", "[10.97.0.0/24]")},
		"none":                   {spec: with(ip, "[]"), want: "spec.clusterIPs.cidrs"},
		"too many":               {spec: with(ip, "[10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, 10.0.5.0/24, 10.0.6.0/24, 10.0.7.0/24, 10.0.8.0/24]"), want: "Too many"},
		"an address":             {spec: with(ip, "[10.97.0.1]"), want: "must be a range of IP addresses"},
		"an address of a range":  {spec: with(ip, "[10.97.0.1/24]"), want: "each range must begin with the first address of its prefix"},
		"host names":             {spec: with("serviceType: ClusterIP", "[10.97.0.0/24]"), want: "clusterIPs needs preferredAddressType IP"},
		"node ports":             {spec: with("serviceType: NodePort, preferredAddressType: IP", "[10.97.0.0/24]"), want: "clusterIPs needs serviceType ClusterIP"},
		"a load balancer":        {spec: with("serviceType: LoadBalancer, preferredAddressType: IP", "[10.97.0.0/24]"), want: "clusterIPs needs serviceType ClusterIP"},
		"host ports":             {spec: with(ip+", hostPort: {}", "[10.97.0.0/24]"), want: "clusterIPs needs serviceType ClusterIP, without route"},
		"a range of another family": {
			spec: with(ip+", ipFamilies: [IPv6]", "[10.97.0.0/24]"), want: "clusterIPs.cidrs needs a range of each of ipFamilies",
		},
		"two families, and ranges of one": {
			spec: with(ip+", ipFamilyPolicy: PreferDualStack", "[10.97.0.0/24]"), want: "with two IP families, clusterIPs.cidrs needs a range of each",
		},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, tc.spec, tc.want) })
	}
}
