package confinement_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	routev1 "github.com/openshift/api/route/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/controllers/nodeagent"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/ingress"
	"github.com/listener-operator/listener-operator/internal/exposure/route"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// written is an object as the operator writes it.
type written struct {
	*unstructured.Unstructured
	// fields are those of its kind, apart from apiVersion, kind and metadata.
	fields *fieldSchema
	// values are the paths of fields that the operator may set to other values, and initial those that it may when it
	// creates such an object. [] stands for any item, and a * at the end for whatever follows.
	values, initial []string
	// fixed is set if the operator never changes such an object, and existing if others create it. With status, the
	// operator writes the status alone.
	fixed, existing, status bool
}

// ownerUID is the path of the uid of an owner.
var ownerUID = []string{"metadata.ownerReferences[].uid"}

// unstated are the resources whose content no policy states, although the operator may write them, and why.
var unstated = map[string]string{
	"validatingadmissionpolicies":       "Kubernetes evaluates no policies for policies",
	"validatingadmissionpolicybindings": "Kubernetes evaluates no policies for policies",
	"tokenreviews":                      "nothing is stored",
	"subjectaccessreviews":              "nothing is stored",
	"listeners/status":                  "the API server keeps everything else, and the operator writes the whole status",
	"listeneroperators/status":          "the API server keeps everything else, and the operator writes the whole status",
	"listeners/finalizers":              "a permission without an object",
	"routes/custom-host":                "a permission without an object",
	"pods/eviction":                     "nothing is stored; TestOperatorOnlyLabelsAndEvictsPods has its fields",
}

// TestEveryKindThatTheOperatorWritesIsStated looks for each resource that the operator has permission to write.
func TestEveryKindThatTheOperatorWritesIsStated(t *testing.T) {
	raw, err := os.ReadFile("../../config/rbac/operator.yaml")
	check.Must(t, err)
	stated := map[string]bool{}
	for _, w := range contents(t, "somewhere") {
		stated[w.resource()] = true
	}
	writable := map[string]bool{}
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		check.Must(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if slices.ContainsFunc(rule.Verbs, func(v string) bool { return v == "create" || v == "update" || v == "patch" }) {
					writable[resource] = true
				}
			}
		}
	}
	for resource := range writable {
		if stated[resource] == (unstated[resource] != "") {
			t.Errorf("%s need either an object in contents, or a reason in unstated", resource)
		}
	}
	for resource := range unstated {
		if !writable[resource] {
			t.Errorf("the operator may not write %s", resource)
		}
	}
}

// resource returns the resource of the object.
func (w written) resource() string {
	plural, _ := meta.UnsafeGuessKindToResource(w.GroupVersionKind())
	resource := strings.TrimSuffix(plural.Resource, "ses") + "s"
	if kind := strings.ToLower(w.GetKind()); strings.HasSuffix(kind, "ss") || !strings.HasSuffix(kind, "s") {
		resource = plural.Resource
	}
	if w.status {
		resource += "/status"
	}
	return resource
}

// contents returns an object of each kind that the operator writes, for an operator in this namespace.
func contents(t *testing.T, namespace string) []written {
	t.Helper()
	return slices.Concat(components(t, namespace), ofTheOperator(t, namespace), ofCertificates(t, namespace), ofClaims(t, namespace), ofListeners(t, namespace))
}

