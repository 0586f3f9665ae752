package v1alpha1_test

import "testing"

func TestInvalidAdvertisementIsRejectedWithTheCause(t *testing.T) {
	const ambiguous, character, expression = "may give namespaces addresses of each other", "must be an IP address, or lower-case letters", "must be numbers of up to five digits"
	for name, tc := range map[string]struct {
		serviceType, advertise string
		want                   string // part of the message; "" means that the class is valid
	}{
		"an address and a port":           {"NodePort", `{addressTemplate: kafka.example.com, portTemplate: "{podIndex}+9000"}`, ""},
		"an IPv4 address":                 {"NodePort", `{addressTemplate: 192.0.2.1}`, ""},
		"an IPv6 address":                 {"NodePort", `{addressTemplate: "2001:db8::1"}`, ""},
		"an IP address for each Pod":      {"NodePort", `{addressTemplate: "192.0.2.{podIndex}"}`, ""},
		"a name for each Pod":             {"ClusterIP", `{addressTemplate: "{podName}.{namespace}.example.com", portTemplate: "443"}`, ""},
		"a name with a hash":              {"ClusterIP", `{addressTemplate: "{podName}-{namespace}-{hash}.example.com"}`, ""},
		"a name for each port":            {"ClusterIP", `{addressTemplate: "{port}.{listener}.{namespace}.example.com"}`, ""},
		"a name for each node":            {"NodePort", `{addressTemplate: "{nodeName}.example.com"}`, ""},
		"a name for each address":         {"LoadBalancer", `{addressTemplate: "{address}.example.com"}`, ""},
		"an offset of node ports":         {"NodePort", `{portTemplate: "{nodePort}-30000+{podIndex}"}`, ""},
		"node ports of a load balancer":   {"LoadBalancer", `{portTemplate: "{nodePort}"}`, ""},
		"nothing":                         {"NodePort", `{}`, "should have at least 1 properties"},
		"an unknown placeholder":          {"NodePort", `{addressTemplate: "{pod}.example.com"}`, character},
		"an address with a port":          {"NodePort", `{addressTemplate: "kafka.example.com:443"}`, character},
		"a name that users choose":        {"NodePort", `{addressTemplate: "{podName}.example.com"}`, ambiguous},
		"a port name that users choose":   {"NodePort", `{addressTemplate: "{port}.example.com"}`, ambiguous},
		"a namespace beside another name": {"NodePort", `{addressTemplate: "{podName}-{namespace}.example.com"}`, ambiguous},
		"node names without nodes":        {"LoadBalancer", `{addressTemplate: "{nodeName}.example.com"}`, "{nodeName} in advertise.addressTemplate needs serviceType NodePort"},
		"node ports of a cluster IP":      {"ClusterIP", `{portTemplate: "{nodePort}"}`, "{nodePort} in advertise.portTemplate needs serviceType NodePort or LoadBalancer"},
		"another operator":                {"NodePort", `{portTemplate: "{podIndex}*2"}`, expression},
		"spaces":                          {"NodePort", `{portTemplate: "{podIndex} + 9000"}`, expression},
		"an operator at the end":          {"NodePort", `{portTemplate: "9000+"}`, expression},
		"the name of a port":              {"NodePort", `{portTemplate: "{port}"}`, expression},
		"a number that is too long":       {"NodePort", `{portTemplate: "100000"}`, expression},
	} {
		t.Run(name, func(t *testing.T) {
			checkClass(t, `{serviceType: `+tc.serviceType+`, advertise: `+tc.advertise+`}`, tc.want)
		})
	}
	t.Run("node names of host ports", func(t *testing.T) {
		checkClass(t, `{serviceType: ClusterIP, hostPort: {}, advertise: {addressTemplate: "{nodeName}.example.com"}}`, "")
	})
}
