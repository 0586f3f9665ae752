// Package openshift makes an API server treat Routes as OpenShift's does, on top of the CustomResourceDefinition: by
// admission policies that choose hosts and ask for the rights to set them. What it cannot do that way, such as to look
// for the Secret that a Route names, is left to the router.
//
// It must never be imported by anything but tests and test tools.
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

// AnnotationGenerated is on Routes whose host the API server has chosen.
const AnnotationGenerated = "openshift.io/host.generated"

// owner is the name under which the policies are applied.
const owner = "openshift-platform"

// Install applies the policies, and returns when they count. The API server must serve Routes, and the client know
// them. domain is what the hosts that it chooses end with.
func Install(ctx context.Context, c client.Client, domain string) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(strings.ReplaceAll(policies, "DOMAIN", domain))), 4096)
	for {
		var policy unstructured.Unstructured
		if err := decoder.Decode(&policy.Object); errors.Is(err, io.EOF) {
			return await(ctx, c, domain)
		} else if err != nil {
			return fmt.Errorf("reading the policies: %w", err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&policy), client.FieldOwner(owner), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", policy.GetKind(), policy.GetName(), err)
		}
	}
}

// await waits until the API server has noticed the policies: it then chooses a host, and it is one below domain.
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
		return fmt.Errorf("waiting for the policies to count: %w", errors.Join(err, last))
	}
	return nil
}
