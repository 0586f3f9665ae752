package v1alpha1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestAPIServerRefusesRoutesThatCannotWorkAndSaysWhy(t *testing.T) {
	long := strings.Repeat("a", 254)
	for name, tc := range map[string]struct {
		serviceType, route string
		want               string // a part of the message; "" means that the class is fine
	}{
		"nothing but defaults":                  {route: `{}`},
		"everything for edge":                   {route: `{termination: edge, insecureEdgeTerminationPolicy: Allow, certificateSecretName: a, hostTemplate: "{listener}.a", wildcardPolicy: Subdomain}`},
		"everything for reencrypt":              {route: `{termination: reencrypt, insecureEdgeTerminationPolicy: Redirect, certificateSecretName: a, destinationCACertificate: b}`},
		"everything for passthrough":            {route: `{insecureEdgeTerminationPolicy: Redirect, subdomainTemplate: "{port}-{podIndex}", ports: [a], routers: [b], labels: {a: b}, annotations: {a: b}}`},
		"every placeholder":                     {route: `{hostTemplate: "{listener}{port}{namespace}{className}{podName}{podIndex}.a-1"}`},
		"with node ports":                       {serviceType: "NodePort", route: `{}`, want: "route needs serviceType ClusterIP"},
		"with a load balancer":                  {serviceType: "LoadBalancer", route: `{}`, want: "route needs serviceType ClusterIP"},
		"a new termination":                     {route: `{termination: ssh}`, want: "Unsupported value"},
		"a new policy":                          {route: `{insecureEdgeTerminationPolicy: Maybe}`, want: "Unsupported value"},
		"a new wildcard policy":                 {route: `{wildcardPolicy: All}`, want: "Unsupported value"},
		"both templates":                        {route: `{hostTemplate: a, subdomainTemplate: b}`, want: "exclude each other"},
		"an unknown placeholder":                {route: `{hostTemplate: "{pod}.a"}`, want: "the placeholders {listener}, {port}"},
		"an unknown placeholder in a subdomain": {route: `{subdomainTemplate: "{Listener}"}`, want: "the placeholders {listener}, {port}"},
		"half a placeholder":                    {route: `{hostTemplate: "{listener.a"}`, want: "the placeholders {listener}, {port}"},
		"capitals":                              {route: `{hostTemplate: "A.b"}`, want: "lower-case letters"},
		"an empty template":                     {route: `{hostTemplate: ""}`, want: "at least 1"},
		"a template that is too long":           {route: `{hostTemplate: ` + long + `}`, want: "Too long"},
		"a policy for HTTP without TLS":         {route: `{termination: none, insecureEdgeTerminationPolicy: None}`, want: "for terminations with TLS"},
		"HTTP through passthrough":              {route: `{insecureEdgeTerminationPolicy: Allow}`, want: "does not work with passthrough"},
		"a certificate that the Pod has":        {route: `{certificateSecretName: a}`, want: "certificateSecretName is for edge and reencrypt"},
		"a certificate for HTTP":                {route: `{termination: none, certificateSecretName: a}`, want: "certificateSecretName is for edge and reencrypt"},
		"an authority for HTTP behind a router": {route: `{termination: edge, destinationCACertificate: a}`, want: "destinationCACertificate is for reencrypt"},
		"an authority that nobody asks":         {route: `{destinationCACertificate: a}`, want: "destinationCACertificate is for reencrypt"},
		"a wildcard without a host":             {route: `{wildcardPolicy: Subdomain}`, want: "wildcardPolicy Subdomain needs a hostTemplate"},
		"a wildcard with a subdomain":           {route: `{wildcardPolicy: Subdomain, subdomainTemplate: a}`, want: "wildcardPolicy Subdomain needs a hostTemplate"},
		"a port that is listed twice":           {route: `{ports: [a, a]}`, want: "Duplicate value"},
		"a router that is listed twice":         {route: `{routers: [a, a]}`, want: "Duplicate value"},
		"a port without a name":                 {route: `{ports: [""]}`, want: "at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.serviceType == "" {
				tc.serviceType = "ClusterIP"
			}
			o := object(t, "", `{kind: ListenerClass, spec: {serviceType: `+tc.serviceType+`, route: `+tc.route+`}}`)
			err := apiserver.Client(t).Create(t.Context(), o)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want that it is invalid: %s", err, tc.want)
			}
		})
	}
}
