// Package injection contains the admission policy that gives Pods a listener volume by an annotation. Administrators
// apply it. The operator must never write it.
package injection

import (
	"bytes"
	_ "embed" // for the file
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

//go:embed policy.yaml
var manifests []byte

// Policy returns the policy and its binding, with the defaults of the API server.
func Policy() (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding, error) {
	policy, binding := &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	first, second, _ := bytes.Cut(manifests, []byte("\n---\n"))
	if err := errors.Join(yaml.UnmarshalStrict(first, policy), yaml.UnmarshalStrict(second, binding)); err != nil {
		return nil, nil, fmt.Errorf("decoding the policy for annotated Pods: %w", err)
	}
	return policy, binding, nil
}
