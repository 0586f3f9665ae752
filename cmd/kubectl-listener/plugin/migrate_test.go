package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
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
	if err := m.List(t.Context(), &listeners); err != nil {
		t.Fatal(err)
	}
	for i := range listeners.Items {
		if err := m.Delete(t.Context(), &listeners.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// predecessor creates the workloads of Stackable's listener operator with their Pods, which end with the test. Its
// settings are not the defaults.
func predecessor(t *testing.T, namespace string, release map[string]string) *migrating {
	t.Helper()
	scheme := apiserver.Scheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(apiserver.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
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

// plan is the JSON of migrate.
type plan struct {
	result
	Steps    []planStep `json:"steps"`
	Rollback []planStep `json:"rollback"`
}

type planStep struct {
	Title    string   `json:"title"`
	Commands []string `json:"commands,omitempty"`
}

// migrate runs `kubectl listener migrate`, and returns the plan without what other tests have left.
func migrate(t *testing.T, args ...string) plan {
	t.Helper()
	out, err := run(t, apiserver.Config(t), append([]string{"migrate", "-o", "json"}, args...)...)
	var p plan
	if decodeErr := json.Unmarshal([]byte(out), &p); decodeErr != nil {
		t.Fatalf("error %v, output %q: %v", err, out, decodeErr)
	}
	if errors.Is(err, command.ErrProblem) != (p.Problem != nil) {
		t.Errorf("the error is %v, and the problem %+v", err, p.Problem)
	}
	p.Findings = slices.DeleteFunc(p.Findings, func(f found) bool {
		return (f.Kind == "ListenerClass" || f.Kind == "Listener" || f.Kind == "PersistentVolumeClaim") && !strings.HasPrefix(f.Name, "stackable-") ||
			strings.HasSuffix(f.Kind, "s") && f.Name == ""
	})
	p.Problem = nil
	return p
}

func TestMigrateSaysWhatChangesAndInWhichOrder(t *testing.T) {
	m := predecessor(t, "stackable-operators", map[string]string{
		"meta.helm.sh/release-name": "listener-operator", "meta.helm.sh/release-namespace": "stackable-operators",
	})
	m.create(t, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	m.refersToWebhook(t)
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
	golden.Compare(t, "migrate-helm", migrate(t, "--dry-run"))

	// This operator waits beside the other one, and has its settings: it only has to be applied again.
	m.create(t, &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}, Spec: operatorv1alpha1.ListenerOperatorSpec{
		Preset: operatorv1alpha1.PresetStableNodes, ClusterDomain: "k8s.example.com", NodeAgent: operatorv1alpha1.NodeAgentSpec{KubeletDir: "/var/snap/kubelet"},
	}})
	m.create(t, ownDeployment(m.namespace))
	golden.Compare(t, "migrate-waiting", migrate(t))
}

// ownDeployment returns a Deployment with the name of this operator's.
func ownDeployment(namespace string) *appsv1.Deployment {
	labels := map[string]string{"app": "x"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Operator}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}},
	}}
}

// newListener returns a Listener with a port.
func (m *migrating) newListener(name, class string) *listenersv1alpha1.Listener {
	return &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: name},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: &class, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
}

// refersToWebhook lets a definition refer to a webhook, as Stackable's listener operator does, until the test ends.
func (m *migrating) refersToWebhook(t *testing.T) {
	t.Helper()
	set := func(ctx context.Context, conversion *apiextensionsv1.CustomResourceConversion) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := m.Get(ctx, client.ObjectKey{Name: "listeners.listeners.stackable.tech"}, crd); err != nil {
			t.Fatal(err)
		}
		crd.Spec.Conversion = conversion
		if err := m.Update(ctx, crd); err != nil {
			t.Fatal(err)
		}
	}
	set(t.Context(), &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
			Namespace: m.namespace, Name: "listener-operator", Path: ptr.To("/convert/listener"), Port: ptr.To[int32](8443),
		}}, ConversionReviewVersions: []string{"v1"},
	}})
	t.Cleanup(func() {
		set(context.Background(), &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter})
	})
}

