package main

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/platform"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// writes records the writes of an operator.
type writes struct {
	http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
	}
	return w.RoundTripper.RoundTrip(r)
}

// unexpected returns the writes other than those of an operator that only reports.
func (w *writes) unexpected(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.seen), func(write string) bool {
		return slices.Contains([]string{
			"POST /apis/listener-operator.dev/v1alpha1/listeneroperators",
			"PATCH /apis/listener-operator.dev/v1alpha1/listeneroperators/cluster/status",
			"POST /api/v1/namespaces/" + namespace + "/configmaps",
			"POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		}, write) || strings.Contains(write, "/apis/events.k8s.io/v1/")
	})
}

// moving is a cluster in which Stackable's listener operator runs when this one is installed.
type moving struct {
	*testing.T
	client.Client
	config    *rest.Config
	namespace string
	// nodeDriver and provisioner are Pods of Stackable's listener operator.
	nodeDriver, provisioner *corev1.Pod
	// csiDriver, listener and claim are what both operators write, or provision.
	csiDriver *storagev1.CSIDriver
	listener  *listenersv1alpha1.Listener
	claim     *corev1.PersistentVolumeClaim
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	m := &moving{T: t, config: rest.CopyConfig(apiserver.PlainConfig(t))}
	var err error
	if m.Client, err = client.New(m.config, client.Options{Scheme: apiserver.Scheme()}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	m.create(namespace)
	m.namespace = namespace.Name
	m.nodeDriver, m.provisioner = m.stackablePod("DaemonSet", "sdp-csi-node-driver", ""), m.stackablePod("ReplicaSet", "sdp-csi-provisioner-6d4cf56db6", "provisioner")
	m.nodeDriver.Spec.Volumes = []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/listeners.stackable.tech/"},
	}}}
	m.csiDriver = &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: names.Driver},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
		},
	}
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "internal"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	}
	m.listener = &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "web"},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To(class.Name), Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 80}}},
	}
	m.claim = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "web", Annotations: map[string]string{
			names.AnnotationListenerName: m.listener.Name, names.AnnotationProvisioner: names.Driver,
		}},
		Spec: objects.ClaimSpec(""),
	}
	m.create(
		// As the chart's: one ServiceAccount for both.
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sdp-clusterrole"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners", "listeners/status"}, Verbs: []string{"patch", "create"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "sdp-clusterrolebinding"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sdp-clusterrole"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: m.namespace, Name: "sdp-serviceaccount"}},
		},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: names.NodeAgent}}, // of this operator's manifests
		m.csiDriver, class, m.listener, m.claim, m.nodeDriver, m.provisioner,
	)
	return m
}

func (m *moving) stackablePod(kind, owner, role string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.namespace, Name: owner + "-x2x7k",
			Labels: map[string]string{
				"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/instance": "sdp", "app.kubernetes.io/role": role, "pod-template-hash": "6d4cf56db6",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "uid", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "sdp-serviceaccount", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "csi", Image: "listener-operator:26.7.0"}},
		},
	}
}

func (m *moving) create(objects ...client.Object) {
	m.Helper()
	for _, o := range objects {
		check.Must(m, m.Create(m.Context(), o))
	}
}

// start runs the whole operator, and returns its writes.
func (m *moving) start() *writes {
	m.Helper()
	recorded, config := &writes{}, rest.CopyConfig(m.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { recorded.RoundTripper = next; return recorded })
	apis, err := platform.Watch(m.Context(), config, backends.All().OptionalKinds()...)
	check.Must(m, err)
	apiserver.StartManager(m.T, config, m.namespace, func(mgr ctrl.Manager) error {
		return setupControllers(mgr, func(error) {}, apis, Options{Namespace: m.namespace, NodeAgentImage: "listener-operator:test"}, clock.RealClock{})
	})
	return recorded
}

// degraded returns the condition of the configuration.
func (m *moving) degraded(g Gomega) *metav1.Condition {
	config := &operatorv1alpha1.ListenerOperator{}
	g.Expect(m.Get(m.Context(), client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName}, config)).To(Succeed())
	condition := meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionDegraded)
	g.Expect(condition).NotTo(BeNil())
	return condition
}

func TestNothingIsWrittenWhileStackablesOperatorRuns(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(apiserver.Timeout)
	m := newMoving(t)
	written := m.start()
	reports := func(want, not string) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			condition := m.degraded(g)
			g.Expect(condition.Reason).To(Equal(operatorv1alpha1.ReasonOtherOperatorRunning))
			g.Expect(condition.Message).To(And(ContainSubstring(want), Not(ContainSubstring(not)), ContainSubstring("docs/moving-over.md")))
		}).Should(Succeed())
		g.Expect(written.unexpected(m.namespace)).To(BeEmpty())
	}
	reports("DaemonSet "+m.namespace+"/sdp-csi-node-driver, Deployment "+m.namespace+"/sdp-csi-provisioner;", "foreign")
	g.Expect(m.Delete(t.Context(), m.nodeDriver)).To(Succeed())
	reports("Deployment "+m.namespace+"/sdp-csi-provisioner;", "DaemonSet")

	g.Expect(m.Delete(t.Context(), m.provisioner)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(m.degraded(g)).To(HaveField("Status", metav1.ConditionFalse))
		g.Expect(m.Get(t.Context(), client.ObjectKeyFromObject(m.csiDriver), m.csiDriver)).To(Succeed())
		g.Expect(*m.csiDriver.Spec.FSGroupPolicy).To(Equal(storagev1.NoneFSGroupPolicy))
		g.Expect(m.Get(t.Context(), client.ObjectKeyFromObject(m.listener), m.listener)).To(Succeed())
		g.Expect(m.listener.Status).NotTo(BeNil())
		g.Expect(m.listener.Status.IngressAddresses).NotTo(BeEmpty())
		g.Expect(m.Get(t.Context(), client.ObjectKey{Name: "external-stable"}, &listenersv1alpha1.ListenerClass{})).To(Succeed())
		g.Expect(m.Get(t.Context(), client.ObjectKey{Name: "pvc-" + string(m.claim.UID)}, &corev1.PersistentVolume{})).To(Succeed())
	}).Should(Succeed())
}
