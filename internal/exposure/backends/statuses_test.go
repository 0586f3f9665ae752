package backends_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	routev1 "github.com/openshift/api/route/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// verdict is by which file a field is read, or why none reads it.
type verdict struct{ file, not string }

func by(file string) verdict { return verdict{file: file} }
func not(why string) verdict { return verdict{not: why} }

// status is the type in which controllers report about a kind.
type status struct {
	kind string
	reflect.Type
}

// statuses are those of the kinds that backends generate or read, and of those that a way of exposing Pods reads or
// causes beside them. A NetworkPolicy has none. The operator writes no DNSEndpoint, because external-dns reads the
// Service. It reads no XListenerSets and Endpoints, because ListenerSets and EndpointSlices have replaced them.
func statuses(t *testing.T) []status {
	t.Helper()
	all := []status{
		{"Service", reflect.TypeFor[corev1.ServiceStatus]()},
		{"PodCertificateRequest", reflect.TypeFor[certificatesv1.PodCertificateRequestStatus]()},
		{"EndpointSlice", reflect.TypeFor[discoveryv1.EndpointSlice]()}, // which is all status
		{"Node", reflect.TypeFor[corev1.NodeStatus]()},
		{"PersistentVolume", reflect.TypeFor[corev1.PersistentVolumeStatus]()},
		{"PersistentVolumeClaim", reflect.TypeFor[corev1.PersistentVolumeClaimStatus]()},
		{"Pod", reflect.TypeFor[corev1.PodStatus]()},
	}
	scheme := runtime.NewScheme()
	check.Must(t, backends.All().AddToScheme(scheme))
	for _, backend := range backends.All() {
		for _, kind := range backend.Kinds() {
			object, err := scheme.New(kind.GroupVersionKind)
			check.Must(t, err)
			reported, _ := reflect.TypeOf(object).Elem().FieldByName("Status")
			all = append(all, status{kind.Kind, reported.Type})
		}
	}
	return all
}

const (
	ofGateway      = "internal/exposure/gateway/addresses.go"
	ofIngress      = "internal/exposure/ingress/backend.go"
	ofListenerSet  = "internal/exposure/gateway/addresses.go"
	ofLoadBalancer = "internal/exposure/serviceaddresses/backend.go"
	ofNode         = "internal/exposure/nodeaddresses.go"
	ofReferences   = "internal/exposure/gateway/backend.go"
	ofRoute        = "internal/exposure/route/backend.go"
	ofService      = "internal/exposure/serviceaddresses/backend.go"

	walkCertificate = "cmd/kubectl-listener/plugin/walk/certificate.go"
	walkClaim       = "cmd/kubectl-listener/plugin/walk/claim.go"
	walkEndpoints   = "cmd/kubectl-listener/plugin/walk/endpoints.go"
	walkNode        = "cmd/kubectl-listener/plugin/walk/node.go"
	walkPod         = "cmd/kubectl-listener/plugin/walk/pod.go"
	walkVolume      = "cmd/kubectl-listener/plugin/walk/volume.go"

	fact         = "a fact that explains nothing"
	since        = "the Listener's own condition says since when"
	counts       = "a number that changes with every Listener"
	inEvents     = "the kubelet or the scheduler says so in a condition or an event"
	noSize       = "a listener volume has no size"
	inUID        = "the UID identifies the Pod"
	inCert       = "the certificate has it"
	inConditions = "the conditions Ready and Issuing say what follows from it"
)

