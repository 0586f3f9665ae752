package confinement_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/gateway"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

// confinedWork sends writes of the operator's controllers, with its permissions and confined by the policies.
type confinedWork struct {
	*operator.World
	operator          client.Client
	volumes, services *apply.Applier
}

// applied applies an object over the observed one, which may be nil.
func (w *confinedWork) applied(applier *apply.Applier, desired *unstructured.Unstructured, observed client.Object) {
	w.Helper()
	_, err := applier.Apply(w.Context(), desired, observed)
	w.Expect(err).NotTo(HaveOccurred(), "%s %s", desired.GetKind(), desired.GetName())
}

// deleted deletes an object.
func (w *confinedWork) deleted(o client.Object) {
	w.Helper()
	w.Expect(w.operator.Delete(w.Context(), o.DeepCopyObject().(client.Object))).To(Succeed())
}

// lives applies versions of an object, one after the other, and deletes it.
func (w *confinedWork) lives(applier *apply.Applier, versions ...*unstructured.Unstructured) {
	w.Helper()
	var observed client.Object
	for _, desired := range versions {
		w.applied(applier, desired, observed)
		observed = desired
	}
	w.deleted(observed)
}

// object parses YAML, in which NAMESPACE is the operator's namespace.
func (w *confinedWork) object(manifest string) *unstructured.Unstructured {
	w.Helper()
	return operator.Object(w, strings.ReplaceAll(manifest, "NAMESPACE", w.Namespace))
}

// of is object, owned by a Listener.
func (w *confinedWork) of(listener *listenersv1alpha1.Listener, manifest string) *unstructured.Unstructured {
	w.Helper()
	o := w.object(manifest)
	exposure.SetOwner(o, listener)
	return o
}

// listener creates a Listener of a user.
func (w *confinedWork) listener(name string) *listenersv1alpha1.Listener {
	w.Helper()
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	w.Expect(w.Create(w.Context(), l)).To(Succeed())
	return l
}

// serviceOf returns the Service that the operator generates, and the NetworkPolicy if the class restricts clients.
func (w *confinedWork) serviceOf(class *listenersv1alpha1.ListenerClass, l *listenersv1alpha1.Listener) (service, policy *unstructured.Unstructured) {
	w.Helper()
	generated, refusal := (&exposure.Backend{}).Service(class, l)
	w.Expect(refusal).To(BeNil())
	service, err := apply.Unstructured(generated)
	w.Expect(err).NotTo(HaveOccurred())
	policy = backends.All().Of(class).ClientPolicy(&exposure.Listener{Listener: l, Class: class}, generated, exposure.ReadPolicies(l, nil, nil))
	return service, policy
}

// allowing returns a class that restricts clients.
func allowing(clients listenersv1alpha1.CIDR) *listenersv1alpha1.ListenerClass {
	return &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, AllowedClients: []listenersv1alpha1.CIDR{clients},
		ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
	}}
}

// TestConfinedOperatorDoesItsWork sends the writes of the other controllers, with a token of the operator.
func TestConfinedOperatorDoesItsWork(t *testing.T) {
	world := operator.NewWorld(t, apiserver.Config(t))
	crds.Install(t, world.Client, optional...)
	defer crds.Remove(t, world.Client, optional...)
	w := &confinedWork{World: world, operator: world.ConfinedOperator()}
	w.volumes, w.services = apply.New(w.operator, names.FieldManagerVolume), apply.New(w.operator, names.FieldManagerService)
	claimIsProvisioned(w)
	shop := w.listener("shop")
	shopIsExposed(w, shop)
	for _, name := range []string{"7days-data", "web.one", strings.Repeat("long", 20)} { // that no Service can have
		derivedIsExposed(w, w.listener(name))
	}

	pod := w.object(`{apiVersion: v1, kind: Pod, metadata: {namespace: NAMESPACE, name: listener-operator}}`)
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.PodMountLabel("uid")+`":"shop"}}}`))
	w.Expect(w.operator.Patch(t.Context(), pod, label)).To(Succeed())
	podListeners := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: w.Namespace, Name: "web-0"}, "uid", "node")
	w.Expect(w.operator.Create(t.Context(), podListeners)).To(Succeed())
	w.deleted(podListeners)

	// An event, which is counted when it repeats.
	sink := events.NewBroadcaster(&events.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(w.Token()).EventsV1()})
	w.Expect(sink.StartRecordingToSinkWithContext(t.Context())).To(Succeed())
	defer sink.Shutdown()
	for range 2 {
		sink.NewRecorder(apiserver.Scheme(), names.EventReporter).Eventf(shop, nil, corev1.EventTypeNormal, "Repeated", "Test", "a text")
	}
	w.Eventually(func(g Gomega) {
		var all eventsv1.EventList
		g.Expect(w.List(t.Context(), &all, client.InNamespace(w.Namespace))).To(Succeed())
		g.Expect(all.Items).To(ContainElement(HaveField("Series.Count", BeEquivalentTo(2))))
	}).Should(Succeed())

	for _, preset := range []operatorv1alpha1.Preset{operatorv1alpha1.PresetEphemeralNodes, operatorv1alpha1.PresetStableNodes} {
		classes, err := listenerclass.Preset(preset)
		w.Expect(err).NotTo(HaveOccurred())
		for i := range classes {
			w.Expect(client.IgnoreAlreadyExists(w.operator.Create(t.Context(), &classes[i], client.DryRunAll))).To(Succeed())
		}
	}
}

