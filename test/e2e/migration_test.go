//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// startStackable creates the DaemonSet and the Deployment of Stackable's listener operator, with the names of a Helm
// release and a namespace of its own. Their Pods do nothing.
func (s *scenario) startStackable() []client.Object {
	s.Helper()
	s.allowPrivileged()
	labels := func(role string) map[string]string {
		return map[string]string{"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/instance": "sdp", "app.kubernetes.io/role": role}
	}
	account := metav1.ObjectMeta{Name: "sdp-serviceaccount"}
	template := func(role string) corev1.PodTemplateSpec {
		spec := podSpec()
		spec.ServiceAccountName = account.Name
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(role)}, Spec: spec}
	}
	driver := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "sdp-csi-node-driver"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels("node-driver")}, Template: template("node-driver"),
	}}
	driver.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/" + names.Driver + "/"},
	}}}
	provisioner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "sdp-csi-provisioner"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels("provisioner")}, Template: template("provisioner"),
	}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sdp-" + s.namespace}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{listenersv1alpha1.GroupVersion.Group}, Resources: []string{"listeners", "listeners/status"}, Verbs: []string{"create", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: account.Name}},
	}
	s.create(&corev1.ServiceAccount{ObjectMeta: account})
	workloads := []client.Object{driver, provisioner}
	for _, o := range append([]client.Object{role, binding}, workloads...) {
		s.createUntilEnd(o)
	}
	return workloads
}

// awaitWaiting waits until the operator reports that it waits for the end of Stackable's.
func (s *scenario) awaitWaiting() {
	s.Helper()
	s.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
		return c != nil && c.Reason == operatorv1alpha1.ReasonOtherOperatorRunning && strings.Contains(c.Message,
			fmt.Sprintf("DaemonSet %[1]s/sdp-csi-node-driver, Deployment %[1]s/sdp-csi-provisioner", s.namespace))
	})
}

// awaitTakenOver waits until the operator has nothing more to do.
func (s *scenario) awaitTakenOver() {
	s.Helper()
	s.awaitConfig(func(o *operatorv1alpha1.ListenerOperator) bool {
		return meta.IsStatusConditionFalse(o.Status.Conditions, operatorv1alpha1.ConditionDegraded) && isAvailableOnAllNodes(o)
	})
}

// While Stackable's listener operator runs, whatever its release and namespace are named, the operator reports it, and
// new Pods wait. When it is gone, they start. Pods that ran before keep their addresses.
func TestTheOperatorWaitsForTheEndOfStackables(t *testing.T) {
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("before", byClass(class.Name)))
	_, before := s.awaitReachable("before")

	workloads := s.startStackable()
	s.awaitWaiting()
	s.create(pod("after", byClass(class.Name)))
	s.awaitAnswer(before, "before")

	for _, o := range workloads {
		s.remove(o)
	}
	s.awaitTakenOver()
	s.awaitReachable("after")
	s.awaitAnswer(before, "before")
}

// A cluster has everything as Stackable's listener operator leaves it, with its presets turned off, and a Pod that
// runs. This operator is installed beside it, and then the other one is uninstalled. The Service, its node ports, the
// files and the Pod stay, no status lacks an address meanwhile, settings are carried over, and a later change of the
// address reaches the files.
func TestRunningPodsAreTakenOverFromStackable(t *testing.T) {
	s := newScenario(t)
	class, p, own := s.createReachablePod()
	config := s.getConfig()
	s.uninstall(config)
	s.leaveAsStackable(p, own)
	workloads := s.startStackable()
	before := mustGet(s, &corev1.Service{}, s.key("web-listener"))

	s.must(deploy(s.ctx))
	s.awaitWaiting()
	awaitAddress := s.recordAddresses("web-listener", own) // not before the definition changes, which ends watches
	for _, o := range workloads {
		s.remove(o)
	}
	s.awaitTakenOver()
	mustAwait(s, &listenersv1alpha1.PodListeners{}, s.key(listenersv1alpha1.PodListenersName(p.UID)), func(l *listenersv1alpha1.PodListeners) bool {
		return l.Spec.NodeName == p.Spec.NodeName && l.Spec.Listeners["listener"].ListenerName == "web-listener"
	})
	s.checkTakenOver(p, own, before)

	s.patch(class, func() { class.Spec.PreferredAddressType = listenersv1alpha1.PreferredAddressTypeHostname })
	changed := own
	changed.Address, changed.AddressType = p.Spec.NodeName, listenersv1alpha1.AddressTypeHostname
	s.awaitFilesAt(own, changed)
	awaitAddress(changed)
}