// components returns what is installed, also on OpenShift.
func components(t *testing.T, namespace string) []written {
	t.Helper()
	fields := map[string]*fieldSchema{
		"DaemonSet": {}, // TestThePolicyStatesEveryFieldOfTheAgents changes its spec
		"CSIDriver": fieldsOf[storagev1.CSIDriver](), "StorageClass": fieldsOf[storagev1.StorageClass](), "NetworkPolicy": fieldsOf[networkingv1.NetworkPolicy](),
		"Service": fieldsOf[corev1.Service](), "SecurityContextConstraints": fieldsOfCRD(t, crds.SecurityContextConstraints),
		"ServiceMonitor": fieldsOfCRD(t, crds.ServiceMonitors), "PrometheusRule": fieldsOfCRD(t, crds.PrometheusRules),
		"ConsoleQuickStart": fieldsOfCRD(t, crds.ConsoleQuickStarts), "ConsoleYAMLSample": fieldsOfCRD(t, crds.ConsoleYAMLSamples),
	}
	values := map[string][]string{
		"DaemonSet": {"metadata.annotations.deprecated.daemonset.template.generation"}, // of the API server
		"CSIDriver": {"spec.preventPodSchedulingIfMissing"},
		// The API server chooses addresses, and other controllers may interpret annotations of any Service.
		"Service":                    {"metadata.annotations*", "spec.clusterIP*", "spec.ipFamilies[]", "spec.ipFamilyPolicy"},
		"SecurityContextConstraints": {"metadata.annotations.kubernetes.io/description"},
		"PrometheusRule": {
			"spec.groups[].rules[].alert", "spec.groups[].rules[].annotations*", "spec.groups[].rules[].expr", "spec.groups[].rules[].for",
			"spec.groups[].rules[].labels.severity",
		},
		"ConsoleQuickStart": {
			"spec.conclusion", "spec.description", "spec.displayName", "spec.durationMinutes", "spec.introduction", "spec.tasks[].description",
			"spec.tasks[].review*", "spec.tasks[].title",
		},
		"ConsoleYAMLSample": {"spec.description", "spec.title", "spec.yaml"},
	}
	var all []written
	for _, openShift := range []bool{false, true} {
		for _, c := range installation.Components() {
			if strings.HasPrefix(c.Kind, "ValidatingAdmissionPolicy") || openShift && c.Kind != "Service" && c.Kind != "ServiceMonitor" {
				continue
			}
			o, err := c.Desired(objects.ListenerOperator(), installation.Settings{Namespace: namespace, Image: operator.Image, ServiceAccount: "uid", ServiceCA: openShift})
			check.Must(t, err)
			all = append(all, written{Unstructured: o, fields: fields[c.Kind], values: values[c.Kind], initial: ownerUID})
		}
	}
	return all
}