// verdicts has a row for each field of each type in which a controller may explain itself. The fields of a type that is
// not read need none.
func verdicts() map[reflect.Type]map[string]verdict {
	return map[reflect.Type]map[string]verdict{
		reflect.TypeFor[corev1.ServiceStatus]():      {"LoadBalancer": by(ofService), "Conditions": by(ofLoadBalancer)},
		reflect.TypeFor[corev1.LoadBalancerStatus](): {"Ingress": by(ofService)},
		reflect.TypeFor[corev1.LoadBalancerIngress](): {
			"IP": by(ofService), "Hostname": by(ofService), "Ports": by(ofLoadBalancer), "IPMode": not("it decides how nodes treat clients inside the cluster"),
		},
		reflect.TypeFor[corev1.PortStatus](): {"Port": by(ofLoadBalancer), "Protocol": by(ofLoadBalancer), "Error": by(ofLoadBalancer)},
		reflect.TypeFor[metav1.Condition](): {
			"Type": by(ofLoadBalancer), "Status": by(ofLoadBalancer), "Reason": by(ofLoadBalancer), "Message": by(ofLoadBalancer),
			"ObservedGeneration": not("not every controller sets it, and what it says about an earlier generation is soon replaced"), "LastTransitionTime": not(since),
		},

		reflect.TypeFor[routev1.RouteStatus](): {"Ingress": by(ofRoute)},
		reflect.TypeFor[routev1.RouteIngress](): {
			"Host": by(ofRoute), "RouterName": by(ofRoute), "Conditions": by(ofRoute), "WildcardPolicy": not(fact),
			"RouterCanonicalHostname": not("what records of the host lead to is external-dns' concern"),
		},
		reflect.TypeFor[routev1.RouteIngressCondition](): {
			"Type": by(ofRoute), "Status": by(ofRoute), "Reason": by(ofRoute), "Message": by(ofRoute), "LastTransitionTime": by(ofRoute),
		},

		reflect.TypeFor[networkingv1.IngressStatus]():              {"LoadBalancer": by(ofIngress)},
		reflect.TypeFor[networkingv1.IngressLoadBalancerStatus]():  {"Ingress": by(ofIngress)},
		reflect.TypeFor[networkingv1.IngressLoadBalancerIngress](): {"IP": by(ofIngress), "Hostname": by(ofIngress), "Ports": by(ofIngress)},
		reflect.TypeFor[networkingv1.IngressPortStatus]():          {"Port": by(ofIngress), "Error": by(ofIngress), "Protocol": not("Ingresses have TCP alone")},

		reflect.TypeFor[gatewayv1.GatewayStatus](): {
			"Addresses": by(ofGateway), "Conditions": by(ofGateway), "Listeners": by(ofGateway), "AttachedListenerSets": not(counts),
		},
		reflect.TypeFor[gatewayv1.GatewayStatusAddress](): {"Type": by(ofGateway), "Value": by(ofGateway)},
		reflect.TypeFor[gatewayv1.ListenerStatus](): {
			"Name": by(ofGateway), "Conditions": by(ofGateway), "AttachedRoutes": not(counts), "SupportedKinds": not("the condition ResolvedRefs says that a kind is not supported"),
		},
		reflect.TypeFor[gatewayv1.ListenerSetStatus](): {"Conditions": by(ofListenerSet), "Listeners": by(ofListenerSet)},
		reflect.TypeFor[gatewayv1.ListenerEntryStatus](): {
			"Name": by(ofListenerSet), "Conditions": by(ofListenerSet), "AttachedRoutes": not(counts), "SupportedKinds": not("the condition ResolvedRefs says that a kind is not supported"),
		},
		reflect.TypeFor[gatewayv1.RouteStatus](): {"Parents": by(ofReferences)},
		reflect.TypeFor[gatewayv1.RouteParentStatus](): {
			"ParentRef": by(ofGateway), "Conditions": by(ofGateway), "ControllerName": not("a Gateway has one controller, and messages name the Gateway"),
		},
		reflect.TypeFor[gatewayv1.ParentReference](): {
			"Group": by(ofReferences), "Kind": by(ofReferences), "Namespace": by(ofReferences), "Name": by(ofReferences), "SectionName": by(ofReferences), "Port": by(ofReferences),
		},

		reflect.TypeFor[certificatesv1.PodCertificateRequestStatus](): {
			"Conditions": by(walkCertificate), "CertificateChain": by(walkCertificate), "BeginRefreshAt": by(walkCertificate), "NotBefore": not(inCert), "NotAfter": not(inCert),
		},

		reflect.TypeFor[discoveryv1.EndpointSlice](): {
			"AddressType": not("a Pod counts once for both families"), "Endpoints": by(walkEndpoints), "Ports": not("they follow from the Service"),
		},
		reflect.TypeFor[discoveryv1.Endpoint](): {
			"Addresses": by(walkEndpoints), "Conditions": by(walkEndpoints), "TargetRef": by(walkEndpoints),
			"Hostname": not(fact), "DeprecatedTopology": not(fact), "NodeName": not("the Pod has it"), "Zone": not(fact), "Hints": not("they are for clients inside the cluster"),
		},
		reflect.TypeFor[discoveryv1.EndpointConditions](): {
			"Ready": by(walkEndpoints), "Serving": not("the Pod says that it is being deleted"), "Terminating": not("the Pod says that it is being deleted"),
		},
		reflect.TypeFor[corev1.ObjectReference](): {
			"UID": by(walkEndpoints), "Kind": not(inUID), "Namespace": not(inUID), "Name": not(inUID), "APIVersion": not(inUID), "ResourceVersion": not(inUID), "FieldPath": not(inUID),
		},

		reflect.TypeFor[corev1.NodeStatus](): {
			"Conditions": by(walkNode), "Addresses": by(ofNode),
			"Capacity": not(fact), "Allocatable": not(inEvents), "Phase": not("nothing sets it"), "DaemonEndpoints": not(fact), "NodeInfo": not(fact), "Images": not(fact),
			"VolumesInUse": not("the driver attaches nothing"), "VolumesAttached": not("the driver attaches nothing"), "Config": not("nothing sets it"),
			"RuntimeHandlers": not(fact), "Features": not(fact), "DeclaredFeatures": not(inEvents),
		},
		reflect.TypeFor[corev1.NodeCondition](): {
			"Type": by(walkNode), "Status": by(walkNode), "Reason": by(walkNode), "Message": by(walkNode), "LastTransitionTime": by(walkNode),
			"LastHeartbeatTime": not("the condition Ready follows from it"),
		},
		reflect.TypeFor[corev1.NodeAddress](): {"Type": by(ofNode), "Address": by(ofNode)},

		reflect.TypeFor[corev1.PersistentVolumeStatus](): {
			"Phase": by(walkVolume), "Message": by(walkVolume), "Reason": by(walkVolume), "LastPhaseTransitionTime": not(since),
		},
		reflect.TypeFor[corev1.PersistentVolumeClaimStatus](): {
			"Phase": by(walkClaim), "AccessModes": not(fact), "Capacity": not(noSize), "Conditions": not("they are about a change of size or attributes, which a listener volume lacks"),
			"AllocatedResources": not(noSize), "AllocatedResourceStatuses": not(noSize), "CurrentVolumeAttributesClassName": not("the driver has no attributes"),
			"ModifyVolumeStatus": not("the driver has no attributes"), "HealthStatus": not("drivers report it, and this one does not"),
		},

		reflect.TypeFor[corev1.PodStatus](): {
			"Phase": by(walkPod), "Conditions": by("cmd/kubectl-listener/plugin/check/reader.go"), "Message": by(walkPod), "Reason": by(walkPod), "PodIP": by(walkEndpoints),
			"InitContainerStatuses": by(walkPod), "ContainerStatuses": by(walkPod),
			"ObservedGeneration": not(fact), "NominatedNodeName": not(inEvents), "HostIP": not("the Node has it"), "HostIPs": not("the Node has them"),
			"PodIPs": not("EndpointSlices have them"), "StartTime": not(fact), "QOSClass": not(fact), "EphemeralContainerStatuses": not("they serve no clients"),
			"Resize": not(inEvents), "ResourceClaimStatuses": not(inEvents), "ExtendedResourceClaimStatus": not(inEvents), "AllocatedResources": not(fact), "Resources": not(fact),
			"NodeAllocatableResourceClaimStatuses": not(fact), "VolumeHealth": not("drivers report it, and this one does not"),
		},
		reflect.TypeFor[corev1.PodCondition](): {
			"Type": by("cmd/kubectl-listener/plugin/check/reader.go"), "Status": by(walkPod), "Reason": by(walkPod), "Message": by(walkPod), "LastTransitionTime": by(walkPod),
			"ObservedGeneration": not(fact), "LastProbeTime": not("nothing sets it"),
		},
		reflect.TypeFor[corev1.ContainerStatus](): {
			"Name": by(walkPod), "State": by(walkPod), "LastTerminationState": by(walkPod), "RestartCount": by(walkPod), "Image": by(walkPod),
			"Ready": not("the condition Ready of the Pod names the container"), "ImageID": not(fact), "ContainerID": not(fact), "Started": not(inEvents),
			"AllocatedResources": not(fact), "Resources": not(fact), "VolumeMounts": not(fact), "User": not(fact), "AllocatedResourcesStatus": not(inEvents), "StopSignal": not(fact),
		},
		reflect.TypeFor[corev1.ContainerState]():        {"Waiting": by(walkPod), "Running": by(walkPod), "Terminated": by(walkPod)},
		reflect.TypeFor[corev1.ContainerStateWaiting](): {"Reason": by(walkPod), "Message": by(walkPod)},
		reflect.TypeFor[corev1.ContainerStateRunning](): {"StartedAt": by(walkPod)},
		reflect.TypeFor[corev1.ContainerStateTerminated](): {
			"ExitCode": by(walkPod), "Reason": by(walkPod), "Message": by(walkPod), "FinishedAt": by(walkPod),
			"Signal": not("the exit code contains it"), "StartedAt": not(fact), "ContainerID": not(fact),
		},
	}
}

