// Package openshift makes an API server treat Routes as OpenShift's does, by admission policies for the Route's
// CustomResourceDefinition: they choose hosts, and check the permissions to set hosts and certificates. What policies
// cannot do, such as reading the Secret that a Route refers to, is left to the router (test/router).
//
// Only tests and test tools may import it.
package openshift

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed policies.yaml
var policies string

// AnnotationGenerated marks Routes whose host was chosen by the API server.
const AnnotationGenerated = "openshift.io/host.generated"

const owner = "openshift-platform"

// Install applies the policies, and returns when they are in effect. The API server must serve Routes, and the client's
// scheme must contain them. domain is the suffix of the hosts that the API server chooses.
func Install(ctx context.Context, c client.Client, domain string) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(strings.ReplaceAll(policies, "DOMAIN", domain))), 4096)
	for {
		var policy unstructured.Unstructured
		if err := decoder.Decode(&policy.Object); errors.Is(err, io.EOF) {
			return await(ctx, c, domain)
		} else if err != nil {
			return fmt.Errorf("reading the policies: %w", err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&policy), client.FieldOwner(owner),
			client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", policy.GetKind(), policy.GetName(), err)
		}
	}
}

// await waits until the policies are in effect: the API server then chooses a host below domain.
func await(ctx context.Context, c client.Client, domain string) error {
	last := errors.New("no host is chosen")
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		probe := &routev1.Route{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault},
			Spec:       routev1.RouteSpec{To: routev1.RouteTargetReference{Kind: "Service", Name: "probe"}},
		}
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			last = err
			return false, nil
		}
		return strings.HasSuffix(probe.Spec.Host, "."+domain), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the policies to take effect: %w", errors.Join(err, last))
	}
	return nil
}