func TestMigrateRemovesWhatOLMInstalledByOLM(t *testing.T) {
	m := predecessor(t, "stackable-olm", nil)
	crds.Install(t, m.Client, crds.Administrators()...)
	defer crds.Remove(t, m.Client, crds.Administrators()...)
	for _, s := range []struct{ name, pkg string }{{"stackable", "stackable-listener-operator"}, {"own", "listener-operator"}} {
		m.create(t, m.olm("Subscription", s.name, nil, map[string]any{"name": s.pkg, "source": "catalog", "sourceNamespace": "olm", "channel": "stable"}))
	}
	version := map[string]any{"displayName": "Listener Operator", "install": map[string]any{"strategy": "deployment"}}
	label := map[string]string{"operators.coreos.com/stackable-listener-operator.stackable-olm": ""}
	m.create(t, m.olm("ClusterServiceVersion", "listener-operator.v26.7.0", label, version))
	m.create(t, m.olm("ClusterServiceVersion", "another.v1.0.0", nil, version))
	copied := m.olm("ClusterServiceVersion", "copied.v1.0.0", label, version)
	copied.SetLabels(map[string]string{"operators.coreos.com/stackable-listener-operator.stackable-olm": "", "olm.copiedFrom": "stackable-olm"})
	m.create(t, copied)
	golden.Compare(t, "migrate-olm", migrate(t, "--dry-run"))
}

func (m *migrating) olm(kind, name string, labels map[string]string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetAPIVersion("operators.coreos.com/v1alpha1")
	o.SetKind(kind)
	o.SetNamespace(m.namespace)
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

// Without an installer, workloads are deleted one by one. An object without Pods does not count.
func TestMigrateFindsWhatRuns(t *testing.T) {
	t.Run("neither Helm nor OLM", func(t *testing.T) {
		predecessor(t, "stackable-plain", nil)
		p := migrate(t)
		want := []string{
			"kubectl delete daemonset listener-operator-csi-node-driver --namespace stackable-plain",
			"kubectl delete deployment listener-operator-csi-provisioner --namespace stackable-plain",
		}
		if i := slices.IndexFunc(p.Steps, func(s planStep) bool { return strings.HasPrefix(s.Title, "Uninstall") }); i < 0 || !slices.Equal(p.Steps[i].Commands, want) {
			t.Errorf("steps %+v", p.Steps)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		p := migrate(t)
		if len(p.Steps) != 2 || !strings.HasPrefix(p.Steps[0].Title, "Install this operator.") || p.Steps[1].Title != "Check." {
			t.Errorf("steps %+v", p.Steps)
		}
	})
	t.Run("this operator alone", func(t *testing.T) {
		m := &migrating{world: &world{Client: apiserver.Client(t), namespace: apiserver.Namespace(t)}}
		m.create(t, ownDeployment(m.namespace))
		if p := migrate(t); len(p.Steps) != 0 || len(p.Rollback) != 0 {
			t.Errorf("steps %+v, back %+v", p.Steps, p.Rollback)
		}
		out, _ := run(t, apiserver.Config(t), "migrate", "--dry-run")
		if !strings.Contains(out, "\nThere is nothing to move. ") || strings.Contains(out, "kubectl delete") {
			t.Errorf("output:\n%s", out)
		}
	})
}

func TestMigrateNeverChangesAnything(t *testing.T) {
	if out, err := run(t, apiserver.Config(t), "migrate", "--dry-run=false"); err == nil || !strings.Contains(err.Error(), "changes nothing") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestMigrateSaysWhatTheUserMayNotRead(t *testing.T) {
	config := apiserver.WithToken(t, apiserver.Config(t), apiserver.Namespace(t), "nobody")
	out, err := run(t, config, "migrate", "-o", "json")
	var p plan
	if decodeErr := json.Unmarshal([]byte(out), &p); decodeErr != nil || err != nil {
		t.Fatalf("error %v, output %q: %v", err, out, decodeErr)
	}
	unknown := 0
	for _, f := range p.Findings {
		if f.State == "Unknown" {
			unknown++
		}
	}
	if unknown < 5 {
		t.Errorf("findings %+v", p.Findings)
	}
}
