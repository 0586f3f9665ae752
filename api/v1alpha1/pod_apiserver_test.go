package v1alpha1_test

import "testing"

func TestInvalidPodExposureIsRejectedWithTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"alone":                {spec: `{serviceType: ClusterIP, pod: {}}`},
		"with a name":          {spec: `{serviceType: ClusterIP, pod: {}, hostname: {template: "{podName}.{namespace}.example.com"}}`},
		"with allowed clients": {spec: `{serviceType: ClusterIP, pod: {}, allowedClients: [198.51.100.0/24]}`},
		"with host names":      {spec: `{serviceType: ClusterIP, pod: {}, preferredAddressType: Hostname}`},
		"with IP addresses":    {spec: `{serviceType: ClusterIP, pod: {}, preferredAddressType: IP}`, want: "a Pod has its files before it has an IP address"},
		"with another address": {spec: `{serviceType: ClusterIP, pod: {}, advertise: {addressTemplate: edge.example.com}}`, want: "remove one of them"},
		"with addresses of nodes": {
			spec: `{serviceType: ClusterIP, pod: {}, nodeAddresses: {types: [ExternalIP]}}`, want: "nodeAddresses needs serviceType NodePort",
		},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, tc.spec, tc.want) })
	}
}
