package v1alpha1_test

import (
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// object parses an object as a user writes it, with explicit nulls.
func object(t *testing.T, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	check.Must(t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetAPIVersion(listenersv1alpha1.GroupVersion.String())
	o.SetNamespace(namespace)
	if o.GetName() == "" {
		o.SetGenerateName("test-")
	}
	return o
}

// stored creates an object and returns its spec as the API server stores it.
func stored(t *testing.T, namespace, text string) any {
	t.Helper()
	o := object(t, namespace, text)
	c := apiserver.Client(t)
	check.Must(t, c.Create(t.Context(), o))
	kept := &unstructured.Unstructured{}
	kept.SetGroupVersionKind(o.GroupVersionKind())
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), kept))
	return kept.Object["spec"]
}

func TestSpecIsStoredWithDefaultsAndNulls(t *testing.T) {
	namespace := apiserver.Namespace(t)
	for name, tc := range map[string]struct {
		namespace, given, want string
	}{
		"Listener with an empty spec": {
			namespace: namespace, given: `{kind: Listener, spec: {}}`,
			want: `{extraPodSelectorLabels: {}, publishNotReadyAddresses: true, objectOverrides: []}`,
		},
		"Listener with nulls": {
			namespace: namespace,
			given:     `{kind: Listener, spec: {className: null, ports: null, publishNotReadyAddresses: null}}`,
			want:      `{className: null, ports: null, publishNotReadyAddresses: null, extraPodSelectorLabels: {}, objectOverrides: []}`,
		},
		"port with a null protocol": {
			namespace: namespace,
			given:     `{kind: Listener, spec: {publishNotReadyAddresses: false, ports: [{name: a, port: 1, protocol: null}]}}`,
			want:      `{publishNotReadyAddresses: false, ports: [{name: a, port: 1, protocol: null}], extraPodSelectorLabels: {}, objectOverrides: []}`,
		},
		"ports with the same name keep their order": {
			namespace: namespace,
			given:     `{kind: Listener, spec: {ports: [{name: b, port: 2}, {name: a, port: 1}, {name: b, port: 3}]}}`,
			want: `{ports: [{name: b, port: 2}, {name: a, port: 1}, {name: b, port: 3}],
			  publishNotReadyAddresses: true, extraPodSelectorLabels: {}, objectOverrides: []}`,
		},
		"overrides keep unknown fields, the spec does not": {
			namespace: namespace,
			given:     `{kind: Listener, spec: {surprise: 1, objectOverrides: [{apiVersion: v1, kind: Service, spec: {surprise: {deep: [1]}}}]}}`,
			want: `{objectOverrides: [{apiVersion: v1, kind: Service, spec: {surprise: {deep: [1]}}}],
			  publishNotReadyAddresses: true, extraPodSelectorLabels: {}}`,
		},
		"ListenerClass with required fields only": {
			given: `{kind: ListenerClass, spec: {serviceType: NodePort}}`,
			want: `{serviceType: NodePort, loadBalancerAllocateNodePorts: true, serviceAnnotations: {}, preferredAddressType: HostnameConservative,
			  pinnedNodePorts: false, serviceOverrides: {apiVersion: v1, kind: Service, metadata: {}}}`,
		},
		"ListenerClass with nulls and unknown fields": {
			given: `{kind: ListenerClass, spec: {serviceType: ClusterIP, loadBalancerClass: null, serviceExternalTrafficPolicy: null, surprise: 1,
			  serviceOverrides: {spec: {ports: [{port: 1}]}}}}`,
			want: `{serviceType: ClusterIP, loadBalancerClass: null, serviceExternalTrafficPolicy: null, loadBalancerAllocateNodePorts: true,
			  serviceAnnotations: {}, preferredAddressType: HostnameConservative, pinnedNodePorts: false, serviceOverrides: {spec: {ports: [{port: 1}]}}}`,
		},
		"PodListeners as Stackable's listener operator writes them": {
			namespace: namespace,
			given:     `{kind: PodListeners, spec: {listeners: {a: {scope: Node, ingressAddresses: null}, b: {scope: Cluster}}}}`,
			want:      `{listeners: {a: {scope: Node, ingressAddresses: null}, b: {scope: Cluster}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want any
			check.Must(t, yaml.Unmarshal([]byte(tc.want), &want))
			got := stored(t, tc.namespace, tc.given)
			check.Equal(t, "spec", normal(t, want), normal(t, got))
		})
	}
}

// normal returns the value as one decoder yields it, so that results of different decoders compare equal.
func normal(t *testing.T, v any) any {
	t.Helper()
	raw, err := yaml.Marshal(v)
	check.Must(t, err)
	var same any
	check.Must(t, yaml.Unmarshal(raw, &same))
	return same
}

func TestInvalidObjectsAreRejected(t *testing.T) {
	namespace := apiserver.Namespace(t)
	for name, tc := range map[string]struct{ namespace, given string }{
		"ListenerClass without a service type": {"", `{kind: ListenerClass, spec: {}}`},
		"unknown service type":                 {"", `{kind: ListenerClass, spec: {serviceType: Route}}`},
		"unknown preferred address type":       {"", `{kind: ListenerClass, spec: {serviceType: NodePort, preferredAddressType: DNS}}`},
		"no port":                              {"", `{kind: ListenerClass, spec: {serviceType: NodePort, maxPorts: 0}}`},
		"unknown policy of inline volumes":     {"", `{kind: ListenerClass, spec: {serviceType: NodePort, inlineVolumes: Never}}`},
		"namespace that is allowed twice":      {"", `{kind: ListenerClass, spec: {serviceType: NodePort, allowedNamespaces: {names: [a, a]}}}`},
		"external IPs that may be overridden":  {"", `{kind: ListenerClass, spec: {serviceType: NodePort, listenerOverrides: {allowed: [spec.externalIPs]}}}`},
		"owners that may be overridden":        {"", `{kind: ListenerClass, spec: {serviceType: NodePort, listenerOverrides: {allowed: [metadata.ownerReferences]}}}`},
		"unknown external traffic policy":      {"", `{kind: ListenerClass, spec: {serviceType: NodePort, serviceExternalTrafficPolicy: Near}}`},
		"null service type":                    {"", `{kind: ListenerClass, spec: {serviceType: null}}`},
		"Listener without a spec":              {namespace, `{kind: Listener}`},
		"port without a number":                {namespace, `{kind: Listener, spec: {ports: [{name: a}]}}`},
		"port without a name":                  {namespace, `{kind: Listener, spec: {ports: [{port: 1}]}}`},
		"override that is not an object":       {namespace, `{kind: Listener, spec: {objectOverrides: [text]}}`},
		"PodListeners without listeners":       {namespace, `{kind: PodListeners, spec: {}}`},
		"PodListener without a scope":          {namespace, `{kind: PodListeners, spec: {listeners: {a: {}}}}`},
		"unknown scope":                        {namespace, `{kind: PodListeners, spec: {listeners: {a: {scope: Zone}}}}`},
		"unknown address type":                 {namespace, `{kind: PodListeners, spec: {listeners: {a: {scope: Node, ingressAddresses: [{address: a, addressType: URL, ports: {}}]}}}}`},
		"address without ports":                {namespace, `{kind: PodListeners, spec: {listeners: {a: {scope: Node, ingressAddresses: [{address: a, addressType: IP}]}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := apiserver.Client(t).Create(t.Context(), object(t, tc.namespace, tc.given)); !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want an Invalid error", err)
			}
		})
	}
}

func TestNullAndAbsentPublishNotReadyAddressesDiffer(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	for _, tc := range []struct {
		name, given string
		want        bool
	}{
		{"null", `{kind: Listener, metadata: {name: "null"}, spec: {publishNotReadyAddresses: null}}`, false},
		{"absent", `{kind: Listener, metadata: {name: absent}, spec: {}}`, true},
	} {
		check.Must(t, c.Create(t.Context(), object(t, namespace, tc.given)))
		listener := &listenersv1alpha1.Listener{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: tc.name}, listener); err != nil {
			t.Fatal(err)
		}
		if got := listener.PublishesNotReady(); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.name, got, tc.want)
		}
	}
}

