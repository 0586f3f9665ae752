package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func ownedBy(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "x", Name: "x", UID: uid}}
}

func TestDependentsAreOwnedByTheConfiguration(t *testing.T) {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "config"}}
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "agent", UID: "agent", OwnerReferences: ownedBy("config")}}
	other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "other", UID: "other", OwnerReferences: ownedBy("another")}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "agent-1", OwnerReferences: ownedBy("agent")}}
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "other-1", OwnerReferences: ownedBy("other")}}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver", OwnerReferences: ownedBy("config")}}
	orphan := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}
	extra := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "extra", OwnerReferences: ownedBy("config")}}

	for name, tc := range map[string]struct {
		objects []client.Object
		want    []string
		err     string
	}{
		"owned objects":                {[]client.Object{agent, other, pod, stranger, driver}, []string{"CSIDriver driver", "DaemonSet agent", "Pod agent-1"}, ""},
		"an object without its owner":  {[]client.Object{agent, orphan}, []string{"DaemonSet agent"}, "CSIDriver driver is not owned"},
		"an object that is not listed": {[]client.Object{agent, driver, extra}, []string{"StorageClass extra", "CSIDriver driver", "DaemonSet agent"}, "StorageClass extra"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &environment{bundle: bundleOf(), client: fakeclient.New(t, interceptor.Funcs{}, tc.objects...)}
			all, err := dependents(t.Context(), e, config)
			var got []string
			for _, f := range all {
				got = append(got, f.String())
			}
			check.Equal(t, "dependents", tc.want, got)
			if err = errors.Join(err, checkListed(e, all)); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestOnlyUnmanagedObjectsMayStay(t *testing.T) {
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "config"}}
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "agent", OwnerReferences: ownedBy("config")}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: "operator", OwnerReferences: ownedBy("config"), Labels: map[string]string{"app.kubernetes.io/component": "operator"},
	}}
	metrics := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "x", Name: "metrics", OwnerReferences: ownedBy("config"),
		Labels: map[string]string{"app.kubernetes.io/component": "operator", "app.kubernetes.io/managed-by": "listener-operator"},
	}}
	e := &environment{bundle: bundleOf(), client: fakeclient.New(t, interceptor.Funcs{}, agent, policy, metrics)}
	all, err := dependents(t.Context(), e, config)
	check.Must(t, err)
	for _, f := range all {
		if want := f.key.Name == "operator"; f.unmanaged != want {
			t.Errorf("%s: unmanaged is %t, want %t", f, f.unmanaged, want)
		}
	}
	if err := awaitDeletion(t.Context(), e, config, nil); err == nil || !strings.Contains(err.Error(), "[Service metrics DaemonSet agent] exist") {
		t.Errorf("got %v, want a failure that names all but the policy", err)
	}
}

func TestKindsIncludeAllResourcesOfTheConfiguration(t *testing.T) {
	b, err := manifests.GetBundleFromDir("../../bundle")
	check.Must(t, err)
	all := resources(&environment{bundle: b})
	if len(all) == 0 {
		t.Error("the bundle lists no resources of ListenerOperator")
	}
	for _, r := range all {
		kind, _, _ := strings.Cut(r, " ")
		if !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == kind }) {
			t.Errorf("uninstall-leaves-nothing does not list objects of kind %s", kind)
		}
	}
}

func TestVolumesInUsePreventTheRemoval(t *testing.T) {
	volume := func(driver string, claim *corev1.ObjectReference) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}, ClaimRef: claim,
		}}
	}
	claim := &corev1.ObjectReference{Namespace: "x", Name: "c"}
	for name, tc := range map[string]struct {
		volume *corev1.PersistentVolume
		inUse  bool
	}{
		"bound":             {volume("listeners.stackable.tech", claim), true},
		"without claim":     {volume("listeners.stackable.tech", nil), false},
		"of another driver": {volume("example.com", claim), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkUnused(t.Context(), &environment{client: fakeclient.New(t, interceptor.Funcs{}, tc.volume)})
			if (err != nil) != tc.inUse {
				t.Errorf("got %v, want in use %t", err, tc.inUse)
			}
			if _, ok := errors.AsType[failure](err); ok {
				t.Errorf("%v is a failure of the operator", err)
			}
		})
	}
}

func TestScorecardHasPermissionForAllKinds(t *testing.T) {
	data, err := os.ReadFile("../rbac.yaml")
	check.Must(t, err)
	allowed := map[string]bool{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var role rbacv1.ClusterRole
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		check.Must(t, err)
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				allowed[rule.APIGroups[0]+"/"+resource] = slices.Contains(rule.Verbs, "list")
			}
		}
	}
	for _, kind := range kinds {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		if kind.Kind == "SecurityContextConstraints" { // its plural is the same
			plural.Resource = "securitycontextconstraints"
		}
		if !allowed[kind.Group+"/"+plural.Resource] {
			t.Errorf("scorecard/rbac.yaml does not allow the tests to list %s of the group %q", plural.Resource, kind.Group)
		}
	}
}
