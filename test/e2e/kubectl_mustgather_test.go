//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

const mustGatherImage = "must-gather:e2e"

// The image runs as `oc adm must-gather` runs it, as a cluster administrator. Another container has the result, which
// the plugin examines without the cluster, and which has no Secret.
func TestMustGatherCollectsWhatDoctorExamines(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.must(testbed.LoadImage(s.ctx, mustGatherImage, s.mustGather()))
	s.createReachablePod()
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"password": "hunter2-of-" + s.namespace}})

	administrators := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "default"}},
	}
	s.createUntilEnd(administrators)
	s.allowPrivileged()
	s.create(mustGatherPod())
	p := mustAwait(s, &corev1.Pod{}, s.key("must-gather"), func(p *corev1.Pod) bool {
		for _, status := range p.Status.ContainerStatuses {
			if status.Name == "gather" && status.State.Terminated != nil {
				return true
			}
		}
		return false
	})
	log := strings.Join(s.kubectl("logs", p.Name, "--container", "gather"), "\n")
	for _, status := range p.Status.ContainerStatuses {
		if status.State.Terminated != nil && status.State.Terminated.ExitCode != 0 {
			t.Fatalf("container %s: %s", status.Name, status.State.Terminated)
		}
	}
	if strings.Contains(log, "? ") {
		t.Errorf("an administrator may not read something:\n%s", log)
	}

	dir := filepath.Join(t.TempDir(), "must-gather.local.1", "image")
	s.must(os.MkdirAll(filepath.Dir(dir), 0o700))
	s.kubectl("cp", "--container", "copy", p.Name+":/must-gather", dir)
	run := s.plugin()
	if out, status := run("listener", "doctor", "--from", filepath.Dir(dir)); status > 1 || !strings.HasPrefix(out, "As gathered at 20") {
		t.Errorf("kubectl listener doctor: status %d\n%s", status, out) // 1, because other scenarios have problems
	}
	if out, status := run("listener", "why", "web", "--namespace", s.namespace, "--from", dir); status != 0 {
		t.Errorf("kubectl listener why: status %d\n%s", status, out)
	}
	s.hasNoSecrets(dir)
}

// mustGather returns the image of cmd/kubectl-listener/Dockerfile, with Debian's packages in place of its base.
func (s *scenario) mustGather() image.Spec {
	s.Helper()
	spec, err := cluster.DebianImage(s.ctx, "bash", "coreutils", "mawk", "procps", "sed", "tar")
	s.must(err)
	spec.Links["/usr/bin/awk"] = "mawk" // as a script of the package does
	const source = "../../cmd/kubectl-listener/"
	bin := s.TempDir()
	s.must(tools.BuildLocal(s.ctx, "cmd/kubectl-listener", bin, "."))
	files := map[string]string{"/src/bin/kubectl-listener": bin + "/kubectl-listener", "cmd/kubectl-listener/gather.sh": source + "gather.sh"}
	content, err := os.ReadFile(source + "Dockerfile")
	s.must(err)
	_, last, _ := strings.Cut(string(content), "\nFROM ${BASE}\n")
	for line := range strings.Lines(last) {
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "COPY ") && fields[len(fields)-1] != "/licenses":
			from, to := fields[len(fields)-2], fields[len(fields)-1]
			spec.Files[to] = image.File{Source: files[from]}
			delete(files, from)
		case strings.HasPrefix(line, "ENTRYPOINT "):
			s.must(json.Unmarshal([]byte(strings.TrimPrefix(line, "ENTRYPOINT ")), &spec.Entrypoint))
		}
	}
	if len(files) > 0 {
		s.Fatalf("the Dockerfile does not copy %v", files)
	}
	return spec
}

// mustGatherPod returns the Pod that oc creates: one container gathers, after it has started to watch the free space,
// another one keeps the result.
func mustGatherPod() *corev1.Pod {
	container := func(name, script string) corev1.Container {
		return corev1.Container{
			Name: name, Image: mustGatherImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/bash", "-c", script},
			Env:          []corev1.EnvVar{{Name: "MUST_GATHER_SINCE", Value: "2h"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "output", MountPath: "/must-gather"}},
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "must-gather"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers: []corev1.Container{
				container("gather", `set -eo pipefail
df -P /must-gather | awk 'NR == 2 {print $5}' | sed 's/%//'
pkill --signal KILL --full /usr/bin/no-such-program || test $? = 1
/usr/bin/gather
sync`),
				container("copy", "trap : TERM INT; sleep infinity & wait"),
			},
			Volumes: []corev1.Volume{{Name: "output", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

// hasNoSecrets checks that no file of a directory has a value of a Secret of the cluster.
func (s *scenario) hasNoSecrets(dir string) {
	s.Helper()
	var secrets corev1.SecretList
	s.must(api.List(s.ctx, &secrets))
	values := map[string]string{}
	for _, secret := range secrets.Items {
		for key, value := range secret.Data {
			if len(value) < 8 || strings.HasPrefix(string(value), "-----BEGIN CERTIFICATE") { // which are public
				continue
			}
			values[string(value)] = client.ObjectKeyFromObject(&secret).String() + " " + key
			values[base64.StdEncoding.EncodeToString(value)] = values[string(value)]
		}
	}
	if values["hunter2-of-"+s.namespace] == "" {
		s.Fatal("the Secret of the test is not among those of the cluster")
	}
	count := 0
	s.must(fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		count++
		content, err := os.ReadFile(filepath.Join(dir, name))
		for value, of := range values {
			if strings.Contains(string(content), value) {
				s.Errorf("%s has the value of Secret %s", name, of)
			}
		}
		if strings.Contains(name, "/secrets/") || strings.Contains(name, "/configmaps/") {
			s.Errorf("%s was gathered", name)
		}
		return err
	}))
	if count < 100 {
		s.Errorf("there are only %d files", count)
	}
}