// verdictsOfCRDs are those of kinds that the operator has no Go types for.
func verdictsOfCRDs() map[crds.CRD]map[string]verdict {
	return map[crds.CRD]map[string]verdict{
		crds.Certificates: {
			"conditions": by(walkCertificate), "conditions[].type": by(walkCertificate), "conditions[].status": by(walkCertificate), "conditions[].reason": by(walkCertificate),
			"conditions[].message": by(walkCertificate), "conditions[].lastTransitionTime": not(since), "conditions[].observedGeneration": not("cert-manager replaces what it says soon"),
			"acme": not("when to renew, as the ACME server suggests; the condition Issuing says that it failed"), "failedIssuanceAttempts": not(inConditions), "lastFailureTime": not(inConditions), "nextPrivateKeySecretName": not(fact), "notAfter": not(inConditions),
			"notBefore": not(inConditions), "renewalTime": not(inConditions), "revision": not(fact),
		},
		crds.CertificateRequests: {
			"ca": not(fact), "certificate": not(fact), "failureTime": not(inConditions),
			"conditions": by(walkCertificate), "conditions[].type": by(walkCertificate), "conditions[].status": by(walkCertificate), "conditions[].reason": by(walkCertificate),
			"conditions[].message": by(walkCertificate), "conditions[].lastTransitionTime": not(since),
		},
	}
}

