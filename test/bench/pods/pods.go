// Package pods measures on a real cluster what a listener volume costs a Pod: how long the Pod takes to start, which
// requests are sent for it, and which processes work for it. It compares Pods that differ in nothing but one volume.
//
// It judges nothing.
package pods

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/install"
)

// clusterName is the name of the benchmarks' cluster on this machine.
const clusterName = "bench"

// Names of what the benchmarks create.
const (
	className  = "bench"
	volumeName = "listener"
	// kept begins the names of the claims that stay bound between Pods.
	kept = "kept-"
)

// Bench is a cluster with the operator.
type Bench struct {
	cluster  *cluster.Cluster
	api      client.WithWatch
	progress *cluster.Progress
}

// Up brings up the cluster, or completes it, and installs the operator.
func Up(ctx context.Context, progress *cluster.Progress) (*Bench, error) {
	progress.Printf("bringing up a cluster of 3 nodes")
	c, err := cluster.Up(ctx, cluster.Options{Name: clusterName, Nodes: 3})
	if err != nil {
		return nil, err
	}
	b := &Bench{cluster: c, progress: progress}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, listenersv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	if b.api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if err := install.Operator(ctx, c, progress); err != nil {
		return nil, fmt.Errorf("installing the operator: %w", err)
	}
	return b, b.create(ctx, &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
	})
}

// Down deletes the cluster.
func Down(ctx context.Context) error { return cluster.Down(ctx, clusterName, nil) }

// create creates objects, unless they exist.
func (b *Bench) create(ctx context.Context, objects ...client.Object) error {
	for _, o := range objects {
		if err := b.api.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// Names of the variants of Pods. Each has a namespace of its own.
const (
	EmptyDir        = "emptyDir"
	EmptyDirService = "emptyDir and a Service"
	HostPath        = "hostPath of a fresh claim and a Service"
	Inline          = "inline volume"
	Bound           = "bound claim"
	Fresh           = "fresh claim"
	FreshReplica    = "fresh claim of a replica"
	Certified       = "fresh claim and a certificate"
)

// variant is a kind of Pod.
type variant struct {
	name string
	// objects returns the objects that are created for a Pod with this name and number; the Pod is the last one.
	objects func(name string, number int) []client.Object
	// bound states that the claims of the Pods are bound before.
	bound bool
}

// variants returns all variants, in the order of the results.
func variants() []variant {
	single := func(p *corev1.Pod) []client.Object { return []client.Object{p} }
	emptyDir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	return []variant{
		{name: EmptyDir, objects: func(name string, _ int) []client.Object { return single(newPod(name, emptyDir)) }},
		{name: EmptyDirService, objects: func(name string, _ int) []client.Object {
			return []client.Object{newService(name), newPod(name, emptyDir)}
		}},
		{name: HostPath, objects: func(name string, _ int) []client.Object {
			return []client.Object{newHostPath(name), newStaticClaim(name), newService(name), newPod(name, claimed(name))}
		}},
		{name: Inline, objects: func(name string, _ int) []client.Object {
			return single(newPod(name, objects.InlineVolume(volumeName, annotations()).VolumeSource))
		}},
		{name: Bound, bound: true, objects: func(name string, number int) []client.Object {
			return single(newPod(name, claimed(keptName(number))))
		}},
		{name: Fresh, objects: func(name string, _ int) []client.Object { return single(newPod(name, ephemeral())) }},
		{name: FreshReplica, objects: func(name string, _ int) []client.Object {
			return []client.Object{newClaim(name), newPod(name, claimed(name))}
		}},
		{name: Certified, objects: func(name string, _ int) []client.Object {
			return single(withCertificate(newPod(name, ephemeral())))
		}},
	}
}

// selectVariants returns the variants with these names.
func selectVariants(selected ...string) []variant {
	var found []variant
	for _, v := range variants() {
		for _, name := range selected {
			if v.name == name {
				found = append(found, v)
			}
		}
	}
	return found
}

// namespace returns the namespace of a variant.
func (v variant) namespace() string {
	return "bench-" + strings.ReplaceAll(strings.ToLower(v.name), " ", "-")
}

func keptName(number int) string { return fmt.Sprintf("%s%d", kept, number) }

func annotations() map[string]string {
	return map[string]string{names.AnnotationListenerClass: className}
}

func newPod(name string, source corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "pause", Image: cluster.PauseImage,
				Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "echo", ContainerPort: 9090, Protocol: corev1.ProtocolUDP}},
				VolumeMounts: []corev1.VolumeMount{{Name: volumeName, MountPath: "/listener"}},
			}},
			Volumes:                       []corev1.Volume{{Name: volumeName, VolumeSource: source}},
			TerminationGracePeriodSeconds: ptr.To[int64](1),
		},
	}
}

// withCertificate adds a volume with a certificate for the addresses of a Pod.
func withCertificate(p *corev1.Pod) *corev1.Pod {
	const name = "tls"
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/tls"})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			PodCertificate: &corev1.PodCertificateProjection{SignerName: names.Signer, KeyType: "ECDSAP256", CredentialBundlePath: "bundle.pem"},
		}}},
	}})
	return p
}

// newService returns a Service as the operator creates it for such a Pod.
func newService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080}, {Name: "echo", Port: 9090, Protocol: corev1.ProtocolUDP}},
		},
	}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations()}, Spec: objects.ClaimSpec("")}
}

// newHostPath returns a PersistentVolume of Kubernetes' simplest kind for a static claim.
func newHostPath(claim string) *corev1.PersistentVolume {
	spec := claimSpec("")
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "bench-" + claim}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: spec.AccessModes, Capacity: spec.Resources.Requests,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}},
	}}
}

// newStaticClaim returns the claim of such a volume.
func newStaticClaim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claimSpec("")}
	claim.Spec.VolumeName = "bench-" + name
	return claim
}

func claimed(name string) corev1.VolumeSource {
	return objects.ClaimVolume(volumeName, name).VolumeSource
}

func ephemeral() corev1.VolumeSource {
	return objects.EphemeralVolume(volumeName, annotations()).VolumeSource
}
