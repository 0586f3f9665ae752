package v1alpha1_test

import (
	"strings"
	"testing"
)

func TestInvalidRouteExposureIsRejectedWithTheCause(t *testing.T) {
	long := strings.Repeat("a", 254)
	for name, tc := range map[string]struct {
		route string
		want  string // part of the message; "" means that the class is valid
	}{
		"defaults":                               {route: `{}`},
		"all fields for edge":                    {route: `{termination: edge, insecureEdgeTerminationPolicy: Allow, certificateSecretName: a, hostTemplate: "{listener}.{namespace}.a", wildcardPolicy: Subdomain}`},
		"all fields for reencrypt":               {route: `{termination: reencrypt, insecureEdgeTerminationPolicy: Redirect, certificateSecretName: a, destinationCACertificate: b}`},
		"all fields for passthrough":             {route: `{insecureEdgeTerminationPolicy: Redirect, subdomainTemplate: "{port}-{podIndex}.{podName}.{namespace}", ports: [a], routers: [b], labels: {a: b}, annotations: {a: b}}`},
		"every placeholder":                      {route: `{hostTemplate: "{listener}{port}{namespace}{className}{podName}{podIndex}{hash}.a-1"}`},
		"unknown termination":                    {route: `{termination: ssh}`, want: "Unsupported value"},
		"unknown insecure policy":                {route: `{insecureEdgeTerminationPolicy: Maybe}`, want: "Unsupported value"},
		"unknown wildcard policy":                {route: `{wildcardPolicy: All}`, want: "Unsupported value"},
		"both templates":                         {route: `{hostTemplate: "{hash}", subdomainTemplate: "{hash}"}`, want: "exclude each other"},
		"unknown placeholder":                    {route: `{hostTemplate: "{pod}.a"}`, want: "the placeholders {listener}, {port}"},
		"unknown placeholder in a subdomain":     {route: `{subdomainTemplate: "{Listener}"}`, want: "the placeholders {listener}, {port}"},
		"unterminated placeholder":               {route: `{hostTemplate: "{listener.a"}`, want: "the placeholders {listener}, {port}"},
		"upper-case letters":                     {route: `{hostTemplate: "A.b"}`, want: "lower-case letters"},
		"empty template":                         {route: `{hostTemplate: ""}`, want: "at least 1"},
		"template that is too long":              {route: `{hostTemplate: ` + long + `}`, want: "Too long"},
		"insecure policy without TLS":            {route: `{termination: none, insecureEdgeTerminationPolicy: None}`, want: "for terminations with TLS"},
		"insecure policy Allow with passthrough": {route: `{insecureEdgeTerminationPolicy: Allow}`, want: "does not work with passthrough"},
		"certificate with passthrough":           {route: `{certificateSecretName: a}`, want: "certificateSecretName is for edge and reencrypt"},
		"certificate without TLS":                {route: `{termination: none, certificateSecretName: a}`, want: "certificateSecretName is for edge and reencrypt"},
		"destination authority with edge":        {route: `{termination: edge, destinationCACertificate: a}`, want: "destinationCACertificate is for reencrypt"},
		"destination authority with passthrough": {route: `{destinationCACertificate: a}`, want: "destinationCACertificate is for reencrypt"},
		"wildcard without a host template":       {route: `{wildcardPolicy: Subdomain}`, want: "wildcardPolicy Subdomain needs a hostTemplate"},
		"wildcard with a subdomain template":     {route: `{wildcardPolicy: Subdomain, subdomainTemplate: a}`, want: "wildcardPolicy Subdomain needs a hostTemplate"},
		"Listener and namespace alone":           {route: `{hostTemplate: "{port}-{podIndex}.x-{listener}-y.{namespace}.a"}`},
		"Pod and namespace alone":                {route: `{subdomainTemplate: "{namespace}.{podName}"}`},
		"Pod and namespace joined by a hyphen":   {route: `{hostTemplate: "{podName}-{namespace}.a"}`, want: "use {namespace}, and {listener} or {podName}, each as the only placeholder"},
		"no namespace":                           {route: `{hostTemplate: "{listener}.a"}`, want: "different namespaces or Pods the same host"},
		"neither Listener nor Pod":               {route: `{subdomainTemplate: "www-{podIndex}.{namespace}"}`, want: "different namespaces or Pods the same host"},
		"Listener and port joined by a hyphen":   {route: `{subdomainTemplate: "{listener}-{port}.{namespace}"}`, want: "different namespaces or Pods the same host"},
		"hash at the end of a label":             {route: `{subdomainTemplate: "{podName}-{namespace}-{hash}"}`},
		"hash in the middle of a label":          {route: `{subdomainTemplate: "{podName}-{hash}-{namespace}"}`, want: "end a part between two dots with {hash}"},
		"wildcard domain of all namespaces":      {route: `{hostTemplate: "{podName}-{hash}.a.b", wildcardPolicy: Subdomain}`, want: "which namespaces must not share"},
		"wildcard domain of a namespace":         {route: `{hostTemplate: "{port}.{listener}.x-{namespace}.a", wildcardPolicy: Subdomain}`},
		"wildcard domain with a hash":            {route: `{hostTemplate: "www.a-{hash}.a", wildcardPolicy: Subdomain}`},
		"port listed twice":                      {route: `{ports: [a, a]}`, want: "Duplicate value"},
		"router listed twice":                    {route: `{routers: [a, a]}`, want: "Duplicate value"},
		"empty port name":                        {route: `{ports: [""]}`, want: "at least 1"},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, `{serviceType: ClusterIP, route: `+tc.route+`}`, tc.want) })
	}
}