// Product operators send every field of the spec, most of them null, in each of their reconciliations.
func TestRepeatedApplyOfNullsChangesNothing(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	const text = `
kind: Listener
metadata:
  name: simple-kafka-broker-default-bootstrap
  labels: {app.kubernetes.io/name: kafka}
spec:
  className: cluster-internal
  extraPodSelectorLabels: {}
  ports: [{name: kafka, port: 9092, protocol: TCP}]
  publishNotReadyAddresses: null
  objectOverrides: []
status: null
`
	var versions []string
	for range 2 {
		o := object(t, namespace, text)
		check.Must(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kafka"), client.ForceOwnership))
		versions = append(versions, o.GetResourceVersion())
		if o.GetGeneration() != 1 {
			t.Errorf("generation is %d, want 1", o.GetGeneration())
		}
		if value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "publishNotReadyAddresses"); value != nil || !ok {
			t.Errorf("publishNotReadyAddresses: got %v, present %t, want an explicit null", value, ok)
		}
	}
	if versions[0] != versions[1] {
		t.Errorf("the second apply changed something")
	}
}

func TestPortsAreAtomic(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	var o *unstructured.Unstructured
	for owner, ports := range []string{`[{name: a, port: 1}, {name: b, port: 2}]`, `[{name: b, port: 3}]`} {
		o = object(t, namespace, `{kind: Listener, metadata: {name: web}, spec: {ports: `+ports+`}}`)
		err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("owner-"+string(rune('a'+owner))), client.ForceOwnership)
		check.Must(t, err)
	}
	got, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	check.Equal(t, "ports", []any{map[string]any{"name": "b", "port": int64(3)}}, got)
}

