package installation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// TestEachPrivilegeHasAReason compares what the DaemonSet requests, and what the SecurityContextConstraints allow, with
// the list of privileges. Every field of a Pod that is not known to be harmless counts as a privilege, so that a new
// one fails the test.
func TestEachPrivilegeHasAReason(t *testing.T) {
	var want []string
	for what, why := range privileges(t) {
		if !strings.HasSuffix(why, ".") {
			t.Errorf("%s has no reason, or one that is not a sentence: %q", what, why)
		}
		want = append(want, what)
	}
	slices.Sort(want)

	got := slices.Sorted(slices.Values(requested(t)))
	check.Equal(t, "privileges that the DaemonSet requests", want, got)
	for i := range want {
		if strings.HasPrefix(want[i], "host path") {
			want[i] = "host path" // constraints do not distinguish them
		}
	}
	want = slices.Compact(want)
	allowed := slices.Sorted(slices.Values(allowedBy(t)))
	check.Equal(t, "privileges that the constraints allow", want, allowed)
}

// privileges returns the privileges that the description of the SecurityContextConstraints lists, with their reasons.
func privileges(t *testing.T) map[string]string {
	t.Helper()
	listed := map[string]string{}
	_, list, _ := strings.Cut(desired(t, "SecurityContextConstraints", newConfig(), testSettings()).GetAnnotations()["kubernetes.io/description"], "and why:\n")
	for line := range strings.SplitSeq(list, "\n") {
		what, why, _ := strings.Cut(line, ": ")
		listed[what] = why
	}
	return listed
}

// requested returns the privileges that the DaemonSet's Pods request.
func requested(t *testing.T) []string {
	t.Helper()
	object := desired(t, "DaemonSet", newConfig(), testSettings())
	var agents appsv1.DaemonSet
	check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &agents))
	var found []string
	pod := agents.Spec.Template.Spec
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 {
		t.Fatal("this test expects one container")
	}
	for _, v := range pod.Volumes {
		kind := "another"
		if v.HostPath != nil {
			kind = "host path"
		}
		add("%s %s", kind, v.Name)
	}
	for name, set := range map[string]bool{"host network": pod.HostNetwork, "host PID": pod.HostPID, "host IPC": pod.HostIPC} {
		if set {
			add("%s", name)
		}
	}

	// Remove harmless fields and known privileges from the security contexts. Nothing may remain.
	of := pod.SecurityContext
	add("SELinux type %s", of.SELinuxOptions.Type)
	of.SELinuxOptions.Type = ""
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, of); diff != "" {
		add("security context of the Pod:\n%s", diff)
	}
	c := pod.Containers[0].SecurityContext
	add("user %d", *c.RunAsUser)
	for _, capability := range c.Capabilities.Add {
		add("capability %s", capability)
	}
	c.Capabilities.Add = nil
	if diff := cmp.Diff(&corev1.SecurityContext{
		RunAsUser: ptr.To[int64](0), RunAsGroup: ptr.To[int64](0), AllowPrivilegeEscalation: ptr.To(false), Privileged: ptr.To(false),
		ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, c); diff != "" {
		add("security context of the container:\n%s", diff)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPropagation != nil {
			add("mount propagation of %s", m.Name)
		}
	}
	for _, p := range pod.Containers[0].Ports {
		if p.HostPort != 0 {
			add("host port %d", p.HostPort)
		}
	}
	return found
}

// allowedBy returns the privileges that the constraints allow.
func allowedBy(t *testing.T) []string {
	t.Helper()
	var allowed []string
	allow := func(format string, args ...any) { allowed = append(allowed, fmt.Sprintf(format, args...)) }
	scc := desired(t, "SecurityContextConstraints", newConfig(), testSettings()).Object
	if scc["allowHostDirVolumePlugin"] == true {
		allow("host path")
	}
	user := scc["runAsUser"].(map[string]any)
	allow("user %v", user["uid"])
	for _, capability := range scc["allowedCapabilities"].([]any) {
		allow("capability %s", capability)
	}
	label := scc["seLinuxContext"].(map[string]any)["seLinuxOptions"].(map[string]any)
	allow("SELinux type %s", label["type"])
	for _, field := range []string{"apiVersion", "kind", "metadata", "allowHostDirVolumePlugin", "allowedCapabilities"} {
		delete(scc, field)
	}
	delete(user, "uid")
	delete(label, "type")
	if diff := cmp.Diff(map[string]any{
		"volumes":        []any{"hostPath", "projected"},
		"runAsUser":      map[string]any{"type": "MustRunAs"},
		"seLinuxContext": map[string]any{"type": "MustRunAs", "seLinuxOptions": map[string]any{"level": "s0"}},
		"fsGroup":        map[string]any{"type": "MustRunAs"}, "supplementalGroups": map[string]any{"type": "MustRunAs"},
		"requiredDropCapabilities": []any{"ALL"}, "readOnlyRootFilesystem": true, "seccompProfiles": []any{"runtime/default"},
		"allowPrivilegedContainer": false, "allowPrivilegeEscalation": false, "defaultAllowPrivilegeEscalation": false,
		"allowHostNetwork": false, "allowHostPorts": false, "allowHostPID": false, "allowHostIPC": false,
		"defaultAddCapabilities": nil, "forbiddenSysctls": []any{"*"}, "priority": nil, "users": []any{}, "groups": []any{},
	}, scc); diff != "" {
		allow("more:\n%s", diff)
	}
	return allowed
}

func TestDocumentationHasEachPrivilege(t *testing.T) {
	page, err := os.ReadFile("../../../docs/openshift-scc.md")
	check.Must(t, err)
	for what, why := range privileges(t) {
		if !strings.Contains(string(page), what) || !strings.Contains(string(page), why) {
			t.Errorf("docs/openshift-scc.md lacks %q, or its reason: %s", what, why)
		}
	}
}
