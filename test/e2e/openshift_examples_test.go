//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/hack/objects"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// The API server of OpenShift accepts all samples and recipes from a user who administers a project, and has no other
// permission; an administrator of the cluster applies what belongs to no namespace. Pods of the samples run as any Pod,
// and those of the recipes as docs/recipes/README.md says. Nothing is stored. The patches in recipes/tls are left out:
// they need certificates of Kubernetes 1.37, which OpenShift lacks.
func TestAUserOfAProjectAppliesTheExamples(t *testing.T) {
	requireOpenShift(t)
	t.Parallel()
	s := newScenario(t)
	user := s.asUser("admin")
	s.eventually(func(ctx context.Context) error { // permissions take effect a moment after they change
		return user.List(ctx, &corev1.PodList{}, client.InNamespace(s.namespace))
	})
	for _, file := range s.examples("config/samples/*.yaml", 10) {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		for _, p := range s.apply(user, file, s.read(file)) {
			if got, err := s.runsUnder(s.ctx, user, p); got != "restricted-v2" {
				t.Errorf("%s: a Pod of %s runs under the constraints %q: %v", file, p.Name, got, err)
			}
		}
	}
	recipes := append(s.examples("config/samples/recipes/*.yaml", 7), s.examples("test/demo/manifests/*.yaml", 1)...)
	var withUsers []*corev1.Pod
	for _, file := range recipes {
		manifest := s.read(file)
		pods := s.apply(user, file, manifest)
		if len(pods) == 0 {
			t.Errorf("%s has no Pods", file)
		}
		for _, p := range pods {
			if got, err := s.runsUnder(s.ctx, user, p); !apierrors.IsForbidden(err) {
				t.Errorf("%s: a Pod of %s that names its user runs under the constraints %q: %v", file, p.Name, got, err)
			}
		}
		withUsers = append(withUsers, pods...)
		for _, p := range s.apply(user, file, s.withoutUsers(manifest)) {
			if got, err := s.runsUnder(s.ctx, user, p); got != "restricted-v2" {
				t.Errorf("%s: a Pod of %s without a user runs under the constraints %q: %v", file, p.Name, got, err)
			}
		}
	}
	s.create(&rbacv1.RoleBinding{ // as oc adm policy add-scc-to-user does
		ObjectMeta: metav1.ObjectMeta{Name: "system:openshift:scc:nonroot-v2"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:openshift:scc:nonroot-v2"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "default"}},
	})
	for _, p := range withUsers {
		s.eventually(func(ctx context.Context) error {
			got, err := s.runsUnder(ctx, user, p)
			if err == nil && got != "nonroot-v2" {
				err = fmt.Errorf("a Pod of %s that names its user runs under the constraints %q", p.Name, got)
			}
			return err
		})
	}
}

// examples returns the files of the checkout that match a pattern, which have to be at least this many.
func (s *scenario) examples(pattern string, least int) []string {
	s.Helper()
	root, err := checkout.Root()
	s.must(err)
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	s.must(err)
	if len(files) < least {
		s.Fatalf("%d files match %s", len(files), pattern)
	}
	return files
}

func (s *scenario) read(file string) []byte {
	s.Helper()
	content, err := os.ReadFile(file)
	s.must(err)
	return content
}

// withoutUsers changes a manifest as docs/recipes/README.md says.
func (s *scenario) withoutUsers(manifest []byte) []byte {
	s.Helper()
	page := s.read("../../docs/recipes/README.md")
	expression := regexp.MustCompile(`sed -i.bak -E '([^']+)'`).FindSubmatch(page)
	if expression == nil {
		s.Fatal("docs/recipes/README.md has no command that removes users")
	}
	sed := exec.CommandContext(s.ctx, "sed", "-E", string(expression[1])) //nolint:gosec // of our own page
	sed.Stdin = bytes.NewReader(manifest)
	changed, err := sed.Output()
	s.must(err)
	return changed
}

// apply applies the objects of a manifest as a dry run: those of a namespace as a user in the namespace of the
// scenario, others as an administrator. It returns a Pod of each StatefulSet, as its controller creates it.
func (s *scenario) apply(user client.Client, file string, manifest []byte) (pods []*corev1.Pod) {
	s.Helper()
	all, err := objects.Read(bytes.NewReader(manifest))
	s.must(err)
	for _, o := range all {
		by := client.Client(api)
		namespaced, err := api.IsObjectNamespaced(o)
		s.must(err)
		if namespaced {
			by = user
			o.SetNamespace(s.namespace)
		}
		if o.GetKind() == "StatefulSet" {
			set := &appsv1.StatefulSet{}
			s.must(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set))
			pods = append(pods, podOf(set))
		}
		name := o.GetKind() + " " + o.GetName()
		if err := by.Apply(s.ctx, client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("user")); err != nil {
			s.Errorf("%s: applying %s: %v", file, name, err)
		}
	}
	return pods
}

// podOf returns the first Pod of a StatefulSet.
func podOf(set *appsv1.StatefulSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	p.Name, p.Namespace = set.Name+"-0", set.Namespace
	for _, claim := range set.Spec.VolumeClaimTemplates {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: strings.Join([]string{claim.Name, set.Name, "0"}, "-")},
		}})
	}
	return p
}

// runsUnder returns the constraints under which a Pod of a user would run, and creates none.
func (s *scenario) runsUnder(ctx context.Context, user client.Client, p *corev1.Pod) (string, error) {
	created := p.DeepCopy()
	err := user.Create(ctx, created, client.DryRunAll)
	return created.Annotations[constraintsOf], err
}