// claimIsProvisioned writes what belongs to claims: volumes and their Listeners.
func claimIsProvisioned(w *confinedWork) {
	w.Helper()
	ctx := w.Context()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-listener", UID: "pvc", Labels: map[string]string{"a": "b"}}}
	pv := w.object(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE-work, labels: {listeners.stackable.tech/listener-name: web}},
  spec: {capacity: {storage: 1}, accessModes: [ReadWriteMany], claimRef: {namespace: NAMESPACE, name: web-listener, uid: pvc},
    csi: {driver: listeners.stackable.tech, volumeHandle: NAMESPACE-work, volumeAttributes: {a: b}}}}`)
	w.Expect(w.operator.Create(ctx, pv)).To(Succeed())
	ports := []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}
	w.applied(w.volumes, claim.OfClaim(pvc, nil).Listener("web", ports, nil), nil)
	listener := &listenersv1alpha1.Listener{}
	w.Expect(w.Get(ctx, client.ObjectKeyFromObject(pvc), listener)).To(Succeed())
	bound := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.GetName(), UID: pv.GetUID()}}
	w.applied(w.volumes, claim.OfClaim(pvc, bound).Listener("web", append(ports, listenersv1alpha1.ListenerPort{Name: "https", Port: 443}), nil), listener)

	// The annotation with numbers is on the Listeners of users, too.
	ofUser := w.object(`{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: of-user, labels: {a: b}}, spec: {className: web}}`)
	w.Expect(w.Create(ctx, ofUser)).To(Succeed())
	w.Expect(apply.PatchMetadata(ctx, w.operator, ofUser, names.FieldManagerDefault, map[string]any{"annotations": map[string]any{names.AnnotationNumbers: "{}"}})).To(Succeed())

	// The Listener of an ephemeral claim is kept by what controls its Pod, and deleted if no other Pod comes.
	kept := claim.OfClaim(pvc, bound).Listener("web", ports, nil)
	kept.SetName("web-0-listener")
	kept.SetAnnotations(map[string]string{names.AnnotationClaim: kept.GetName()})
	owners := kept.GetOwnerReferences()
	owners[0].Name = kept.GetName()
	kept.SetOwnerReferences(append(owners, metav1.OwnerReference{APIVersion: "core.strimzi.io/v1", Kind: "StrimziPodSet", Name: "web", UID: "set"}))
	w.applied(w.volumes, kept, nil)
	collected := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"core.strimzi.io/v1","kind":"StrimziPodSet","name":"web","uid":"set"}]}}`))
	w.Expect(w.Patch(ctx, kept.DeepCopy(), collected)).To(Succeed())
	w.Expect(w.operator.Delete(ctx, kept.DeepCopy())).To(MatchError(ContainSubstring("may delete no Listeners")))
	unused := &listenersv1alpha1.ListenerStatus{UnusedSince: &metav1.Time{Time: time.Unix(0, 0)}}
	_, err := apply.New(w.operator, names.FieldManagerListenerStatus).ApplyStatus(ctx, kept, unused, "")
	w.Expect(err).NotTo(HaveOccurred())
	w.deleted(kept)

	// The Listener of an inline volume belongs to its Pod, and is deleted when the Pod has finished.
	job, volume := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "job", UID: "job"}}, objects.InlineVolume("listener", map[string]string{names.LabelCertificate: "web"})
	w.lives(w.volumes, claim.OfInline(job, &volume).Listener("web", ports, nil))

	// A backup keeps only the annotation of a Listener, and only the labels of a Service.
	restored := w.object(`{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: web-1-listener, annotations: {
  listener-operator.dev/claim: web-1-listener}}, spec: {className: web}}`)
	w.Expect(w.Create(ctx, restored)).To(Succeed())
	pvc.Name = restored.GetName()
	w.applied(w.volumes, claim.OfClaim(pvc, bound).Listener("web", ports, nil), restored)
	service := w.object(`{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: restored, labels: {app.kubernetes.io/name: listener,
  app.kubernetes.io/instance: restored, app.kubernetes.io/managed-by: listeners.stackable.tech_listener}}, spec: {ports: [{name: http, port: 80}]}}`)
	w.Expect(w.Create(ctx, service)).To(Succeed())
	own := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "restored", UID: "restored"}, Spec: listenersv1alpha1.ListenerSpec{Ports: ports}}
	adopted, _ := w.serviceOf(&listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}}, own)
	w.applied(w.services, adopted, service)

	// A Pod pins the volume to its node. Then the volume ends.
	w.applied(w.volumes, w.object(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE-work}, spec: {nodeAffinity: {required: {nodeSelectorTerms: [
  {matchExpressions: [{key: listeners.stackable.tech/hostname, operator: In, values: [node]}]}]}}}}`), bound)
	w.deleted(bound)
	w.Expect(w.operator.Patch(ctx, bound, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	w.Expect(apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(bound), bound))).To(BeTrue())
}

// shopIsExposed writes what a Listener of a user gets: a Service, its status, a Route, an Ingress, a NetworkPolicy,
// routes of a Gateway and a Certificate.
func shopIsExposed(w *confinedWork, shop *listenersv1alpha1.Listener) {
	w.Helper()
	ctx := w.Context()
	class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}}
	var appliedService client.Object
	var routes, ingresses, networkPolicies, endpoints, certificates []*unstructured.Unstructured
	for _, name := range []string{"first", "second"} {
		shop.Labels = map[string]string{"is": name}
		service, _ := w.serviceOf(class, shop)
		w.applied(w.services, service, appliedService)
		appliedService = service
		routes = append(routes, w.of(shop, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: shop-http, labels: {is: `+name+`}},
  spec: {host: shop.example, to: {kind: Service, name: shop}, port: {targetPort: http}}}`))
		ingresses = append(ingresses, w.of(shop, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: shop-http}, spec: {ingressClassName: a, rules: [
  {host: `+name+`.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: http}}}}]}}]}}`))
		_, policy := w.serviceOf(allowing(map[string]listenersv1alpha1.CIDR{"first": "198.51.100.0/24", "second": "203.0.113.0/24"}[name]), shop)
		networkPolicies = append(networkPolicies, policy)
		endpoints = append(endpoints, w.of(shop, `{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {namespace: NAMESPACE, name: shop, labels: {is: `+name+`}},
  spec: {endpoints: [{dnsName: `+name+`.example, recordType: A, recordTTL: 60, targets: [192.0.2.1]}, {dnsName: _http._tcp.`+name+`.example, recordType: SRV, targets: [0 0 80 `+name+`.example]}]}}`))
		certificates = append(certificates, w.object(`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {namespace: default, name: shop-listener-tls, labels: {
  app.kubernetes.io/managed-by: listener-operator}}, spec: {secretName: shop-listener-tls, dnsNames: [`+name+`.example], ipAddresses: [192.0.2.1],
  usages: [digital signature, server auth, client auth], issuerRef: {name: a}}}`))
	}
	w.lives(w.services, routes...)
	w.lives(w.services, ingresses...)
	w.lives(w.services, networkPolicies...)
	w.lives(apply.New(w.operator, names.FieldManagerDNS), endpoints...)
	w.lives(apply.New(w.operator, names.FieldManagerOperator), certificates...)
	for _, route := range gatewayRoutes(w.T, shop) {
		w.lives(w.services, route.DeepCopy())
		// Those from a backup have no owners.
		restored := route.DeepCopy()
		restored.SetOwnerReferences(nil)
		w.Expect(w.Create(ctx, restored.DeepCopy())).To(Succeed())
		w.deleted(restored)
		w.Expect(w.Create(ctx, restored)).To(Succeed())
		w.applied(w.services, route, restored)
		w.deleted(route)
	}
	status := map[string]any{"serviceName": "shop", "ingressAddresses": []any{}}
	w.Expect(apply.New(w.operator, names.FieldManagerListenerStatus).ApplyStatus(ctx, shop, &status, "")).To(BeTrue())

	// Permissions allow more.
	const known, other = "nginx.ingress.kubernetes.io/proxy-body-size", "example.com/other"
	permit := func(resource string, resourceNames ...string) {
		w.Grant(rbacv1.PolicyRule{APIGroups: []string{"listener-operator.dev"}, Resources: []string{resource}, ResourceNames: resourceNames, Verbs: []string{"use"}})
	}
	withSecret := func(secret, annotation string) error {
		web := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "listener-web-1", UID: "x"}}
		return w.operator.Create(ctx, w.of(web, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x, annotations: {
  listeners.stackable.tech/pod: web-1, cert-manager.io/issuer: a, `+annotation+`: b}}, spec: {ingressClassName: a, tls: [{hosts: [web-1.example], secretName: `+secret+`}], rules: [
  {host: web-1.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: listener-web-1, port: {name: http}}}}]}}]}}`), client.DryRunAll)
	}
	w.Expect(withSecret("listener-web-1-http-tls", known)).To(Succeed())
	w.Expect(withSecret("web-1.tls", known)).To(Succeed())
	w.Expect(withSecret("wildcard", known)).To(MatchError(ContainSubstring("no Secrets in Ingresses")))
	w.Expect(withSecret("web-1.tls", other)).To(MatchError(ContainSubstring("annotations of Ingresses: " + other)))
	permit("ingresscertificates", "wildcard")
	permit("ingressannotations", other)
	w.Eventually(func() error { return withSecret("wildcard", other) }).Should(Succeed())
	class.Spec.ServiceOverrides.Raw = []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`)
	external, _ := w.serviceOf(class, shop)
	send := func() error {
		_, err := w.services.Apply(ctx, external.DeepCopy(), appliedService)
		return err
	}
	w.Expect(send()).To(MatchError(ContainSubstring("give it permission to use externalips.listener-operator.dev")))
	permit("externalips")
	w.Eventually(send).Should(Succeed())
}

// derivedIsExposed writes each kind of object that names the Service of a Listener, whose name is derived.
func derivedIsExposed(w *confinedWork, l *listenersv1alpha1.Listener) {
	w.Helper()
	service, policy := w.serviceOf(allowing("198.51.100.0/24"), l)
	derived := names.Service(l.Name)
	route := w.of(l, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: x-http},
  spec: {host: shop.example, to: {kind: Service, name: `+derived+`}, port: {targetPort: http}}}`)
	ingress := w.of(l, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x-http}, spec: {ingressClassName: a, rules: [
  {host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: `+derived+`, port: {name: http}}}}]}}]}}`)
	for _, o := range append([]*unstructured.Unstructured{service, policy, route, ingress}, gatewayRoutes(w.T, l)...) {
		w.applied(w.services, o, nil)
		w.Expect(w.Delete(w.Context(), o)).To(Succeed())
	}
}

// gatewayRoutes returns what the backends for the Gateway API generate for the Listener, in the versions that the API
// server serves.
func gatewayRoutes(t *testing.T, listener *listenersv1alpha1.Listener) []*unstructured.Unstructured {
	t.Helper()
	edge := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "edge"}}
	for _, protocol := range []gatewayv1.ProtocolType{gatewayv1.TCPProtocolType, gatewayv1.UDPProtocolType} {
		edge.Spec.Listeners = append(edge.Spec.Listeners, gatewayv1.Listener{
			Name: gatewayv1.SectionName(strings.ToLower(string(protocol))), Port: 9001, Protocol: protocol,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
		})
	}
	edge.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	var routes []*unstructured.Unstructured
	for _, exposed := range []*listenersv1alpha1.GatewayExposure{
		{Kind: listenersv1alpha1.GatewayRouteKindTLS}, {Kind: listenersv1alpha1.GatewayRouteKindHTTP}, {Kind: listenersv1alpha1.GatewayRouteKindTCP},
		{Kind: listenersv1alpha1.GatewayRouteKindUDP}, {Kind: listenersv1alpha1.GatewayRouteKindTCP, PortRange: "20000-20000"},
		{Kind: listenersv1alpha1.GatewayRouteKindUDP, PortRange: "20000-20000"},
	} {
		exposed.HostTemplate, exposed.ParentRefs = "{listener}.{namespace}.example", []listenersv1alpha1.GatewayParent{{Namespace: "infra", Name: "edge"}}
		desired, refusal := gateway.Backend(exposed.Kind).Objects(&exposure.Listener{
			Listener: listener, Referenced: []exposure.Object{edge},
			Class:   &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP, Gateway: exposed}},
			Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: listener.Namespace, Name: names.Service(listener.Name)}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "tcp", Port: 80}, {Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80}}}},
		}, exposure.Others{})
		if refusal != nil {
			t.Fatal(refusal)
		}
		for _, d := range desired {
			if d.GetKind() != "HTTPRoute" && d.GetKind() != "ListenerSet" {
				d.SetAPIVersion("gateway.networking.k8s.io/v1alpha2")
			}
			routes = append(routes, d.Unstructured)
		}
	}
	return routes
}
