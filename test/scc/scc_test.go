// Package scc checks with OpenShift's own code whether the node agent's Pod is admitted. It reads the DaemonSet and the
// SecurityContextConstraints from the golden files of the operator's tests.
package scc

import (
	"os"
	"slices"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	"github.com/openshift/apiserver-library-go/pkg/securitycontextconstraints/sccdefaults"
	"github.com/openshift/apiserver-library-go/pkg/securitycontextconstraints/sccmatching"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversions "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const golden = "../../controllers/nodeagent/installation/testdata/"

func read[T any](t *testing.T, path string) T {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o T
	if err := yaml.Unmarshal(raw, &o); err != nil {
		t.Fatalf("parsing %s: %v", path, err)
	}
	return o
}

// agent returns the Pod that the DaemonSet controller and the ServiceAccount admission plugin create.
func agent(t *testing.T) *corev1.Pod {
	t.Helper()
	template := read[appsv1.DaemonSet](t, golden+"daemonset.yaml").Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "kube-api-access",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}},
	})
	return pod
}

func constraints(t *testing.T) *securityv1.SecurityContextConstraints {
	t.Helper()
	scc := read[securityv1.SecurityContextConstraints](t, golden+"securitycontextconstraints.yaml")
	return &scc
}

// violations returns why OpenShift rejects the Pod with the constraints, in a namespace with OpenShift's annotations.
func violations(t *testing.T, scc *securityv1.SecurityContextConstraints, pod *corev1.Pod) []string {
	t.Helper()
	scc = scc.DeepCopy()
	sccdefaults.SetDefaults_SCC(scc)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "listener-operator", Annotations: map[string]string{
		securityv1.UIDRangeAnnotation: "1000650000/10000", securityv1.SupplementalGroupsAnnotation: "1000650000/10000", securityv1.MCSAnnotation: "s0:c26,c5",
	}}}
	provider, err := sccmatching.CreateProviderFromConstraint(namespace, scc)
	if err != nil {
		t.Fatal(err)
	}
	var internal core.Pod
	if err := corev1conversions.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil); err != nil {
		t.Fatal(err)
	}
	before := internal.Spec.Containers[0].SecurityContext.RunAsUser
	var why []string
	for _, err := range sccmatching.AssignSecurityContext(provider, &internal, nil) {
		why = append(why, err.Error())
	}
	if user := internal.Spec.Containers[0].SecurityContext.RunAsUser; len(why) == 0 && before != nil && *user != *before {
		t.Errorf("admission changes the user to %d", *user)
	}
	return why
}

func TestAgentIsAdmittedByItsConstraints(t *testing.T) {
	if why := violations(t, constraints(t), agent(t)); len(why) > 0 {
		t.Errorf("the agent is rejected: %s", strings.Join(why, "; "))
	}
	if got, want := agent(t).Annotations[securityv1.RequiredSCCAnnotation], constraints(t).Name; got != want {
		t.Errorf("the agent requires the constraints %q, want %q", got, want)
	}
}

// TestOnlyPrivilegedStockConstraintsAdmitTheAgent shows why the agent needs its own: of OpenShift's constraints, only
// "privileged" admits it.
func TestOnlyPrivilegedStockConstraintsAdmitTheAgent(t *testing.T) {
	for _, stock := range read[[]securityv1.SecurityContextConstraints](t, "stock.yaml") {
		why := violations(t, &stock, agent(t))
		if admitted := len(why) == 0; admitted != (stock.Name == "privileged") {
			t.Errorf("%s admits the agent: %t (%s)", stock.Name, admitted, strings.Join(why, "; "))
		}
		t.Logf("%s: %s", stock.Name, strings.Join(why, "; "))
	}
}

