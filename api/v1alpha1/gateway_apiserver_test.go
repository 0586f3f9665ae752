package v1alpha1_test

import "testing"

func TestInvalidGatewayExposureIsRejectedWithTheCause(t *testing.T) {
	const (
		parent = `parentRefs: [{namespace: infra, name: edge}]`
		host   = `hostTemplate: "{podName}.{namespace}.a"`
	)
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"by host":                 {spec: `{serviceType: ClusterIP, gateway: {kind: TLSRoute, ` + parent + `, ` + host + `}}`},
		"by port, and everything": {spec: `{serviceType: ClusterIP, ports: [dns], gateway: {kind: UDPRoute, parentRefs: [{namespace: a, name: b, sectionName: c, port: 53}]}}`},
		"with a range of ports":   {spec: `{serviceType: ClusterIP, gateway: {kind: TCPRoute, portRange: 20000-20999, ` + parent + `}}`},
		"range of shared ports":   {spec: `{serviceType: ClusterIP, gateway: {kind: TLSRoute, portRange: 20000-20999, ` + parent + `, ` + host + `}}`, want: "portRange needs kind TCPRoute or UDPRoute"},
		"range the wrong way":     {spec: `{serviceType: ClusterIP, gateway: {kind: UDPRoute, portRange: 20999-20000, ` + parent + `}}`, want: "must be two port numbers, the lower one first, such as 20000-20999"},
		"range of no ports":       {spec: `{serviceType: ClusterIP, gateway: {kind: UDPRoute, portRange: 65000-65536, ` + parent + `}}`, want: "must be two port numbers, the lower one first, such as 20000-20999"},
		"range of a listener":     {spec: `{serviceType: ClusterIP, gateway: {kind: UDPRoute, portRange: 20000-20999, parentRefs: [{namespace: a, name: b, sectionName: c}]}}`, want: "remove sectionName and port"},
		"range of a port":         {spec: `{serviceType: ClusterIP, gateway: {kind: UDPRoute, portRange: 20000-20999, parentRefs: [{namespace: a, name: b, port: 53}]}}`, want: "remove sectionName and port"},
		"with a name":             {spec: `{serviceType: ClusterIP, hostname: {template: "{listener}.{namespace}.a"}, gateway: {kind: TCPRoute, ` + parent + `}}`, want: "not published with route, ingress or gateway"},
		"no host":                 {spec: `{serviceType: ClusterIP, gateway: {kind: HTTPRoute, ` + parent + `}}`, want: "TLSRoute and HTTPRoute need a hostTemplate"},
		"host without effect":     {spec: `{serviceType: ClusterIP, gateway: {kind: TCPRoute, ` + parent + `, ` + host + `}}`, want: "TCPRoute and UDPRoute have none"},
		"ambiguous host":          {spec: `{serviceType: ClusterIP, gateway: {kind: TLSRoute, ` + parent + `, hostTemplate: "{podName}-{namespace}"}}`, want: "different namespaces or Pods the same host"},
		"no Gateway":              {spec: `{serviceType: ClusterIP, gateway: {kind: TCPRoute, parentRefs: []}}`, want: "should have at least 1 items"},
		"no namespace":            {spec: `{serviceType: ClusterIP, gateway: {kind: TCPRoute, parentRefs: [{name: a}]}}`, want: "namespace: Required value"},
		"unknown kind":            {spec: `{serviceType: ClusterIP, gateway: {kind: GRPCRoute, ` + parent + `}}`, want: "Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, tc.spec, tc.want) })
	}
}
