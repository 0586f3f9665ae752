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
)

// TestEachPrivilegeHasAReason compares what DaemonSet and SecurityContextConstraints ask for and allow with the list of
// reasons. Everything in a Pod that is not known to be harmless counts as a privilege, so that a new one is noticed.
func TestEachPrivilegeHasAReason(t *testing.T) {
	var want []string
	for _, p := range privileges() {
		if !strings.HasSuffix(p.why, ".") {
			t.Errorf("%s has no reason, or one that is no sentence: %q", p.what, p.why)
		}
		want = append(want, p.what)
	}
	slices.Sort(want)

	asked := slices.Sorted(slices.Values(askedFor(t)))
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the DaemonSet asks for (-with a reason +asked for):\n%s", diff)
	}
	// To constraints, host paths are all the same.
	hostPath := func(what string) string {
		if strings.HasPrefix(what, "host path") {
			return "host path"
		}
		return what
	}
	for i := range want {
		want[i] = hostPath(want[i])
	}
	want = slices.Compact(want)
	allowed := slices.Sorted(slices.Values(allowedBy(t)))
	if diff := cmp.Diff(want, allowed); diff != "" {
		t.Errorf("the constraints allow (-with a reason +allowed):\n%s", diff)
	}
}

// askedFor returns the privileges that the DaemonSet's Pods ask for.
func askedFor(t *testing.T) []string {
	t.Helper()
	object, err := componentOf(t, "DaemonSet").Desired(newConfig(), testSettings())
	if err != nil {
		t.Fatal(err)
	}
	var agents appsv1.DaemonSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &agents); err != nil {
		t.Fatal(err)
	}
	var asked []string
	pod := agents.Spec.Template.Spec
	ask := func(format string, args ...any) { asked = append(asked, fmt.Sprintf(format, args...)) }
	if len(pod.Containers) != 1 || len(pod.InitContainers) > 0 {
		t.Fatal("this test looks at one container")
	}
	for _, v := range pod.Volumes {
		kind := "another"
		if v.HostPath != nil {
			kind = "host path"
		}
		ask("%s %s", kind, v.Name)
	}
	for name, set := range map[string]bool{"host network": pod.HostNetwork, "host PID": pod.HostPID, "host IPC": pod.HostIPC} {
		if set {
			ask("%s", name)
		}
	}

	// Take away from the security contexts what is harmless, and what is known to be a privilege. Nothing may be left.
	of := pod.SecurityContext
	ask("SELinux type %s", of.SELinuxOptions.Type)
	of.SELinuxOptions.Type = ""
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, of); diff != "" {
		ask("security context of the Pod:\n%s", diff)
	}
	c := pod.Containers[0].SecurityContext
	ask("user %d", *c.RunAsUser)
	for _, capability := range c.Capabilities.Add {
		ask("capability %s", capability)
	}
	c.Capabilities.Add = nil
	if diff := cmp.Diff(&corev1.SecurityContext{
		RunAsUser: ptr.To[int64](0), RunAsGroup: ptr.To[int64](0), AllowPrivilegeEscalation: ptr.To(false), Privileged: ptr.To(false),
		ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, c); diff != "" {
		ask("security context of the container:\n%s", diff)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPropagation != nil {
			ask("mount propagation of %s", m.Name)
		}
	}
	for _, p := range pod.Containers[0].Ports {
		if p.HostPort != 0 {
			ask("host port %d", p.HostPort)
		}
	}
	return asked
}

// allowedBy returns the privileges that the constraints allow.
func allowedBy(t *testing.T) []string {
	t.Helper()
	object, err := componentOf(t, "SecurityContextConstraints").Desired(newConfig(), testSettings())
	if err != nil {
		t.Fatal(err)
	}
	var allowed []string
	allow := func(format string, args ...any) { allowed = append(allowed, fmt.Sprintf(format, args...)) }
	scc := object.Object
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

func TestThePageOnConstraintsGivesEachReason(t *testing.T) {
	page, err := os.ReadFile("../../../docs/openshift-scc.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range privileges() {
		if !strings.Contains(string(page), p.what) || !strings.Contains(string(page), p.why) {
			t.Errorf("docs/openshift-scc.md lacks %q, or its reason: %s", p.what, p.why)
		}
	}
}
