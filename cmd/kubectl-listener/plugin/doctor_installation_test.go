package plugin_test

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// installationFaults are faults of the installation.
var installationFaults = map[string]fault{
	"the policy for annotated Pods is not bound": {
		breakIt: func(t *testing.T, i *installed) { i.without(t, injectionPolicies(t)[1]) },
		kind:    "MutatingAdmissionPolicyBinding", name: names.InjectionPolicy, text: "does not exist, so annotations of Pods are not acted on",
	},
	"nothing refuses wrong annotations": {
		breakIt: func(t *testing.T, i *installed) { i.without(t, injectionPolicies(t)[2]) },
		kind:    "ValidatingAdmissionPolicy", name: names.InjectionPolicy, text: "does not exist, so annotations of Pods are not acted on",
	},
	"the policy for annotated Pods was changed": {
		breakIt: func(t *testing.T, i *installed) {
			policy := injectionPolicies(t)[0].(*admissionregistrationv1.MutatingAdmissionPolicy)
			i.read(t, policy)
			restoring(t, policy, i.update)
			policy.Spec.MatchConstraints.NamespaceSelector = nil
			i.update(t, policy)
		},
		kind: "MutatingAdmissionPolicy", name: names.InjectionPolicy, text: "differs from the one of this version",
	},
	"a definition is not served": {
		breakIt: func(t *testing.T, i *installed) {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "podlisteners.listeners.stackable.tech"}}
			i.read(t, crd)
			crd.Spec.Versions[0].Served = false
			other := crd.Spec.Versions[0].DeepCopy()
			other.Name, other.Served, other.Storage = "v2", true, false
			crd.Spec.Versions = append(crd.Spec.Versions, *other)
			i.update(t, crd)
			t.Cleanup(func() {
				i.read(t, crd) // whose status the API server has changed
				crd.Spec.Versions = crd.Spec.Versions[:1]
				crd.Spec.Versions[0].Served = true
				i.update(t, crd)
			})
		},
		kind: "CustomResourceDefinition", name: "podlisteners.listeners.stackable.tech", text: "does not serve version v1alpha1",
	},
	"the operator does not run": {
		breakIt: func(t *testing.T, i *installed) {
			deployment := i.deployment(t)
			restoring(t, deployment, i.updateStatus)
			deployment.Status = appsv1.DeploymentStatus{Replicas: 1}
			i.updateStatus(t, deployment)
		},
		kind: "Deployment", name: names.Operator, text: "has no available Pod",
	},
	"no operator renews the lease": {
		breakIt: func(t *testing.T, i *installed) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.Operator}}
			i.create(t, lease)
			lease.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("x"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(time.Now())),
			}
			i.update(t, lease)
			if p := doctor(t).Problem; p != nil {
				t.Errorf("although the lease was renewed: %+v", p)
			}
			lease.Spec.RenewTime.Time = longAgo().Time
			i.update(t, lease)
		},
		kind: "Deployment", name: names.Operator, text: "has available Pods, but none that works: the lease of the leader expired 59m ago",
	},
	"the operator's own update hangs": {
		breakIt: func(t *testing.T, i *installed) {
			deployment := i.deployment(t)
			restoring(t, deployment, i.updateStatus)
			deployment.Status = appsv1.DeploymentStatus{
				Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 1,
				Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, LastUpdateTime: longAgo()}},
			}
			i.updateStatus(t, deployment)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "listener-operator-new", Labels: deployment.Spec.Selector.MatchLabels},
				Spec:       corev1.PodSpec{NodeName: i.node.Name, Containers: []corev1.Container{{Name: "operator", Image: "absent"}}},
			}
			i.create(t, pod)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "operator", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}},
			}}
			i.updateStatus(t, pod)
		},
		kind: "Deployment", name: names.Operator,
		text: "1 Pod is available, and Pod listener-operator-new, which should replace it or run beside it, is not ready: ErrImagePull: container operator does not run on node node-shop: not found",
	},
	"the operator is degraded": {
		breakIt: func(t *testing.T, i *installed) {
			restoring(t, i.config, i.updateStatus)
			degraded := newCondition(operatorv1alpha1.ConditionDegraded, metav1.ConditionTrue, operatorv1alpha1.ReasonAgentsNotCreated)
			meta.SetStatusCondition(&i.config.Status.Conditions, degraded)
			i.updateStatus(t, i.config)
		},
		kind: "ListenerOperator", name: "cluster", text: "message of AgentsNotCreated",
	},
	"there is no CSIDriver": {
		breakIt: func(t *testing.T, i *installed) {
			i.without(t, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}})
		},
		kind: "CSIDriver", name: names.Driver, text: "does not exist",
	},
	"the StorageClass has another binding mode": {
		breakIt: func(t *testing.T, i *installed) {
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}}
			i.without(t, class)
			other := class.DeepCopy()
			other.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
			i.create(t, other)
		},
		kind: "StorageClass", name: names.Driver, text: "differs from what the operator installs, in volumeBindingMode",
	},
	"an admission policy is missing": {
		breakIt: func(t *testing.T, i *installed) {
			i.without(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: names.PodListenersPolicy}})
		},
		kind: "ValidatingAdmissionPolicy", name: names.PodListenersPolicy, text: "does not exist",
	},
	"another installation owns the DaemonSet": {
		breakIt: func(t *testing.T, i *installed) {
			daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: names.NodeAgent}}
			i.read(t, daemonSet)
			restoring(t, daemonSet, i.update)
			daemonSet.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "chart", UID: "x", Controller: ptr.To(true)}}
			i.update(t, daemonSet)
		},
		kind: "DaemonSet", name: names.NodeAgent, text: "belongs to ConfigMap chart",
	},
	"the authorities are damaged": {
		breakIt: func(t *testing.T, i *installed) {
			i.eventOf(t, "ListenerOperator", i.config, operatorv1alpha1.ReasonCertificateAuthorityDamaged, "the Secret is damaged")
		},
		kind: "Secret", name: names.CertificateAuthoritySecret, text: "the Secret is damaged",
	},
	"permissions are missing": {
		breakIt: func(t *testing.T, i *installed) {
			i.without(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.Operator}})
		},
		kind: "ServiceAccount", name: names.Operator, text: "may not watch listenerclasses.listeners.stackable.tech",
	},
	"permissions of the node agents are missing": {
		breakIt: func(t *testing.T, i *installed) {
			i.without(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: names.NodeAgent}})
		},
		kind: "ServiceAccount", name: names.NodeAgent, text: "may not watch podlisteners.listeners.stackable.tech",
	},
}
