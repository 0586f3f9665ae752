package v1alpha1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestInvalidChoiceOfAddressesIsRejectedWithTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"types":             {spec: `{serviceType: NodePort, nodeAddresses: {types: [ExternalDNS, InternalIP]}}`},
		"all types":         {spec: `{serviceType: NodePort, nodeAddresses: {types: [Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS]}}`},
		"ranges":            {spec: `{serviceType: NodePort, nodeAddresses: {cidrs: [192.0.2.0/24, "2001:db8::/32"]}}`},
		"with host ports":   {spec: `{serviceType: ClusterIP, hostPort: {}, nodeAddresses: {types: [ExternalIP]}}`},
		"preferred default": {spec: `{serviceType: NodePort, preferredAddressType: HostnameConservative, nodeAddresses: {types: [ExternalIP]}}`},
		"ranges and preference": {
			spec: `{serviceType: NodePort, preferredAddressType: Hostname, nodeAddresses: {cidrs: [192.0.2.0/24]}}`,
		},

		"empty":           {spec: `{serviceType: NodePort, nodeAddresses: {}}`, want: "at least 1 propert"},
		"no type":         {spec: `{serviceType: NodePort, nodeAddresses: {types: []}}`, want: "at least 1 item"},
		"unknown type":    {spec: `{serviceType: NodePort, nodeAddresses: {types: [PublicIP]}}`, want: "Unsupported value"},
		"type twice":      {spec: `{serviceType: NodePort, nodeAddresses: {types: [ExternalIP, ExternalIP]}}`, want: "Duplicate value"},
		"no range":        {spec: `{serviceType: NodePort, nodeAddresses: {cidrs: [192.0.2.1]}}`, want: "must be a range of IP addresses"},
		"without nodes":   {spec: `{serviceType: LoadBalancer, nodeAddresses: {types: [ExternalIP]}}`, want: "nodeAddresses needs serviceType NodePort"},
		"with a Route":    {spec: `{serviceType: ClusterIP, route: {}, nodeAddresses: {types: [ExternalIP]}}`, want: "nodeAddresses needs serviceType NodePort"},
		"with preference": {spec: `{serviceType: NodePort, preferredAddressType: IP, nodeAddresses: {types: [Hostname]}}`, want: "remove preferredAddressType"},

		"ports":               {spec: `{serviceType: NodePort, ports: [https, http]}`},
		"ports with Routes":   {spec: `{serviceType: ClusterIP, route: {}, ports: [https]}`},
		"ports of the Routes": {spec: `{serviceType: ClusterIP, route: {ports: [https]}}`},
		"no ports":            {spec: `{serviceType: NodePort, ports: []}`, want: "at least 1 item"},
		"a port twice":        {spec: `{serviceType: NodePort, ports: [a, a]}`, want: "Duplicate value"},
		"ports twice":         {spec: `{serviceType: ClusterIP, ports: [a], route: {ports: [a]}}`, want: "remove route.ports"},

		"node ports":                    {spec: `{serviceType: NodePort, nodePorts: {range: 31000-31999}}`},
		"a limit of node ports":         {spec: `{serviceType: NodePort, nodePorts: {range: 31000-31999, maxPortsPerNamespace: 1}}`},
		"a limit without a range":       {spec: `{serviceType: NodePort, nodePorts: {target: Same, maxPortsPerNamespace: 1}}`, want: "maxPortsPerNamespace has no effect without range"},
		"a limit of no node ports":      {spec: `{serviceType: NodePort, nodePorts: {range: 31000-31999, maxPortsPerNamespace: 0}}`, want: "greater than or equal to 1"},
		"a limit of shared ports":       {spec: `{serviceType: LoadBalancer, loadBalancer: {sharing: {portRange: 9000-9999, maxPortsPerNamespace: 5}}}`},
		"a single node port":            {spec: `{serviceType: NodePort, nodePorts: {range: 31000-31000}}`},
		"node ports without settings":   {spec: `{serviceType: NodePort, nodePorts: {}}`, want: "nodePorts has no effect without range or target"},
		"a target":                      {spec: `{serviceType: NodePort, nodePorts: {target: Same}}`},
		"a range and a target":          {spec: `{serviceType: NodePort, nodePorts: {range: 31000-31999, target: Same}}`},
		"an unknown target":             {spec: `{serviceType: NodePort, nodePorts: {target: Port}}`, want: `supported values: "Same"`},
		"a target of cluster IPs":       {spec: `{serviceType: ClusterIP, nodePorts: {target: Same}}`, want: "nodePorts needs serviceType NodePort"},
		"a number":                      {spec: `{serviceType: NodePort, nodePorts: {range: "31000"}}`, want: "must be two port numbers"},
		"a range that ends too early":   {spec: `{serviceType: NodePort, nodePorts: {range: 31001-31000}}`, want: "must be two port numbers"},
		"a range that ends too late":    {spec: `{serviceType: NodePort, nodePorts: {range: 31000-65536}}`, want: "must be two port numbers"},
		"node ports of a load balancer": {spec: `{serviceType: LoadBalancer, nodePorts: {range: 31000-31999}}`, want: "nodePorts needs serviceType NodePort"},

		"a shared address":               {spec: `{serviceType: LoadBalancer, loadBalancer: {sharing: {portRange: 9000-9999}}}`},
		"a shared address, Cluster":      {spec: `{serviceType: LoadBalancer, serviceExternalTrafficPolicy: Cluster, loadBalancer: {sharing: {portRange: 1-65535}}}`},
		"a shared address, null":         {spec: `{serviceType: LoadBalancer, serviceExternalTrafficPolicy: null, loadBalancer: {sharing: {portRange: 9000-9000}}}`},
		"a shared address, Local":        {spec: `{serviceType: LoadBalancer, serviceExternalTrafficPolicy: Local, loadBalancer: {sharing: {portRange: 9000-9999}}}`, want: "remove serviceExternalTrafficPolicy"},
		"a load balancer of node ports":  {spec: `{serviceType: NodePort, loadBalancer: {sharing: {portRange: 9000-9999}}}`, want: "loadBalancer needs serviceType LoadBalancer"},
		"a load balancer of cluster IPs": {spec: `{serviceType: ClusterIP, route: {}, loadBalancer: {sharing: {portRange: 9000-9999}}}`, want: "loadBalancer needs serviceType LoadBalancer"},
		"a load balancer alone":          {spec: `{serviceType: LoadBalancer, loadBalancer: {}}`, want: "spec.loadBalancer.sharing: Required value"},
		"a shared address without range": {spec: `{serviceType: LoadBalancer, loadBalancer: {sharing: {}}}`, want: "spec.loadBalancer.sharing.portRange: Required value"},
		"a shared address and one port":  {spec: `{serviceType: LoadBalancer, loadBalancer: {sharing: {portRange: "9000"}}}`, want: "must be two port numbers"},

		"a name":                                  {spec: `{serviceType: LoadBalancer, hostname: {template: "{podName}.{namespace}.example.com"}}`},
		"a name of cluster IPs":                   {spec: `{serviceType: ClusterIP, hostname: {template: "{listener}-{namespace}-{hash}.example.com"}}`},
		"a name and a shared address":             {spec: `{serviceType: LoadBalancer, hostname: {template: "{listener}.{namespace}.example.com"}, loadBalancer: {sharing: {portRange: 9000-9999}}}`},
		"an ambiguous name":                       {spec: `{serviceType: LoadBalancer, hostname: {template: "{podName}-{namespace}.example.com"}}`, want: "may give Listeners of different namespaces or Pods the same host"},
		"a name for each port":                    {spec: `{serviceType: LoadBalancer, hostname: {template: "{port}.{listener}.{namespace}.example.com"}}`, want: "a Listener has one name for all its ports"},
		"a name without a template":               {spec: `{serviceType: LoadBalancer, hostname: {}}`, want: "spec.hostname.template: Required value"},
		"a name of nodes by an annotation":        {spec: `{serviceType: NodePort, hostname: {template: "{listener}.{namespace}.example.com"}}`, want: "hostname needs hostname.records DNSEndpoint or None"},
		"a name of nodes":                         {spec: `{serviceType: NodePort, hostname: {template: "{listener}.{namespace}.example.com", records: DNSEndpoint, ttlSeconds: 5}}`},
		"a name of host ports":                    {spec: `{serviceType: ClusterIP, hostPort: {}, hostname: {template: "{listener}.{namespace}.example.com", records: None}}`},
		"a name that nobody may remember":         {spec: `{serviceType: NodePort, hostname: {template: "{listener}.{namespace}.example.com", records: None, ttlSeconds: 0}}`, want: "spec.hostname.ttlSeconds: Invalid value: 0: spec.hostname.ttlSeconds in body should be greater than or equal to 1"},
		"a TTL by an annotation":                  {spec: `{serviceType: LoadBalancer, hostname: {template: "{listener}.{namespace}.example.com", ttlSeconds: 5}}`, want: "ttlSeconds needs records DNSEndpoint or None"},
		"a name in place of advertised addresses": {spec: `{serviceType: NodePort, advertise: {portTemplate: "443"}, hostname: {template: "{listener}.{namespace}.example.com", records: None}}`, want: "remove one of them"},
		"a name beside advertised addresses":      {spec: `{serviceType: LoadBalancer, advertise: {portTemplate: "443"}, hostname: {template: "{listener}.{namespace}.example.com"}}`},
		"a name of Pods in a DNSEndpoint":         {spec: `{serviceType: ClusterIP, pod: {}, hostname: {template: "{listener}.{namespace}.example.com", records: DNSEndpoint}}`, want: "use hostname.records Annotation with pod"},
		"a name and Routes":                       {spec: `{serviceType: ClusterIP, route: {}, hostname: {template: "{listener}.{namespace}.example.com"}}`, want: "remove hostname"},
		"a name and host ports":                   {spec: `{serviceType: ClusterIP, hostPort: {}, hostname: {template: "{listener}.{namespace}.example.com"}}`, want: "hostname needs hostname.records DNSEndpoint or None"},
		"two names": {
			spec: `{serviceType: LoadBalancer, hostname: {template: "{listener}.{namespace}.example.com"}, serviceAnnotationTemplates: {external-dns.alpha.kubernetes.io/hostname: a}}`,
			want: "remove it from serviceAnnotationTemplates",
		},
		"two names for external-dns 0.22": {
			spec: `{serviceType: LoadBalancer, hostname: {template: "{listener}.{namespace}.example.com"}, serviceAnnotationTemplates: {external-dns.kubernetes.io/hostname: a}}`,
			want: "remove it from serviceAnnotationTemplates",
		},
		"annotations by templates":          {spec: `{serviceType: NodePort, serviceAnnotationTemplates: {example.com/owner: "{namespace}/{podName} ({hash})", example.com/empty: ""}}`},
		"annotations by unknown templates":  {spec: `{serviceType: NodePort, serviceAnnotationTemplates: {example.com/owner: "{pod}"}}`, want: "may hold braces only in the placeholders"},
		"annotations with other braces":     {spec: `{serviceType: NodePort, serviceAnnotationTemplates: {example.com/owner: '{"a": 1}'}}`, want: "use serviceAnnotations for text with other braces"},
		"annotations by templates of ports": {spec: `{serviceType: NodePort, serviceAnnotationTemplates: {example.com/owner: "{port}"}}`, want: "may hold braces only in the placeholders"},

		"clients of a load balancer":                {spec: `{serviceType: LoadBalancer, allowedClients: [192.0.2.0/24, "2001:db8::/32"]}`},
		"clients of node ports":                     {spec: `{serviceType: NodePort, serviceExternalTrafficPolicy: Local, allowedClients: [192.0.2.0/24]}`},
		"clients of host ports":                     {spec: `{serviceType: ClusterIP, hostPort: {}, allowedClients: [192.0.2.0/24]}`},
		"clients of Routes":                         {spec: `{serviceType: ClusterIP, route: {}, allowedClients: [192.0.2.0/24]}`},
		"clients that nodes replace":                {spec: `{serviceType: NodePort, allowedClients: [192.0.2.0/24]}`, want: "allowedClients can be enforced only with"},
		"clients that nodes replace, by the policy": {spec: `{serviceType: NodePort, serviceExternalTrafficPolicy: Cluster, allowedClients: [192.0.2.0/24]}`, want: "allowedClients can be enforced only with"},
		"clients that nodes replace, by no policy":  {spec: `{serviceType: NodePort, serviceExternalTrafficPolicy: null, allowedClients: [192.0.2.0/24]}`, want: "allowedClients can be enforced only with"},
		"clients of cluster IPs":                    {spec: `{serviceType: ClusterIP, allowedClients: [192.0.2.0/24]}`, want: "allowedClients can be enforced only with"},
		"clients of Gateways":                       {spec: `{serviceType: ClusterIP, gateway: {kind: TCPRoute, parentRefs: [{namespace: a, name: b}]}, allowedClients: [192.0.2.0/24]}`, want: "allowedClients can be enforced only with"},
		"no clients":                                {spec: `{serviceType: LoadBalancer, allowedClients: []}`, want: "at least 1 item"},
		"a client":                                  {spec: `{serviceType: LoadBalancer, allowedClients: [192.0.2.1]}`, want: "must be a range of IP addresses"},
		"clients twice":                             {spec: `{serviceType: LoadBalancer, allowedClients: [192.0.2.0/24, 192.0.2.0/24]}`, want: "Duplicate value"},
		"mapped clients":                            {spec: `{serviceType: LoadBalancer, allowedClients: ["::ffff:192.0.2.0/120"]}`, want: "must be a range of IP addresses"},

		"one family":          {spec: `{serviceType: NodePort, ipFamilies: [IPv6]}`},
		"two families":        {spec: `{serviceType: LoadBalancer, ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack}`},
		"policy alone":        {spec: `{serviceType: ClusterIP, ipFamilyPolicy: RequireDualStack}`},
		"family twice":        {spec: `{serviceType: NodePort, ipFamilies: [IPv4, IPv4], ipFamilyPolicy: PreferDualStack}`, want: "list each family once"},
		"two without policy":  {spec: `{serviceType: NodePort, ipFamilies: [IPv4, IPv6]}`, want: "two ipFamilies need ipFamilyPolicy"},
		"two in a single one": {spec: `{serviceType: NodePort, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}`, want: "two ipFamilies need ipFamilyPolicy"},
		"unknown family":      {spec: `{serviceType: NodePort, ipFamilies: [IPv5]}`, want: "Unsupported value"},
		"unknown policy":      {spec: `{serviceType: NodePort, ipFamilyPolicy: Both}`, want: "Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			err := apiserver.Client(t).Create(t.Context(), object(t, "", `{kind: ListenerClass, spec: `+tc.spec+`}`))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("rejected: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an Invalid error with %q", err, tc.want)
			}
		})
	}
}
