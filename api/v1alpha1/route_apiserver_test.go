package v1alpha1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestInvalidRouteExposureIsRejectedWithTheCause(t *testing.T) {
	long := strings.Repeat("a", 254)
	for name, tc := range map[string]struct {
		serviceType, route string
		want               string // part of the message; "" means that the class is valid
	}{
		"defaults":                               {route: `{}`},
		"all fields for edge":                    {route: `{termination: edge, insecureEdgeTerminationPolicy: Allow, certificateSecretName: a, hostTemplate: "{listener}.a", wildcardPolicy: Subdomain}`},
		"all fields for reencrypt":               {route: `{termination: reencrypt, insecureEdgeTerminationPolicy: Redirect, certificateSecretName: a, destinationCACertificate: b}`},
		"all fields for passthrough":             {route: `{insecureEdgeTerminationPolicy: Redirect, subdomainTemplate: "{port}-{podIndex}", ports: [a], routers: [b], labels: {a: b}, annotations: {a: b}}`},
		"every placeholder":                      {route: `{hostTemplate: "{listener}{port}{namespace}{className}{podName}{podIndex}.a-1"}`},
		"with node ports":                        {serviceType: "NodePort", route: `{}`, want: "route needs serviceType ClusterIP"},
		"with a load balancer":                   {serviceType: "LoadBalancer", route: `{}`, want: "route needs serviceType ClusterIP"},
		"unknown termination":                    {route: `{termination: ssh}`, want: "Unsupported value"},
		"unknown insecure policy":                {route: `{insecureEdgeTerminationPolicy: Maybe}`, want: "Unsupported value"},
		"unknown wildcard policy":                {route: `{wildcardPolicy: All}`, want: "Unsupported value"},
		"both templates":                         {route: `{hostTemplate: a, subdomainTemplate: b}`, want: "exclude each other"},
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
		"port listed twice":                      {route: `{ports: [a, a]}`, want: "Duplicate value"},
		"router listed twice":                    {route: `{routers: [a, a]}`, want: "Duplicate value"},
		"empty port name":                        {route: `{ports: [""]}`, want: "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.serviceType == "" {
				tc.serviceType = "ClusterIP"
			}
			o := object(t, "", `{kind: ListenerClass, spec: {serviceType: `+tc.serviceType+`, route: `+tc.route+`}}`)
			err := apiserver.Client(t).Create(t.Context(), o)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("rejected: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an Invalid error with %q", err, tc.want)
			}
		})
	}
}
