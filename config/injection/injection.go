// Package injection contains the admission policies that give Pods a listener volume by an annotation, and refuse what
// the annotations cannot mean. Administrators apply them. The operator must never write them.
package injection

import (
	"bytes"
	_ "embed" // for the file
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed policy.yaml
var manifests []byte

// Objects returns the policy that adds the volume, its binding, the policy that refuses, and its binding, with the
// defaults of the API server.
func Objects() ([]client.Object, error) {
	objects := []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	}
	for i, document := range bytes.Split(manifests, []byte("\n---\n")) {
		if err := yaml.UnmarshalStrict(document, objects[i]); err != nil {
			return nil, fmt.Errorf("decoding the policies for annotated Pods: %w", err)
		}
	}
	return objects, nil
}