func TestEachPermissionOfTheConstraintsIsNeeded(t *testing.T) {
	for name, remove := range map[string]func(*securityv1.SecurityContextConstraints){
		"host paths": func(scc *securityv1.SecurityContextConstraints) { scc.AllowHostDirVolumePlugin = false },
		"projected volumes": func(scc *securityv1.SecurityContextConstraints) {
			scc.Volumes = slices.DeleteFunc(scc.Volumes, func(v securityv1.FSType) bool { return v == securityv1.FSProjected })
		},
		"user 0": func(scc *securityv1.SecurityContextConstraints) {
			scc.RunAsUser = securityv1.RunAsUserStrategyOptions{Type: securityv1.RunAsUserStrategyMustRunAsRange}
		},
		"capability DAC_OVERRIDE": func(scc *securityv1.SecurityContextConstraints) {
			scc.AllowedCapabilities = []corev1.Capability{"FOWNER"}
		},
		"capability FOWNER": func(scc *securityv1.SecurityContextConstraints) {
			scc.AllowedCapabilities = []corev1.Capability{"DAC_OVERRIDE"}
		},
		"the SELinux type":    func(scc *securityv1.SecurityContextConstraints) { scc.SELinuxContext.SELinuxOptions.Type = "" },
		"the SELinux level":   func(scc *securityv1.SecurityContextConstraints) { scc.SELinuxContext.SELinuxOptions.Level = "" },
		"the seccomp profile": func(scc *securityv1.SecurityContextConstraints) { scc.SeccompProfiles = nil },
	} {
		t.Run(name, func(t *testing.T) {
			scc := constraints(t)
			remove(scc)
			if why := violations(t, scc, agent(t)); len(why) == 0 {
				t.Error("the agent is admitted")
			}
		})
	}
}

// Capabilities that the agent does not drop are dropped for it.
func TestConstraintsRejectOtherPrivileges(t *testing.T) {
	yes, other := true, int64(1000)
	for name, add := range map[string]func(*corev1.PodSpec){
		"privileged":           func(pod *corev1.PodSpec) { pod.Containers[0].SecurityContext.Privileged = &yes },
		"privilege escalation": func(pod *corev1.PodSpec) { pod.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes },
		"a writable root":      func(pod *corev1.PodSpec) { pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem = new(bool) },
		"another user":         func(pod *corev1.PodSpec) { pod.Containers[0].SecurityContext.RunAsUser = &other },
		"the capability SYS_ADMIN": func(pod *corev1.PodSpec) {
			capabilities := pod.Containers[0].SecurityContext.Capabilities
			capabilities.Add = append(capabilities.Add, "SYS_ADMIN")
		},
		"no seccomp": func(pod *corev1.PodSpec) {
			pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		},
		"another SELinux type": func(pod *corev1.PodSpec) { pod.SecurityContext.SELinuxOptions.Type = "container_t" },
		"the host's network":   func(pod *corev1.PodSpec) { pod.HostNetwork = true },
		"the host's processes": func(pod *corev1.PodSpec) { pod.HostPID = true },
		"the host's IPC":       func(pod *corev1.PodSpec) { pod.HostIPC = true },
		"a host port":          func(pod *corev1.PodSpec) { pod.Containers[0].Ports[0].HostPort = 8081 },
		"a Secret": func(pod *corev1.PodSpec) {
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}})
		},
		"a sysctl": func(pod *corev1.PodSpec) {
			pod.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}
		},
		"an fsGroup": func(pod *corev1.PodSpec) { pod.SecurityContext.FSGroup = &other },
	} {
		t.Run(name, func(t *testing.T) {
			pod := agent(t)
			add(&pod.Spec)
			if why := violations(t, constraints(t), pod); len(why) == 0 {
				t.Error("the agent is admitted")
			}
		})
	}
}

// TestNamespaceNeedsPrivilegedPodSecurityLevel shows why the namespace needs the Pod Security level "privileged".
// OpenShift labels a namespace itself, for the constraints that its ServiceAccounts may use, unless it has labels
// already or its name begins with "openshift-".
func TestNamespaceNeedsPrivilegedPodSecurityLevel(t *testing.T) {
	if reasons := violatedPodSecurity(t, api.LevelPrivileged, agent(t)); len(reasons) > 0 {
		t.Errorf("level privileged rejects the agent for %q", reasons)
	}
	if got, want := violatedPodSecurity(t, api.LevelBaseline, agent(t)), []string{"hostPath volumes", "seLinuxOptions"}; !slices.Equal(got, want) {
		t.Errorf("level baseline rejects the agent for %q, want %q", got, want)
	}
	namespace := read[corev1.Namespace](t, "../../config/manifests/namespace.yaml")
	for _, mode := range []string{"enforce", "audit", "warn"} {
		if got := namespace.Labels["pod-security.kubernetes.io/"+mode]; got != "privileged" {
			t.Errorf("level of the suggested namespace is %q for %s", got, mode)
		}
	}
}

// violatedPodSecurity returns the reasons for which a level of Pod Security rejects a Pod.
func violatedPodSecurity(t *testing.T, level api.Level, pod *corev1.Pod) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, check := range evaluator.EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !check.Allowed {
			reasons = append(reasons, check.ForbiddenReason)
		}
	}
	slices.Sort(reasons)
	return reasons
}