func TestNodeNameOfPodListenersIsImmutableAndSelectable(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	pl := &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-1"},
		Spec:       listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{}},
	}
	check.Must(t, c.Create(t.Context(), pl))
	set := func(node string) error {
		changed := pl.DeepCopy()
		changed.Spec.NodeName = node
		return c.Patch(t.Context(), changed, client.MergeFrom(pl))
	}
	if err := set("node-1"); err != nil {
		t.Error("setting spec.nodeName: ", err)
	}
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(pl), pl))
	if pl.Generation != 2 {
		t.Errorf("generation is %d after a change of the spec, want 2", pl.Generation)
	}
	for _, node := range []string{"node-2", ""} {
		if err := set(node); !apierrors.IsInvalid(err) {
			t.Errorf("changing it to %q: got %v, want an Invalid error", node, err)
		}
	}
	for node, want := range map[string]int{"node-1": 1, "node-2": 0} {
		var list listenersv1alpha1.PodListenersList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": node}); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != want {
			t.Errorf("selecting %s: got %d, want %d", node, len(list.Items), want)
		}
	}
}

// The node agent trusts content of generation 2 and later, so a change of metadata must not increase the generation.
func TestMetadataChangeDoesNotIncreaseGenerationOfPodListeners(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	pl := &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-1", Generation: 7},
		Spec:       listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{}, NodeName: "node-1"},
	}
	check.Must(t, c.Create(t.Context(), pl))
	changed := pl.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	check.Must(t, c.Patch(t.Context(), changed, client.MergeFrom(pl)))
	if pl.Generation != 1 || changed.Generation != 1 {
		t.Errorf("generation is %d after creation and %d after a label, want 1", pl.Generation, changed.Generation)
	}
}

func TestStatusAcceptsNullsAndEmptyLists(t *testing.T) {
	namespace, c := apiserver.Namespace(t), apiserver.Client(t)
	o := object(t, namespace, `{kind: Listener, metadata: {name: web}, spec: {className: c}}`)
	check.Must(t, c.Create(t.Context(), o))
	for _, status := range []map[string]any{
		{"serviceName": nil, "ingressAddresses": nil, "nodePorts": nil},
		{"ingressAddresses": []any{}},
	} {
		o.Object["status"] = status
		check.Must(t, c.Status().Update(t.Context(), o))
		check.Equal(t, "status", status, o.Object["status"])
	}
	listener := &listenersv1alpha1.Listener{}
	check.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), listener))
	if listener.Status == nil || listener.Status.IngressAddresses == nil {
		t.Errorf("the empty list was read back as %#v", ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}))
	}
}