// uninstall removes the operator, but nothing that others own, as docs/moving-over.md says. At the end of the test, the
// operator is installed again with its configuration and the classes of its preset.
func (s *scenario) uninstall(config *operatorv1alpha1.ListenerOperator) {
	s.Helper()
	s.Cleanup(func() { s.reinstall(config.Spec) })
	s.removeAndAwait(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: names.Operator}}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	mustAwaitDeleted(s, &corev1.ConfigMap{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
	s.patch(config, func() { config.Finalizers = nil })
	s.remove(config)
	s.eventually(func(ctx context.Context) error { // which the garbage collector deletes
		if agents := s.agentUIDs(); len(agents) > 0 {
			return fmt.Errorf("agents still exist: %v", agents)
		}
		return nil
	})
	policy := client.ObjectKey{Name: names.PodListenersPolicy}
	mustAwaitDeleted(s, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, policy)
	mustAwaitDeleted(s, &admissionregistrationv1.ValidatingAdmissionPolicy{}, policy)
	s.awaitUninstalled(config)
	for _, name := range presetClasses {
		s.remove(&listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// presetClasses are the classes of all presets.
var presetClasses = []string{"cluster-internal", "external-stable", "external-unstable"}

// reinstall installs the operator with a configuration.
func (s *scenario) reinstall(spec operatorv1alpha1.ListenerOperatorSpec) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := deploy(ctx); err != nil {
		s.Error(err)
	}
	config, err := await(ctx, &operatorv1alpha1.ListenerOperator{}, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName},
		func(*operatorv1alpha1.ListenerOperator) bool { return true })
	s.must(err)
	before := config.DeepCopy()
	config.Spec = spec
	s.must(api.Patch(ctx, config, client.MergeFrom(before)))
	for _, name := range presetClasses {
		if _, err := await(ctx, &listenersv1alpha1.ListenerClass{}, client.ObjectKey{Name: name}, func(*listenersv1alpha1.ListenerClass) bool { return true }); err != nil {
			s.Error(err)
		}
	}
}

// leaveAsStackable changes everything that belongs to a Pod, its files included, to what Stackable's listener operator
// leaves: with its field managers, and without any field or object that only this operator has.
func (s *scenario) leaveAsStackable(p *corev1.Pod, own listenersv1alpha1.IngressAddress) {
	s.Helper()
	for _, o := range []client.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr.To(false), PodInfoOnMount: ptr.To(true), FSGroupPolicy: ptr.To(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent},
		}},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: names.Driver}, Provisioner: names.Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
	} {
		s.create(o)
	}
	s.setConversionWebhook(stackableFieldManager)
	pv := s.volumeOfStackable()
	listener := s.listenerOfStackable(pv, own)
	s.serviceOfStackable(listener)
	s.podListenersOfStackable(p, own)
	s.filesOfStackable(filepath.Join(podDir(p), "volumes", "kubernetes.io~csi", pv.Name, "mount"), own)
	if diff := cmp.Diff(wantFiles("listener", own), s.readFiles(own)); diff != "" {
		s.Fatalf("files as Stackable's listener operator writes them (-want +got):\n%s", diff)
	}
}

// volumeOfStackable gives the PersistentVolume of the claim web-listener what Stackable's provisioner sets.
func (s *scenario) volumeOfStackable() *corev1.PersistentVolume {
	s.Helper()
	claim := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("web-listener"))
	pv := mustGet(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: claim.Spec.VolumeName})
	s.patch(pv, func() {
		delete(pv.Annotations, names.AnnotationNode)
		delete(pv.Annotations, names.AnnotationReminded)
		pv.Annotations["pv.kubernetes.io/provisioned-by"] = names.Driver
		pv.Finalizers = []string{"kubernetes.io/pv-protection", finalizerOfStackable}
	})
	return pv
}

// finalizerOfStackable is the finalizer of Stackable's provisioner sidecar.
const finalizerOfStackable = "external-provisioner.volume.kubernetes.io/finalizer"