// A later version of a library may add a field in which controllers explain themselves.
func TestEachFieldOfAStatusIsReadOrNotForAReason(t *testing.T) {
	all := verdicts()
	var walk func(path string, of reflect.Type)
	walked := map[reflect.Type]bool{}
	walk = func(path string, of reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, of.Kind()) {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of == reflect.TypeFor[metav1.Time]() || walked[of] {
			return
		}
		walked[of] = true
		fields := map[string]bool{}
		for f := range of.Fields() {
			switch v, ok := all[of][f.Name]; {
			case f.Type == reflect.TypeFor[metav1.TypeMeta](), f.Type == reflect.TypeFor[metav1.ObjectMeta]():
			case f.Anonymous:
				walk(path, f.Type)
			case !ok:
				t.Errorf("%s.%s (%s.%s) has no row", path, f.Name, of, f.Name)
			default:
				checkVerdict(t, path+"."+f.Name, v, "."+f.Name)
				if v.not == "" {
					walk(path+"."+f.Name, f.Type)
				}
			}
			fields[f.Name] = true
		}
		for name := range all[of] {
			if !fields[name] {
				t.Errorf("%s has no field %s any more", of, name)
			}
		}
	}
	for _, s := range statuses(t) {
		walk(s.kind, s.Type)
	}
	for of := range all {
		if !walked[of] {
			t.Errorf("%s is in no status any more", of)
		}
	}
	if _, has := reflect.TypeFor[networkingv1.NetworkPolicy]().FieldByName("Status"); has {
		t.Error("a NetworkPolicy has a status")
	}
}

func TestEachFieldOfAStatusWithoutGoTypeIsReadOrNotForAReason(t *testing.T) {
	for name, rows := range verdictsOfCRDs() {
		versions, _, _ := unstructured.NestedSlice(crds.Read(t, name).Object, "spec", "versions")
		for _, version := range versions {
			schema, _, _ := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema", "properties", "status")
			fields := map[string]bool{}
			var walk func(path string, schema map[string]any)
			walk = func(path string, schema map[string]any) {
				properties, _, _ := unstructured.NestedMap(schema, "properties")
				for field, of := range properties {
					v, ok := rows[path+field]
					if !ok {
						t.Errorf("%s: status.%s has no row", name, path+field)
						continue
					}
					fields[path+field] = true
					checkVerdict(t, string(name)+" status."+path+field, v, `"`+field+`"`, "."+strings.ToUpper(field[:1])+field[1:])
					if items, _, _ := unstructured.NestedMap(of.(map[string]any), "items"); v.not == "" {
						walk(path+field+"[].", items)
					}
				}
			}
			walk("", schema)
			for field := range rows {
				if !fields[field] {
					t.Errorf("%s has no status.%s any more", name, field)
				}
			}
		}
	}
}

// checkVerdict checks that a field which is read occurs in the file that reads it, in one of the forms.
func checkVerdict(t *testing.T, path string, v verdict, forms ...string) {
	t.Helper()
	root, err := checkout.Root()
	check.Must(t, err)
	if v.not != "" {
		return
	}
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(v.file)))
	if err != nil || !slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(string(content), form) }) {
		t.Errorf("%s is not read by %s: %v", path, v.file, err)
	}
}
