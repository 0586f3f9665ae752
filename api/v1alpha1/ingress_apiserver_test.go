package v1alpha1_test

import "testing"

func TestInvalidIngressExposureIsRejectedWithTheCause(t *testing.T) {
	const host = `hostTemplate: "{podName}.{namespace}.a"`
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"alone":               {spec: `{serviceType: ClusterIP, ingress: {className: a, ` + host + `}}`},
		"everything":          {spec: `{serviceType: ClusterIP, ingress: {className: a, ` + host + `, path: /b, tls: {secretName: "{listener}-{hash}"}, annotations: {a: b}, ports: [http]}}`},
		"ports listed twice":  {spec: `{serviceType: ClusterIP, ports: [http], ingress: {className: a, ` + host + `, ports: [http]}}`, want: "remove ingress.ports"},
		"no IngressClass":     {spec: `{serviceType: ClusterIP, ingress: {` + host + `}}`, want: "className: Required value"},
		"no host":             {spec: `{serviceType: ClusterIP, ingress: {className: a}}`, want: "hostTemplate: Required value"},
		"ambiguous host":      {spec: `{serviceType: ClusterIP, ingress: {className: a, hostTemplate: "{podName}-{namespace}"}}`, want: "different namespaces or Pods the same host"},
		"relative path":       {spec: `{serviceType: ClusterIP, ingress: {className: a, ` + host + `, path: a}}`, want: "path must begin with a slash"},
		"unknown placeholder": {spec: `{serviceType: ClusterIP, ingress: {className: a, ` + host + `, tls: {secretName: "{pod}"}}}`, want: "the placeholders {listener}, {port}"},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, tc.spec, tc.want) })
	}
}