// listenerOfStackable applies a Listener that belongs to its volume only, and a status with three fields.
func (s *scenario) listenerOfStackable(pv *corev1.PersistentVolume, own listenersv1alpha1.IngressAddress) *listenersv1alpha1.Listener {
	s.Helper()
	listener := mustGet(s, &listenersv1alpha1.Listener{}, s.key("web-listener"))
	ports := []any{}
	for _, port := range listener.Spec.Ports {
		ports = append(ports, map[string]any{"name": port.Name, "port": int64(port.Port), "protocol": string(ptr.Deref(port.Protocol, corev1.ProtocolTCP))})
	}
	s.applyAs(names.FieldManagerVolume, listener, listenersv1alpha1.GroupVersion.String(), "Listener", map[string]any{
		"labels": map[string]any{"app": "web"},
		"ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "PersistentVolume", "name": pv.Name, "uid": string(pv.UID)},
		},
	}, map[string]any{"className": listener.Class(), "ports": ports, "publishNotReadyAddresses": true})
	numbers := map[string]any{}
	for name, port := range own.Ports {
		numbers[name] = int64(port)
	}
	status := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"serviceName": listener.Name, "nodePorts": numbers,
		"ingressAddresses": []any{map[string]any{"address": own.Address, "addressType": string(own.AddressType), "ports": numbers}},
	}}}
	status.SetAPIVersion(listenersv1alpha1.GroupVersion.String())
	status.SetKind("Listener")
	status.SetNamespace(s.namespace)
	status.SetName(listener.Name)
	s.must(api.Status().Apply(s.ctx, client.ApplyConfigurationFromUnstructured(status), client.FieldOwner(names.FieldManagerListenerStatus), client.ForceOwnership))
	s.get(listener, s.key("web-listener"))
	if len(listener.OwnerReferences) != 1 || len(listener.Status.Conditions) > 0 || listener.Status.Summary != (listenersv1alpha1.ListenerSummary{}) {
		s.Fatalf("the Listener still has what only this operator sets: %+v", listener)
	}
	return listener
}

// serviceOfStackable applies the Service of a Listener, without node ports, which Kubernetes keeps.
func (s *scenario) serviceOfStackable(listener *listenersv1alpha1.Listener) {
	s.Helper()
	ports := []any{}
	for _, port := range listener.Spec.Ports {
		ports = append(ports, map[string]any{"name": port.Name, "port": int64(port.Port), "protocol": string(ptr.Deref(port.Protocol, corev1.ProtocolTCP))})
	}
	s.applyAs(names.FieldManagerService, listener, "v1", "Service", map[string]any{
		"labels": map[string]any{
			"app": "web", "app.kubernetes.io/name": names.ServiceAppName, "app.kubernetes.io/instance": listener.Name, "app.kubernetes.io/managed-by": names.ServiceManagedBy,
		},
		"ownerReferences": []any{map[string]any{
			"apiVersion": listenersv1alpha1.GroupVersion.String(), "kind": "Listener", "name": listener.Name, "uid": string(listener.UID),
			"controller": true, "blockOwnerDeletion": true,
		}},
	}, map[string]any{
		"type": "NodePort", "selector": map[string]any{names.PodMountLabel(listener.UID): listener.Name}, "publishNotReadyAddresses": true, "ports": ports,
	})
}

// applyAs applies an object with the name of another one as a field manager.
func (s *scenario) applyAs(manager string, as client.Object, apiVersion, kind string, metadata, spec map[string]any) {
	s.Helper()
	metadata["namespace"], metadata["name"] = as.GetNamespace(), as.GetName()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
	s.must(api.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
}

// podListenersOfStackable replaces the PodListeners of a Pod. The admission policy that denies that may still apply for
// a moment.
func (s *scenario) podListenersOfStackable(p *corev1.Pod, own listenersv1alpha1.IngressAddress) {
	s.Helper()
	replaced := &listenersv1alpha1.PodListeners{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: listenersv1alpha1.PodListenersName(p.UID),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{
			"listener": {Scope: listenersv1alpha1.ListenerScopeNode, IngressAddresses: []listenersv1alpha1.IngressAddress{own}},
		}},
	}
	s.eventually(func(ctx context.Context) error {
		if err := client.IgnoreNotFound(api.Delete(ctx, &listenersv1alpha1.PodListeners{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: replaced.Name}})); err != nil {
			return err
		}
		return api.Create(ctx, replaced.DeepCopy(), client.FieldOwner(names.FieldManagerDefault))
	})
}

