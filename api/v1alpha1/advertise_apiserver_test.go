package v1alpha1_test

import "testing"

func TestInvalidAdvertisementIsRejectedWithTheCause(t *testing.T) {
	const ambiguous, character, expression = "may give namespaces addresses of each other", "must be an IP address, or lower-case letters", "must be numbers of up to five digits"
	for name, tc := range map[string]struct {
		serviceType, advertise string
		want                   string // part of the message; "" means that the class is valid
	}{
		"an address and a port":           {serviceType: "NodePort", advertise: `{addressTemplate: kafka.example.com, portTemplate: "{podIndex}+9000"}`},
		"an IPv4 address":                 {serviceType: "NodePort", advertise: `{addressTemplate: 192.0.2.1}`},
		"an IPv6 address":                 {serviceType: "NodePort", advertise: `{addressTemplate: "2001:db8::1"}`},
		"an IP address for each Pod":      {serviceType: "NodePort", advertise: `{addressTemplate: "192.0.2.{podIndex}"}`},
		"a name for each Pod":             {serviceType: "ClusterIP", advertise: `{addressTemplate: "{podName}.{namespace}.example.com", portTemplate: "443"}`},
		"a name with a hash":              {serviceType: "ClusterIP", advertise: `{addressTemplate: "{podName}-{namespace}-{hash}.example.com"}`},
		"a name for each port":            {serviceType: "ClusterIP", advertise: `{addressTemplate: "{port}.{listener}.{namespace}.example.com"}`},
		"a name for each node":            {serviceType: "NodePort", advertise: `{addressTemplate: "{nodeName}.example.com"}`},
		"a name for each address":         {serviceType: "LoadBalancer", advertise: `{addressTemplate: "{address}.example.com"}`},
		"an offset of node ports":         {serviceType: "NodePort", advertise: `{portTemplate: "{nodePort}-30000+{podIndex}"}`},
		"node ports of a load balancer":   {serviceType: "LoadBalancer", advertise: `{portTemplate: "{nodePort}"}`},
		"nothing":                         {serviceType: "NodePort", advertise: `{}`, want: "should have at least 1 properties"},
		"an unknown placeholder":          {serviceType: "NodePort", advertise: `{addressTemplate: "{pod}.example.com"}`, want: character},
		"an address with a port":          {serviceType: "NodePort", advertise: `{addressTemplate: "kafka.example.com:443"}`, want: character},
		"a name that users choose":        {serviceType: "NodePort", advertise: `{addressTemplate: "{podName}.example.com"}`, want: ambiguous},
		"a port name that users choose":   {serviceType: "NodePort", advertise: `{addressTemplate: "{port}.example.com"}`, want: ambiguous},
		"a namespace beside another name": {serviceType: "NodePort", advertise: `{addressTemplate: "{podName}-{namespace}.example.com"}`, want: ambiguous},
		"node names without nodes": {serviceType: "LoadBalancer", advertise: `{addressTemplate: "{nodeName}.example.com"}`,
			want: "{nodeName} in advertise.addressTemplate needs serviceType NodePort"},
		"node ports of a cluster IP": {serviceType: "ClusterIP", advertise: `{portTemplate: "{nodePort}"}`,
			want: "{nodePort} in advertise.portTemplate needs serviceType NodePort or LoadBalancer"},
		"another operator":          {serviceType: "NodePort", advertise: `{portTemplate: "{podIndex}*2"}`, want: expression},
		"spaces":                    {serviceType: "NodePort", advertise: `{portTemplate: "{podIndex} + 9000"}`, want: expression},
		"an operator at the end":    {serviceType: "NodePort", advertise: `{portTemplate: "9000+"}`, want: expression},
		"the name of a port":        {serviceType: "NodePort", advertise: `{portTemplate: "{port}"}`, want: expression},
		"a number that is too long": {serviceType: "NodePort", advertise: `{portTemplate: "100000"}`, want: expression},
	} {
		t.Run(name, func(t *testing.T) {
			checkClass(t, `{serviceType: `+tc.serviceType+`, advertise: `+tc.advertise+`}`, tc.want)
		})
	}
	t.Run("node names of host ports", func(t *testing.T) {
		checkClass(t, `{serviceType: ClusterIP, hostPort: {}, advertise: {addressTemplate: "{nodeName}.example.com"}}`, "")
	})
}
