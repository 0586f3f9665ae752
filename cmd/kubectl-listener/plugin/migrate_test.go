package plugin_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

// migrating is a cluster in which Stackable's listener operator runs, as its Helm chart leaves it.
type migrating struct {
	*world
	release map[string]string // annotations
}

// deleteListeners deletes the Listeners that tests before have left. The classes that they name would show settings.
func (m *migrating) deleteListeners(t *testing.T) {
	t.Helper()
	var listeners listenersv1alpha1.ListenerList
	check.Must(t, m.List(t.Context(), &listeners))
	for i := range listeners.Items {
		check.Must(t, m.Delete(t.Context(), &listeners.Items[i]))
	}
}

// predecessor creates the workloads of Stackable's listener operator with their Pods, which end with the test. Its
// settings are not the defaults.
func predecessor(t *testing.T, namespace string, release map[string]string) *migrating {
	t.Helper()
	scheme := apiserver.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	check.Must(t, err)
	m := &migrating{world: &world{Client: c, namespace: namespace}, release: release}
	m.deleteListeners(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	const account = "listener-operator-serviceaccount"
	m.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "listener-operator-clusterrolebinding"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	})
	m.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}})
	program := corev1.Container{Name: "csi", Image: "example/listener-operator:26.7.0", Env: []corev1.EnvVar{
		{Name: "LISTENER_CLASS_PRESET", Value: "stable-nodes"}, {Name: "KUBERNETES_CLUSTER_DOMAIN", Value: "k8s.example.com"},
	}}
	labels := func(role string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/role": role}
	}
	provisioner := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels("provisioner")},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{program}},
	}
	driver := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels("node-driver")},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, Containers: []corev1.Container{program}, NodeSelector: map[string]string{"example.com/pool": "data"},
			Volumes: []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/snap/kubelet/plugins/" + names.Driver + "/"},
			}}},
		},
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: release}
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta("listener-operator-csi-provisioner"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels("provisioner")}, Template: provisioner,
	}}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: meta("listener-operator-csi-node-driver"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels("node-driver")}, Template: driver,
	}}
	m.create(t, deployment)
	m.create(t, daemonSet)
	m.create(t, podOf(provisioner, "ReplicaSet", deployment.Name+"-6d4cf56db6", namespace))
	m.create(t, podOf(driver, "DaemonSet", daemonSet.Name, namespace))
	return m
}

// podOf returns a Pod of a template that belongs to a controller.
func podOf(template corev1.PodTemplateSpec, kind, owner, namespace string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = namespace, owner+"-x2x7k"
	pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = "6d4cf56db6"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "uid", Controller: ptr.To(true)}}
	return pod
}

// migrate runs `kubectl listener migrate`, and returns the report without what other tests have left.
func migrate(t *testing.T) result {
	t.Helper()
	r := resultOf(t, apiserver.Config(t), "migrate")
	r.Findings = slices.DeleteFunc(r.Findings, func(f found) bool {
		return (f.Kind == "ListenerClass" || f.Kind == "Listener" || f.Kind == "PersistentVolumeClaim") && !strings.HasPrefix(f.Name, "stackable-") ||
			strings.HasSuffix(f.Kind, "s") && f.Name == ""
	})
	r.Problem = nil
	return r
}

func TestMigrateSaysWhatChanges(t *testing.T) {
	m := predecessor(t, "stackable-operators", map[string]string{
		"meta.helm.sh/release-name": "listener-operator", "meta.helm.sh/release-namespace": "stackable-operators",
	})
	own := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "stackable-own"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort},
	}
	m.create(t, own)
	charted := own.DeepCopy()
	charted.ResourceVersion, charted.UID, charted.Name, charted.Annotations = "", "", "stackable-of-the-chart", m.release
	m.create(t, charted)
	kept := charted.DeepCopy()
	kept.ResourceVersion, kept.UID, kept.Name = "", "", "stackable-kept"
	kept.Annotations = map[string]string{"helm.sh/resource-policy": "keep"}
	maps.Copy(kept.Annotations, m.release)
	m.create(t, kept)
	l := m.newListener("stackable-same", own.Name)
	m.create(t, l)
	l = m.newListener("stackable-overrides", own.Name)
	l.Spec.ObjectOverrides = []runtime.RawExtension{{Raw: []byte(
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"stackable-overrides","namespace":"stackable-operators"},"spec":{"type":"ClusterIP"}}`,
	)}}
	m.create(t, l)
	m.create(t, m.newListener("stackable-no-class", "absent"))
	m.create(t, m.newClaim("stackable-both", map[string]string{names.AnnotationListenerClass: own.Name, names.AnnotationListenerName: "stackable-same"}))
	moved := m.newClaim("stackable-moved", ofClass(own.Name))
	m.create(t, moved)
	l = m.newListener(moved.Name, kept.Name)
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: moved.Name, UID: moved.UID}}
	m.create(t, l)
	golden.Compare(t, "migrate-helm", migrate(t))

	// This operator waits beside the other one, and has its settings.
	m.create(t, &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}, Spec: operatorv1alpha1.ListenerOperatorSpec{
		Preset: operatorv1alpha1.PresetStableNodes, ClusterDomain: "k8s.example.com", NodeAgent: operatorv1alpha1.NodeAgentSpec{KubeletDir: "/var/snap/kubelet"},
	}})
	golden.Compare(t, "migrate-waiting", migrate(t))
}

// newListener returns a Listener with a port.
func (m *migrating) newListener(name, class string) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
}

func TestMigrateFindsNothingIfNothingRuns(t *testing.T) {
	out, err := run(t, apiserver.Config(t), "migrate")
	if err != nil || !strings.Contains(out, "Stackable's listener operator does not run") || !strings.Contains(out, "Nothing blocks the move.") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestMigrateSaysWhatTheUserMayNotRead(t *testing.T) {
	r := resultOf(t, apiserver.WithToken(t, apiserver.Config(t), apiserver.Namespace(t), "nobody"), "migrate")
	unknown := 0
	for _, f := range r.Findings {
		if f.State == "Unknown" {
			unknown++
		}
	}
	if unknown != len(r.Findings) || unknown < 4 {
		t.Errorf("findings %+v", r.Findings)
	}
}