// filesOfStackable replaces the content of a volume by plain files and a link (contract: the files).
func (s *scenario) filesOfStackable(dir string, own listenersv1alpha1.IngressAddress) {
	s.Helper()
	entries, err := os.ReadDir(dir)
	s.must(err)
	for _, entry := range entries {
		s.must(os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	files := map[string]string{"address": own.Address}
	for name, port := range own.Ports {
		files["ports/"+name] = strconv.Itoa(int(port))
	}
	for name, content := range files {
		path := filepath.Join(dir, "addresses", own.Address, name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o755))     //nolint:gosec // read by the Pod
		s.must(os.WriteFile(path, []byte(content), 0o644)) //nolint:gosec // read by the Pod
	}
	s.must(os.Symlink(filepath.Join("addresses", own.Address), filepath.Join(dir, "default-address")))
}

// recordAddresses watches a Listener with one address. The returned function waits until it has another one, and fails
// the test if any status in between had neither of them, or none.
func (s *scenario) recordAddresses(name string, first listenersv1alpha1.IngressAddress) func(want listenersv1alpha1.IngressAddress) {
	s.Helper()
	w, err := api.Watch(s.ctx, &listenersv1alpha1.ListenerList{}, selectObject(s.key(name)))
	s.must(err)
	s.Cleanup(w.Stop)
	return func(want listenersv1alpha1.IngressAddress) {
		s.Helper()
		ctx := s.timeoutContext()
		for {
			select {
			case <-ctx.Done():
				s.Fatalf("the Listener never had the address %+v", want)
			case event, open := <-w.ResultChan():
				if !open || event.Type == watch.Error || event.Type == watch.Deleted {
					s.Fatalf("the watch ended with %+v", event)
				}
				got := event.Object.(*listenersv1alpha1.Listener).Status.IngressAddresses
				if cmp.Equal(got, []listenersv1alpha1.IngressAddress{want}) {
					return
				}
				if !cmp.Equal(got, []listenersv1alpha1.IngressAddress{first}) {
					s.Errorf("meanwhile, the addresses are %+v, want %+v", got, first)
				}
			}
		}
	}
}

// checkTakenOver fails the test if the takeover has changed what it must not, or not changed what it must.
func (s *scenario) checkTakenOver(p *corev1.Pod, own listenersv1alpha1.IngressAddress, before *corev1.Service) {
	s.Helper()
	after := mustGet(s, &corev1.Service{}, s.key(before.Name))
	if after.UID != before.UID || !cmp.Equal(after.Spec.Ports, before.Spec.Ports) || after.Spec.ClusterIP != before.Spec.ClusterIP {
		s.Errorf("the Service was %+v and is %+v", before, after)
	}
	s.checkFilesAt(own)
	s.awaitAnswer(own, p.Name)
	s.checkNotRestarted(p)
	s.checkNoConversionWebhook()
	storage := mustGet(s, &storagev1.StorageClass{}, client.ObjectKey{Name: names.Driver})
	driver := mustGet(s, &storagev1.CSIDriver{}, client.ObjectKey{Name: names.Driver})
	if *storage.VolumeBindingMode != storagev1.VolumeBindingImmediate || *driver.Spec.FSGroupPolicy != storagev1.NoneFSGroupPolicy {
		s.Errorf("StorageClass %+v, CSIDriver %+v", storage, driver)
	}
	config := s.configuration()
	if config.Spec.Preset != operatorv1alpha1.PresetNone {
		s.Errorf("the preset is %s, want that of the other operator", config.Spec.Preset)
	}
	var classes listenersv1alpha1.ListenerClassList
	s.must(api.List(s.ctx, &classes))
	if slices.ContainsFunc(classes.Items, func(c listenersv1alpha1.ListenerClass) bool { return slices.Contains(presetClasses, c.Name) }) {
		s.Error("classes of a preset were created, which the other operator did not have")
	}
	claim := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key(before.Name))
	mustAwait(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: claim.Spec.VolumeName}, func(pv *corev1.PersistentVolume) bool {
		return !slices.Contains(pv.Finalizers, finalizerOfStackable)
	})
}