// ofTheOperator returns the record of its first start, the configuration, its Lease, a class, and an event.
func ofTheOperator(t *testing.T, namespace string) []written {
	t.Helper()
	deployment := operator.Object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: `+namespace+`, name: listener-operator, uid: uid}}`)
	first := fakeclient.New(t, interceptor.Funcs{}, deployment)
	if _, err := (&nodeagent.FirstStart{Client: first, APIReader: first, Namespace: namespace}).Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	record, config := &corev1.ConfigMap{}, &operatorv1alpha1.ListenerOperator{}
	for o, key := range map[client.Object]client.ObjectKey{record: {Namespace: namespace, Name: names.Operator}, config: {Name: operatorv1alpha1.ListenerOperatorName}} {
		check.Must(t, first.Get(t.Context(), key, o))
		o.SetResourceVersion("")
	}
	classes, err := listenerclass.Preset(operatorv1alpha1.PresetEphemeralNodes)
	check.Must(t, err)
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.1"}, EventTime: metav1.NowMicro(), ReportingController: names.EventReporter, ReportingInstance: "a",
		Action: "Mount", Reason: "Mounted", Regarding: corev1.ObjectReference{Namespace: "default", Kind: "Pod", Name: "web"}, Note: "Mounted", Type: corev1.EventTypeNormal,
		Related: &corev1.ObjectReference{Namespace: "default", Kind: "PersistentVolumeClaim", Name: "web"}, Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NowMicro()},
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator}, Spec: resourcelock.LeaderElectionRecordToLeaseSpec(
		&resourcelock.LeaderElectionRecord{HolderIdentity: "a", LeaseDurationSeconds: 15, AcquireTime: metav1.Now(), RenewTime: metav1.Now()})}
	return []written{
		{Unstructured: untyped(t, record), fields: fieldsOf[corev1.ConfigMap](), initial: append([]string{"data.README"}, ownerUID...), fixed: true},
		{
			Unstructured: untyped(t, config), fields: fieldsOf[operatorv1alpha1.ListenerOperator](), // by an administrator who installs it
			initial: []string{
				"spec.certificateAuthorities", "spec.clusterDomain", "spec.injection", "spec.nodeAgent.affinity", "spec.nodeAgent.logLevel", "spec.nodeAgent.nodeSelector",
				"spec.nodeAgent.placement", "spec.nodeAgent.preventPodSchedulingIfMissing", "spec.nodeAgent.priorityClassName", "spec.nodeAgent.resources",
				"spec.nodeAgent.tolerations", "spec.preset",
			},
		},
		{Unstructured: untyped(t, &classes[0]), fields: fieldsOf[listenersv1alpha1.ListenerClass](), fixed: true},
		{Unstructured: untyped(t, event), fields: fieldsOf[eventsv1.Event](), values: []string{
			"action", "eventTime", "note", "reason", "regarding*", "related*", "reportingInstance", "series*", "type",
		}},
		{Unstructured: untyped(t, lease), fields: fieldsOf[coordinationv1.Lease](), values: []string{
			"spec.acquireTime", "spec.holderIdentity", "spec.leaseDurationSeconds", "spec.leaseTransitions", "spec.renewTime",
		}},
	}
}

// ofCertificates returns what has to do with certificates, from the golden files of other tests.
func ofCertificates(t *testing.T, namespace string) []written {
	t.Helper()
	secret := golden(t, "certificates/testdata/secret.yaml")
	secret.SetNamespace(namespace)
	return []written{
		{Unstructured: secret, fields: fieldsOf[corev1.Secret](), values: []string{"data.19700101T000000Z"}},
		{Unstructured: golden(t, "certificates/testdata/configmap.yaml"), fields: fieldsOf[corev1.ConfigMap](), initial: ownerUID}, // and other certificates
		{Unstructured: golden(t, "certificates/testdata/clustertrustbundle.yaml"), fields: fieldsOf[certificatesv1.ClusterTrustBundle](), values: []string{"spec.trustBundle"}, initial: ownerUID},
		{Unstructured: golden(t, "certmanager/testdata/certificate.yaml"), fields: fieldsOfCRD(t, crds.Certificates), values: []string{
			"spec.dnsNames[]", "spec.ipAddresses[]", "spec.issuerRef.group", "spec.issuerRef.kind", "spec.issuerRef.name",
		}, initial: ownerUID},
		{Unstructured: operator.Object(t, `{apiVersion: certificates.k8s.io/v1, kind: PodCertificateRequest, metadata: {namespace: default, name: web},
  spec: {signerName: listener-operator.dev/address}, status: {certificateChain: x, notBefore: x, notAfter: x, beginRefreshAt: x, conditions: [
    {type: Issued, status: "True", reason: Issued, message: x, lastTransitionTime: x}]}}`),
			fields: schemaOfType(reflect.TypeFor[certificatesv1.PodCertificateRequestStatus]()), existing: true, status: true, values: []string{
				"status.beginRefreshAt", "status.certificateChain", "status.conditions[].lastTransitionTime", "status.conditions[].message", "status.conditions[].reason",
				"status.conditions[].status", "status.notAfter", "status.notBefore",
			}},
	}
}

// golden returns an object from a golden file of another test.
func golden(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile("../" + path)
	check.Must(t, err)
	return operator.Object(t, string(raw))
}

// ofClaims returns what belongs to a claim and its Pod.
func ofClaims(t *testing.T, namespace string) []written {
	t.Helper()
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "pvc-" + types.UID(namespace), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
	}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}
	pv := claim.Volume(pvc, "web")
	pv.Spec.NodeAffinity = claim.NodeAffinity("node")
	pv.UID = "pv"
	ports := []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}
	listener := claim.OfClaim(pvc, pv).Listener("public", ports, nil)
	podListeners := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: "default", Name: "web-0"}, "uid", "node")
	pv.UID = ""
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{names.PodMountLabel("x"): "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	return []written{
		{Unstructured: untyped(t, pv), fields: fieldsOf[corev1.PersistentVolume](), values: []string{
			"metadata.annotations.pv.kubernetes.io/provisioned-by", "metadata.labels.listeners.stackable.tech/listener-name",
			"metadata.labels.listeners.stackable.tech/listener-namespace", "spec.nodeAffinity.required.nodeSelectorTerms[].matchExpressions[].values[]",
		}, initial: []string{
			"spec.accessModes[]", "spec.capacity.storage", "spec.claimRef.name", "spec.claimRef.namespace", "spec.claimRef.uid", "spec.csi.volumeAttributes*",
			"spec.persistentVolumeReclaimPolicy", "spec.storageClassName", "spec.volumeMode",
		}},
		{Unstructured: listener, fields: fieldsOf[listenersv1alpha1.Listener](), values: []string{
			"metadata.labels*", "metadata.ownerReferences[]", "metadata.ownerReferences[].apiVersion", "metadata.ownerReferences[].kind",
			"metadata.ownerReferences[].name", "metadata.ownerReferences[].uid", "spec.className", "spec.ports*", "spec.publishNotReadyAddresses",
		}},
		{
			Unstructured: untyped(t, podListeners), fields: fieldsOf[listenersv1alpha1.PodListeners](), values: []string{"spec*"},
			initial: []string{"metadata.ownerReferences[].name"}, // the uid is part of the name
		},
		{Unstructured: untyped(t, pod), fields: fieldsOf[corev1.Pod](), existing: true, values: []string{"metadata.labels.listener.stackable.tech/mnt.x"}},
	}
}

// ofListeners returns what is generated for a Listener.
func ofListeners(t *testing.T, namespace string) []written {
	t.Helper()
	listener := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "uid", Labels: map[string]string{"a": "b"}},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "tcp", Port: 80}}},
	}
	class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, AllowedClients: []listenersv1alpha1.CIDR{"198.51.100.0/24"},
		ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal), ServiceAnnotations: map[string]string{"a": "b"},
		Route:   &listenersv1alpha1.RouteExposure{HostTemplate: "{listener}.{namespace}.example", Termination: listenersv1alpha1.RouteTerminationReencrypt, Annotations: map[string]string{"a": "b"}},
		Ingress: &listenersv1alpha1.IngressExposure{ClassName: "a", HostTemplate: "{listener}.{namespace}.example", TLS: &listenersv1alpha1.IngressTLS{SecretName: "{listener}-tls"}},
	}}
	service, refusal := (&exposure.Backend{}).Service(class, listener)
	if refusal != nil {
		t.Fatal(refusal)
	}
	l := &exposure.Listener{
		Listener: listener, Class: class,
		Service: &corev1.Service{ObjectMeta: listener.ObjectMeta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "tcp", Port: 80}}}},
	}
	fields := map[string]*fieldSchema{
		"Service": fieldsOf[corev1.Service](), "NetworkPolicy": fieldsOf[networkingv1.NetworkPolicy](), "Route": fieldsOf[routev1.Route](), "Ingress": fieldsOf[networkingv1.Ingress](),
		"TLSRoute": fieldsOfCRD(t, crds.TLSRoutes), "HTTPRoute": fieldsOfCRD(t, crds.HTTPRoutes), "TCPRoute": fieldsOfCRD(t, crds.TCPRoutes),
		"UDPRoute": fieldsOfCRD(t, crds.UDPRoutes), "ListenerSet": fieldsOf[gatewayv1.ListenerSet](),
		"DNSEndpoint": fieldsOfCRD(t, crds.DNSEndpoints),
	}
	hosts := []string{"spec.hostnames[]", "spec.parentRefs[]", "spec.parentRefs[].name", "spec.parentRefs[].namespace", "spec.parentRefs[].port",
		"spec.parentRefs[].sectionName", "spec.rules[].backendRefs[].port"}
	values := map[string][]string{
		"Service":       {"metadata.annotations*", "metadata.finalizers*", "spec*"}, // by overrides
		"NetworkPolicy": {"spec.ingress[].from[].ipBlock.cidr", "spec.ingress[].ports[]*"},
		"Route": {
			"metadata.annotations*", "spec.host", "spec.port.targetPort", "spec.subdomain", "spec.tls.destinationCACertificate", "spec.tls.externalCertificate",
			"spec.tls.insecureEdgeTerminationPolicy", "spec.tls.termination", "spec.wildcardPolicy",
		},
		"Ingress": {
			"spec.ingressClassName", "spec.rules[].http.paths[].backend.service.port.name", "spec.rules[].http.paths[].backend.service.port.number",
			"spec.rules[].http.paths[].path", "spec.tls[].secretName",
		},
		"ListenerSet": {"spec.listeners[].name", "spec.listeners[].port", "spec.parentRef.name", "spec.parentRef.namespace"},
		"DNSEndpoint": {"spec.endpoints[].dnsName", "spec.endpoints[].recordTTL", "spec.endpoints[].targets[]"},
		"TLSRoute":    hosts, "HTTPRoute": hosts, "TCPRoute": slices.Concat(hosts[2:]), "UDPRoute": slices.Concat(hosts[2:]),
	}
	plain := *l // Routes restrict clients by annotations
	plain.Class = class.DeepCopy()
	plain.Class.Spec.Route, plain.Class.Spec.Ingress = nil, nil
	policy := backends.All().Of(plain.Class).ClientPolicy(&plain, service, exposure.ReadPolicies(listener, nil, nil))
	generated := append([]*unstructured.Unstructured{untyped(t, service), policy, golden(t, "dnsendpoint/testdata/dnsendpoint.yaml")}, gatewayRoutes(t, listener)...)
	for _, backend := range []*exposure.Backend{route.Backend(), ingress.Backend()} {
		desired, refusal := backend.Objects(l, exposure.Others{})
		if refusal != nil {
			t.Fatal(refusal)
		}
		generated = append(generated, desired[0].Unstructured)
	}
	slices.SortStableFunc(generated, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetKind(), b.GetKind()) })
	var all []written
	for _, o := range slices.CompactFunc(generated, func(a, b *unstructured.Unstructured) bool { return a.GetKind() == b.GetKind() }) {
		initial := ownerUID
		if o.GetKind() == "NetworkPolicy" {
			initial = nil // it is part of the selector
		}
		all = append(all, written{Unstructured: o, fields: fields[o.GetKind()], values: append(values[o.GetKind()], "metadata.labels*"), initial: initial})
	}
	return all
}

// untyped converts an object.
func untyped(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	u, err := apply.Unstructured(o)
	check.Must(t, err)
	delete(u.Object, "status")
	if typed, ok := o.(client.Object); ok {
		kinds, _, err := apiserver.Scheme().ObjectKinds(typed)
		check.Must(t, err)
		u.SetGroupVersionKind(kinds[0])
	}
	return u
}

// fieldsOf returns the fields of a type.
func fieldsOf[T any]() *fieldSchema { return withoutMetadata(schemaOfType(reflect.TypeFor[T]())) }

// fieldsOfCRD returns the fields of the version in which a kind is stored.
func fieldsOfCRD(t *testing.T, name crds.CRD) *fieldSchema {
	t.Helper()
	versions, _, err := unstructured.NestedSlice(crds.Read(t, name).Object, "spec", "versions")
	check.Must(t, err)
	i := slices.IndexFunc(versions, func(v any) bool { return v.(map[string]any)["storage"] == true })
	raw, err := json.Marshal(versions[i].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"])
	check.Must(t, err)
	s := &fieldSchema{}
	check.Must(t, json.Unmarshal(raw, s))
	return withoutMetadata(s)
}

// withoutMetadata removes the fields that all kinds have in common.
func withoutMetadata(s *fieldSchema) *fieldSchema {
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(s.Properties, field)
	}
	return s
}

// metadata are the fields of metadata that clients may set, and that a request may have another value of.
func metadata() *fieldSchema {
	texts := &fieldSchema{Type: "object", AdditionalProperties: &fieldSchema{Type: "string"}}
	owner := schemaOfType(reflect.TypeFor[metav1.OwnerReference]())
	owner.valid = map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "absent"}
	return &fieldSchema{Type: "object", Properties: map[string]*fieldSchema{
		"labels": texts, "annotations": texts, "finalizers": {Type: "array", Items: &fieldSchema{Type: "string", valid: "example.com/x"}},
		"generateName": {Type: "string"}, "ownerReferences": {Type: "array", Items: owner},
	}}
}

const copies = "copies.example.com"

// TestThePoliciesStateEveryFieldThatTheOperatorWrites changes each field of an object of each kind that the operator
// writes, one at a time: in the request that creates the object, and in one that changes it. The objects are as the API
// server completes them. Kinds of another group, which accept any content, take the place of the real ones, because the
// API server validates objects before it evaluates policies.
func TestThePoliciesStateEveryFieldThatTheOperatorWrites(t *testing.T) {
	w := operator.NewWorld(t, apiserver.PlainConfig(t))
	crds.Install(t, w.Client, optional...)
	defer crds.Remove(t, w.Client, optional...)
	confined := w.ConfinedOperator()
	all := contents(t, w.Namespace)
	for i := range all {
		if o := all[i].Unstructured; !all[i].existing {
			err := confined.Create(t.Context(), o, client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), "cannot create resource") { // it is limited to names, which the API server only knows of a patch
				err = confined.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("x"), client.ForceOwnership, client.DryRunAll)
			}
			if err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(all[i].Object, "metadata", field)
		}
		all[i].SetAPIVersion(copies + "/v1")
		all[i].SetName(strings.ReplaceAll(all[i].GetName(), ":", ".")) // a name that only the original may have
	}
	serveCopies(w, confined, all)
	for _, c := range all {
		t.Run(c.resource()+" "+c.GetName(), func(t *testing.T) { c.walk(t, confined, w.Client) })
	}
}

// walk compares which changes are accepted.
func (w written) walk(t *testing.T, operator, admin client.Client) {
	creator, status := operator, w.Object["status"]
	if w.existing {
		creator = admin
	} else {
		w.compare(t, "created", slices.Concat(w.values, w.initial), func(o client.Object) error { return operator.Create(t.Context(), o, client.DryRunAll) })
	}
	check.Must(t, creator.Create(t.Context(), w.Unstructured))
	update := func(o client.Object) error { return operator.Update(t.Context(), o, client.DryRunAll) }
	if w.status {
		w.Object["status"] = status
		update = func(o client.Object) error { return operator.Status().Update(t.Context(), o, client.DryRunAll) }
	}
	w.compare(t, "updated", w.values, update)
	check.Must(t, admin.Delete(t.Context(), w.Unstructured))
}

// compare sends a request for each change.
func (w written) compare(t *testing.T, when string, expected []string, send func(client.Object) error) {
	t.Helper()
	if err := send(w.DeepCopy()); (err != nil) != (w.fixed && when == "updated") {
		t.Errorf("when it is %s: %v", when, err)
	}
	check.Equal(t, "when it is "+when+", these changes are accepted", slices.Sorted(slices.Values(expected)), w.accepted(t, expected, send))
}

// accepted returns the paths of the changes that are accepted, or for those that are expected what was expected.
func (w written) accepted(t *testing.T, expected []string, send func(client.Object) error) []string {
	t.Helper()
	found := map[string]bool{}
	try := func(path string, changed map[string]any) {
		switch err := send(&unstructured.Unstructured{Object: changed}); {
		case err != nil && strings.Contains(err.Error(), "denied request"):
			return
		case err != nil:
			path += ": " + err.Error()
		}
		i := slices.IndexFunc(expected, func(e string) bool {
			prefix, whole := strings.CutSuffix(e, "*")
			return e == path || whole && strings.HasPrefix(path, prefix)
		})
		if i >= 0 {
			path = expected[i]
		}
		found[path] = true
	}
	part := func(name string, fields *fieldSchema) {
		value, _ := w.Object[name].(map[string]any)
		fields.change(maps.Clone(value), name, func(path string, changed any) {
			o := w.DeepCopy().Object
			o[name] = changed
			try(path, o)
		})
	}
	if w.status {
		part("status", w.fields)
	} else {
		part("metadata", metadata())
		w.fields.change(w.Object, "", func(path string, changed any) { try(strings.TrimPrefix(path, "."), changed.(map[string]any)) })
	}
	return slices.Sorted(maps.Keys(found))
}

// serveCopies lets the API server serve a kind of another group for each kind, with the same policies, until the test
// ends.
func serveCopies(w *operator.World, confined client.Client, all []written) {
	w.Helper()
	for _, c := range all {
		plural, subresource, _ := strings.Cut(c.resource(), "/")
		scope, subresources := "Cluster", "{}"
		if c.GetNamespace() != "" {
			scope = "Namespaced"
		}
		if subresource != "" {
			subresources = "{status: {}}"
		}
		createUntilTheEnd(w, operator.Object(w, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: `+plural+`.`+copies+`}, spec: {
  group: `+copies+`, scope: `+scope+`, names: {plural: `+plural+`, kind: `+c.GetKind()+`}, versions: [{name: v1, served: true, storage: true,
    subresources: `+subresources+`, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`))
	}
	bound := slices.DeleteFunc(policies(w.T), func(c confinement.Bound) bool { return c.Policy.Spec.ParamKind != nil })
	for _, c := range bound {
		c.Policy.Name, c.Binding.Name, c.Binding.Spec.PolicyName = copies+c.Policy.Name, copies+c.Policy.Name, copies+c.Policy.Name
		rules := c.Policy.Spec.MatchConstraints.ResourceRules
		for i := range rules {
			rules[i].APIGroups = []string{copies}
		}
		// A request by which to see that the API server evaluates the policy.
		c.Policy.Spec.Validations = append(c.Policy.Spec.Validations, admissionregistrationv1.Validation{
			Expression: `request.options.?fieldManager.orValue('') != '` + c.Policy.Name + `'`, Message: "is in effect",
		})
		createUntilTheEnd(w, c.Policy, c.Binding)
	}
	w.Grant(rbacv1.PolicyRule{APIGroups: []string{copies}, Resources: []string{"*"}, Verbs: []string{"*"}})
	for _, c := range bound {
		i := slices.IndexFunc(all, func(o written) bool {
			return !o.existing && slices.ContainsFunc(c.Policy.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
				return slices.Contains(r.Resources, o.resource()) && slices.Contains(r.Operations, admissionregistrationv1.Create)
			})
		})
		if i >= 0 {
			w.Eventually(func() error {
				return confined.Create(w.Context(), all[i].DeepCopy(), client.DryRunAll, client.FieldOwner(c.Policy.Name))
			}).Should(MatchError(ContainSubstring("is in effect")), c.Policy.Name)
		}
	}
}
