//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/test/cluster/olm"
)

// volatileResources are resources whose objects are created and deleted all the time.
var volatileResources = []string{"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io", "endpoints", "replicasets.apps"}

// listObjects returns all objects of the cluster as "resource namespace/name", except for volatile ones and those of
// the scenario, with an additional entry for each label, annotation and finalizer of this operator.
func (m *olmScenario) listObjects() map[string]bool {
	m.Helper()
	config, err := testbed.RESTConfig()
	m.must(err)
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	m.must(err)
	objects := map[string]bool{}
	for _, group := range resources {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		m.must(err)
		for _, r := range group.APIResources {
			resource := gv.WithResource(r.Name)
			if !slices.Contains(r.Verbs, "list") || slices.Contains(volatileResources, resource.GroupResource().String()) {
				continue
			}
			list, err := metadata.NewForConfigOrDie(config).Resource(resource).List(m.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the CRD was deleted since discovery
			}
			if err != nil {
				m.Fatalf("listing %s: %v", resource, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				if o.Namespace == m.namespace || o.Namespace == olm.Namespace || o.Namespace == olm.NamespaceV1 {
					continue
				}
				name := resource.GroupResource().String() + " " + client.ObjectKeyFromObject(o).String()
				objects[name] = true
				for _, mark := range slices.Concat(slices.Collect(maps.Keys(o.Labels)), slices.Collect(maps.Keys(o.Annotations)), o.Finalizers) {
					if strings.Contains(mark, "listener") {
						objects[name+" with "+mark] = true
					}
				}
			}
		}
	}
	return objects
}

// awaitNoTraces waits until the cluster has no more objects than before the installation, except for those whose
// description has one of the prefixes.
func (m *olmScenario) awaitNoTraces(except ...string) {
	m.Helper()
	m.eventually(func(ctx context.Context) error { return errors.Join(m.deleteOrphans(ctx), m.findTraces(except...)) })
}

// findTraces returns an error about objects that did not exist before the installation, except for those whose
// description has one of the prefixes.
func (m *olmScenario) findTraces(except ...string) error {
	m.Helper()
	var left []string
	for o := range m.listObjects() {
		if !m.objectsBefore[o] && !slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(o, prefix) }) {
			left = append(left, o)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return fmt.Errorf("these objects remain:\n%s", strings.Join(left, "\n"))
}

// deleteOrphans deletes roles and bindings of a ClusterServiceVersion that does not exist any more. OLM deletes them
// with it, but creates some again if it was just installing it.
func (m *olmScenario) deleteOrphans(ctx context.Context) error {
	owned := client.MatchingLabels{"olm.owner": m.csvName()}
	return errors.Join(api.DeleteAllOf(ctx, &rbacv1.ClusterRoleBinding{}, owned), api.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, owned))
}