// The CustomResourceDefinitions of Stackable's listener operator have a conversion webhook, which stops working when
// that operator is uninstalled. Deploying this operator removes the webhook. If another field manager owns it,
// deploying fails.
func TestCRDsOfStackableAreTakenOver(t *testing.T) {
	s := newScenario(t)
	s.setConversionWebhook(stackableFieldManager)
	s.must(deploy(s.ctx))
	s.checkNoConversionWebhook()
	s.setConversionWebhook("another-manager")
	if err := deploy(s.ctx); err == nil || !strings.Contains(err.Error(), "spec.conversion.webhookClientConfig: Forbidden") {
		t.Errorf("deploying although another field manager owns the conversion webhook: %v", err)
	}
	crd := mustGet(s, &apiextensionsv1.CustomResourceDefinition{}, takenOverCRD)
	s.patch(crd, func() {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	s.must(deploy(s.ctx))
}

// stackableFieldManager is the field manager with which Stackable's listener operator applies its CRDs.
const stackableFieldManager = "listener-operator"

// takenOverCRD is a CRD that Stackable's listener operator also installs.
var takenOverCRD = client.ObjectKey{Name: "listeners.listeners.stackable.tech"}

// setConversionWebhook adds a conversion webhook to the CRD, as Stackable's listener operator does: it applies the
// whole object, with force, as this field manager.
func (s *scenario) setConversionWebhook(owner string) {
	s.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	s.get(crd, takenOverCRD)
	spec, _, err := unstructured.NestedMap(crd.Object, "spec")
	s.must(err)
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{"service": map[string]any{
			"namespace": "stackable-operators", "name": "listener-operator", "port": int64(8443), "path": "/convert/" + takenOverCRD.Name,
		}},
	}}
	crd.Object = map[string]any{
		"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "metadata": map[string]any{"name": takenOverCRD.Name}, "spec": spec,
	}
	s.must(api.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner(owner), client.ForceOwnership))
}

// checkNoConversionWebhook fails if the CRD has a conversion webhook.
func (s *scenario) checkNoConversionWebhook() {
	s.Helper()
	crd := mustGet(s, &apiextensionsv1.CustomResourceDefinition{}, takenOverCRD)
	if conversion := crd.Spec.Conversion; conversion == nil || conversion.Strategy != apiextensionsv1.NoneConverter || conversion.Webhook != nil {
		s.Errorf("the CRD still has the conversion %+v", conversion)
	}
}

// Volumes that Stackable's listener operator has provisioned can be mounted, lose the finalizer of its provisioner, and
// are deleted with their claims.
func TestAVolumeOfStackableIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "listener-web-0", Annotations: byClass(class.Name), Labels: map[string]string{"app": "web"}},
		Spec:       objects.ClaimSpec("stackable-" + s.namespace),
	}
	s.create(pvc)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        pvc.Spec.VolumeName,
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": names.Driver},
			Finalizers:  []string{finalizerOfStackable},
			Labels:      map[string]string{names.LabelListenerNamespace: s.namespace, names.LabelListenerName: "listener-web-0"},
		},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              names.Driver,
			AccessModes:                   pvc.Spec.AccessModes,
			Capacity:                      pvc.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: s.namespace, Name: pvc.Name, UID: pvc.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: names.Driver, VolumeHandle: pvc.Spec.VolumeName, VolumeAttributes: byClass(class.Name),
			}},
			NodeAffinity: claim.NodeAffinity("node-2"),
		},
	}
	s.create(pv)
	set := statefulSet("web", 1, byClass(class.Name))
	s.create(set)
	if p, _ := s.awaitReachable("web-0"); p.Spec.NodeName != "node-2" {
		t.Errorf("the Pod runs on %s, its volume is pinned to node-2", p.Spec.NodeName)
	}
	mustAwait(s, &corev1.PersistentVolume{}, types.NamespacedName{Name: pv.Name}, func(pv *corev1.PersistentVolume) bool {
		return !slices.Contains(pv.Finalizers, finalizerOfStackable)
	})
	s.removeAndAwait(set)
	s.remove(pvc)
	mustAwaitDeleted(s, &corev1.PersistentVolume{}, client.ObjectKey{Name: pv.Name})
	mustAwaitDeleted(s, &corev1.Service{}, s.key("listener-web-0"))
}
