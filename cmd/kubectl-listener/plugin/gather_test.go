package plugin_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
)

// gatherInto runs `kubectl listener gather`, and returns the directory that it wrote, and its output.
func gatherInto(t *testing.T, config *rest.Config, args ...string) (dir, out string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "gathered")
	out, err = run(t, config, append([]string{"gather", "--output", dir}, args...)...)
	return dir, out, err
}

// gathered runs `kubectl listener gather`, which must succeed, and returns the directory that it wrote.
func gathered(t *testing.T, config *rest.Config) (dir string) {
	t.Helper()
	dir, out, err := gatherInto(t, config)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// files returns the files of a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		found[name] = string(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// changeIndex changes the index of what was gathered.
func changeIndex(t *testing.T, dir string, change func(*source.Index)) {
	t.Helper()
	path := filepath.Join(dir, source.IndexFile)
	content, err := os.ReadFile(path)
	check.Must(t, err)
	var index source.Index
	check.Must(t, yaml.UnmarshalStrict(content, &index))
	change(&index)
	if content, err = yaml.Marshal(&index); err != nil {
		t.Fatal(err)
	}
	check.Must(t, os.WriteFile(path, content, 0o600))
}

// offline is the configuration of a client of a cluster that does not respond.
var offline = &rest.Config{Host: "http://127.0.0.1:1"}

// stubborn is a value that must not leave the cluster.
const stubborn = "hunter2-of-the-test"

func TestGatherLeavesSecretsInTheCluster(t *testing.T) {
	w := newWorld(t)
	crds.Install(t, w.Client, crds.Routes, crds.Certificates)
	defer crds.Remove(t, w.Client, crds.Routes, crds.Certificates)
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "password"}, StringData: map[string]string{"password": stubborn}})
	w.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "config"}, Data: map[string]string{"password": stubborn}})
	pod := w.newPod("secretive", w.claim.Name)
	annotations := map[string]string{
		"example.com/anything": stubborn, "config.kubernetes.io/origin": "postgres://user:" + stubborn + "@db/shop", "commons.stackable.tech/dsn": stubborn,
		"kubectl.kubernetes.io/last-applied-configuration": stubborn, "plain": stubborn, names.AnnotationPorts: "visible-port",
		"listener-operator.dev/password": stubborn, names.Driver + "/dsn": stubborn,
	}
	pod.Annotations = annotations
	volume := w.volume.DeepCopy() // it has annotations that were removed from its claim later
	volume.ObjectMeta, volume.Spec.CSI.VolumeAttributes = metav1.ObjectMeta{Name: "secretive-" + w.namespace}, annotations
	w.create(t, volume)
	main := &pod.Spec.Containers[0]
	main.Command, main.Args = []string{"sh", stubborn}, []string{"--password=" + stubborn}
	main.Env = []corev1.EnvVar{{Name: "LITERAL_NAME", Value: stubborn}, {Name: "REFERENCE", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}, Key: "password"},
	}}}
	main.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: "/healthz?token=" + stubborn, Port: intstr.FromInt32(80), HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: stubborn}},
	}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "example.com", VolumeAttributes: map[string]string{"password": stubborn},
	}}})
	w.create(t, pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: stubborn},
	}}}
	w.updateStatus(t, pod)
	w.listener.Annotations, w.listener.Labels = annotations, map[string]string{names.LabelCertificate: "web"}
	w.update(t, w.listener)
	certificate := w.untyped("cert-manager.io/v1", "Certificate", "web"+names.CertificateSuffix, map[string]any{
		"secretName": "visible-secret-name", "issuerRef": map[string]any{"name": "x"}, "ipAddresses": []any{"203.0.113.7"}, "keystores": map[string]any{
			"jks": map[string]any{"create": true, "password": stubborn}, "pkcs12": map[string]any{"create": true, "password": stubborn},
		},
	})
	w.create(t, certificate)
	w.class.Spec.ServiceAnnotations = map[string]string{"example.com/password": stubborn}
	w.update(t, w.class)
	route := w.untyped("route.openshift.io/v1", "Route", "web-http", map[string]any{
		"host": "web.example", "to": map[string]any{"kind": "Service", "name": "web"},
		"tls": map[string]any{"termination": "edge", "key": stubborn, "certificate": stubborn},
	})
	route.SetOwnerReferences(w.service.OwnerReferences)
	w.create(t, route)

	var mu sync.Mutex
	var read []string
	config := via(t, apiserver.Config(t), func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		read = append(read, r.URL.Path)
		return false
	})
	dir := gathered(t, config)
	found := files(t, dir)
	for name, content := range found {
		if strings.Contains(content, stubborn) || strings.Contains(content, "\n  managedFields:") {
			t.Errorf("%s:\n%s", name, content)
		}
	}
	discovered := 0
	for _, path := range read {
		if path == "/apis" {
			discovered++
		}
		if strings.Contains(path, "/secrets") || strings.Contains(path, "/configmaps") {
			t.Errorf("it reads %s", path)
		}
	}
	if discovered != 2 { // once for the result, and once for its client
		t.Errorf("it reads %d times what the cluster serves", discovered)
	}
	namespace := "namespaces/" + w.namespace
	for name, want := range map[string]string{
		namespace + "/core/pods/secretive.yaml":                                      "LITERAL_NAME",
		namespace + "/core/pods/web-0.yaml":                                          "nodeName: " + w.node.Name,
		namespace + "/listeners.stackable.tech/listeners/web.yaml":                   "visible-port",
		"cluster-scoped-resources/core/persistentvolumes/" + volume.Name + ".yaml":   "visible-port",
		namespace + "/route.openshift.io/routes/web-http.yaml":                       "web.example",
		namespace + "/core/services/web.yaml":                                        "nodePort",
		namespace + "/cert-manager.io/certificates/web-listener-tls.yaml":            "visible-secret-name",
		"cluster-scoped-resources/core/nodes/" + w.node.Name + ".yaml":               "kind: Node",
		"cluster-scoped-resources/core/persistentvolumes/" + w.volume.Name + ".yaml": names.AnnotationListenerClass,
		"doctor.txt":         "Deployment listener-operator",
		"version":            "listener-operator",
		"api-resources.yaml": "listenerclasses",
		source.IndexFile:     "kind: Listener.listeners.stackable.tech",
		"cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/listeners.listeners.stackable.tech.yaml": "openAPIV3Schema",
	} {
		if !strings.Contains(found[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, found[name])
		}
	}
}

// It takes objects of both generations, also under another name of the package, but nothing of other operators, and no
// manifests, because a bundle may have Secrets.
func TestGatherTakesWhatOLMHasAboutTheOperator(t *testing.T) {
	w := newWorld(t)
	crds.Install(t, w.Client, crds.Administrators()...)
	defer crds.Remove(t, w.Client, crds.Administrators()...)
	template := w.statefulSet().Spec
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: template.Selector, Template: template.Template}}
	deployment.Namespace, deployment.Name = w.namespace, names.Operator
	deployment.Labels = map[string]string{"olm.operatorframework.io/owner-name": "renamed"}
	w.create(t, deployment)
	const group, newGroup = "operators.coreos.com", "olm.operatorframework.io"
	object := func(apiVersion, kind, name, spec string) *unstructured.Unstructured {
		fields := map[string]any{}
		check.Must(t, yaml.Unmarshal([]byte(spec), &fields))
		return w.untyped(apiVersion, kind, name, fields)
	}
	version := func(name, owned string) *unstructured.Unstructured {
		return object(group+"/v1alpha1", "ClusterServiceVersion", name, `{displayName: a, icon: [{base64data: "`+stubborn+`", mediatype: image/png}],
			customresourcedefinitions: {owned: [{name: `+owned+`, kind: A, version: v1}]},
			install: {strategy: deployment, spec: {deployments: [{name: a, spec: {selector: {}, template: {
				spec: {containers: [{name: a, env: [{name: LITERAL_NAME, value: `+stubborn+`}]}]}}}}]}}}`)
	}
	subscription := func(name, pkg, installed string) *unstructured.Unstructured {
		o := object(group+"/v1alpha1", "Subscription", name, "{name: "+pkg+", source: a, sourceNamespace: olm, config: {env: [{name: A, value: "+stubborn+"}]}}")
		w.create(t, o)
		o.Object["status"] = map[string]any{"installedCSV": installed, "lastUpdated": "2026-11-01T10:00:00Z"}
		w.updateStatus(t, o)
		return o
	}
	plan := func(name string, owner *unstructured.Unstructured) {
		o := object(group+"/v1alpha1", "InstallPlan", name, "{approval: Manual, approved: false, clusterServiceVersionNames: [a]}")
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		w.create(t, o)
		o.Object["status"] = map[string]any{
			"phase": "RequiresApproval", "catalogSources": []any{}, "plan": []any{map[string]any{"resolving": "a", "status": "Unknown", "resource": map[string]any{
				"group": "", "version": "v1", "kind": "Secret", "name": "visible-name", "sourceName": "a", "sourceNamespace": "olm", "manifest": stubborn,
			}}},
		}
		w.updateStatus(t, o)
	}
	const configuration = "listeneroperators.listener-operator.dev"
	copied := version("copied.v1.0.0", configuration)
	copied.SetLabels(map[string]string{"olm.copiedFrom": "elsewhere"})
	extension := func(name, pkg string) *unstructured.Unstructured {
		o := object(newGroup+"/v1", "ClusterExtension", name, "{namespace: a, source: {sourceType: Catalog, catalog: {packageName: "+pkg+"}}}")
		o.SetNamespace("")
		return o
	}
	for _, o := range []*unstructured.Unstructured{
		version("own.v1.0.0", configuration), version("another.v1.0.0", "things.example.com"), copied,
		object(group+"/v1", "OperatorGroup", "own", "{}"), extension("own", "listener-operator"), extension("renamed", "a-listener-operator"), extension("another", "another"),
	} {
		w.create(t, o)
	}
	plan("own", subscription("own", "listener-operator", ""))
	subscription("renamed", "a-listener-operator", "own.v1.0.0")
	plan("another", subscription("another", "another", "another.v1.0.0"))

	dir := gathered(t, apiserver.Config(t))
	var got []string
	for name, content := range files(t, dir) {
		if strings.Contains(content, stubborn) {
			t.Errorf("%s:\n%s", name, content)
		}
		if strings.Contains(name, "/"+group+"/") || strings.Contains(name, "/"+newGroup+"/") {
			got = append(got, filepath.Base(filepath.Dir(name))+" "+filepath.Base(name))
		}
		if strings.HasSuffix(name, "installplans/own.yaml") && !strings.Contains(content, "visible-name") {
			t.Errorf("%s:\n%s", name, content)
		}
	}
	slices.Sort(got)
	want := []string{
		"clusterextensions own.yaml", "clusterextensions renamed.yaml", "clusterserviceversions own.v1.0.0.yaml", "installplans own.yaml",
		"operatorgroups own.yaml", "subscriptions own.yaml", "subscriptions renamed.yaml",
	}
	if !slices.Equal(got, want) {
		t.Errorf("gathered are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGatherListsWhatTheUserMayNotRead(t *testing.T) {
	w := newWorld(t)
	dir, out, err := gatherInto(t, apiserver.WithToken(t, apiserver.Config(t), w.namespace, "nobody"))
	if err == nil || !strings.Contains(err.Error(), "nothing could be gathered") || !strings.Contains(out, "? nodes: nodes is forbidden") ||
		!strings.Contains(files(t, dir)[source.IndexFile], "- 'nodes: nodes is forbidden") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	config := w.user(t, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	NewWithT(t).Eventually(func(g Gomega) { // permissions take effect a moment after they change
		dir, out, err = gatherInto(t, config, "--namespace", w.namespace)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(files(t, dir)).To(HaveKey("namespaces/" + w.namespace + "/core/pods/web-0.yaml"))
	}, apiserver.Timeout, "50ms").Should(Succeed())
	if !strings.Contains(out, "? pods: pods is forbidden") || !strings.Contains(out, "? CustomResourceDefinition listeners.listeners.stackable.tech: ") {
		t.Errorf("output:\n%s", out)
	}
	out, err = run(t, offline, "doctor", "--from", dir)
	if err != nil || strings.Contains(out, "in order") || !strings.Contains(out, "? Deployment listener-operator") || !strings.Contains(out, "The result of kubectl listener gather lacks ") {
		t.Errorf("doctor: error %v, output:\n%s", err, out)
	}
	// Of the namespace, everything is known but what is not in it.
	why := w.same(t, config, dir, "why", "web-0")
	if why.Problem != nil || !slices.ContainsFunc(why.Findings, func(f found) bool { return f.Kind == "Service" && f.State == "OK" }) {
		t.Errorf("why: %+v", why)
	}
}

// same compares the findings of a command about the cluster and about what was gathered, and returns the latter.
func (w *world) same(t *testing.T, config *rest.Config, from string, args ...string) result {
	t.Helper()
	if args[0] != "doctor" {
		args = append(args, "--namespace", w.namespace)
	}
	want, got := resultOf(t, config, args...), resultOf(t, offline, append(args, "--from", from)...)
	for _, r := range []*result{&want, &got} {
		for i := range r.Findings {
			if f := &r.Findings[i]; f.State == "Unknown" {
				f.Message = "" // it is not the user who lacks the permission
			}
		}
	}
	NewWithT(t).Expect(got.Findings).To(Equal(want.Findings), strings.Join(args, " "))
	return got
}

// The result is a directory or an archive, and something may be wrong.
func TestWhySaysTheSameAboutWhatWasGathered(t *testing.T) {
	w := newWorld(t)
	w.create(t, w.policy("deny"))
	w.notReady(t, newCondition(listenersv1alpha1.ListenerReady, metav1.ConditionFalse, listenersv1alpha1.ReasonWaitingForNodePorts))
	waiting := w.newClaim("waiting", ofClass("absent"))
	w.create(t, waiting)
	w.event(t, waiting, listenersv1alpha1.ReasonClassNotFound, "message of the event")
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	if out, err := run(t, apiserver.Config(t), "gather", "--output", archive); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if info, err := os.Stat(archive); err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode is %v, error %v", info.Mode(), err)
	}
	for _, object := range []string{"web-0", "pod/web-0", "pods/web-0", "claim/web", "listener/web", "claim/waiting"} {
		if r := w.same(t, apiserver.Config(t), archive, "why", object); r.Problem == nil {
			t.Errorf("%s: no problem", object)
		}
	}
	if _, err := run(t, offline, "why", "absent", "--from", archive, "--namespace", w.namespace); err == nil || !strings.Contains(err.Error(), "was gathered") {
		t.Errorf("error %v", err)
	}
	if out, err := run(t, apiserver.Config(t), "gather", "--output", archive); !errors.Is(err, fs.ErrExist) {
		t.Errorf("it overwrites an archive: error %v, output %s", err, out)
	}
	if _, err := run(t, apiserver.Config(t), "gather", "--output", filepath.Dir(archive)); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("it writes among other files: error %v", err)
	}
}

// What is lost must not look as if it did not exist.
func TestAPartOfWhatWasGatheredIsRefused(t *testing.T) {
	w := newWorld(t)
	dir := gathered(t, apiserver.Config(t))
	nested := filepath.Join(filepath.Dir(dir), "must-gather.local.1", "image") // as oc adm must-gather writes it
	check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(nested), 0o700), os.Rename(dir, nested)))
	dir = filepath.Dir(filepath.Dir(nested))
	w.same(t, apiserver.Config(t), dir, "why", "web-0")
	check.Must(t, os.Remove(filepath.Join(nested, "namespaces", w.namespace, "core", "pods", "web-0.yaml")))
	if out, err := run(t, offline, "doctor", "--from", dir); err == nil || out != "" || !strings.Contains(err.Error(), "objects that were gathered") {
		t.Errorf("without a file: error %v, output %s", err, out)
	}
	check.Must(t, os.Remove(filepath.Join(nested, source.IndexFile)))
	if out, err := run(t, offline, "doctor", "--from", dir); err == nil || out != "" || !strings.Contains(err.Error(), "0 files gather.yaml") {
		t.Errorf("without the index: error %v, output %s", err, out)
	}
}

// It may have any paths, texts and sizes.
func TestAnArchiveOfAStrangerIsOnlyRead(t *testing.T) {
	w := newWorld(t)
	dir := gathered(t, apiserver.Config(t))
	listener := "namespaces/" + w.namespace + "/listeners.stackable.tech/listeners/web.yaml"
	pack := func(add map[string]string) string {
		name := filepath.Join(t.TempDir(), "a.tar.gz")
		file, err := os.Create(name)
		check.Must(t, err)
		zipped := gzip.NewWriter(file)
		archive := tar.NewWriter(zipped)
		content := files(t, dir)
		maps.Copy(content, add)
		for name, text := range content {
			err = errors.Join(err, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}))
			_, writeErr := io.WriteString(archive, text)
			err = errors.Join(err, writeErr)
		}
		check.Must(t, errors.Join(err, archive.Close(), zipped.Close(), file.Close()))
		return name
	}
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	text := strings.ReplaceAll(files(t, dir)[listener], "203.0.113.7", `"\e[2J\e]0;title\a"`)
	out, err := run(t, offline, "why", "listener/web", "--namespace", w.namespace, "--from", pack(map[string]string{
		listener: text, outside: "a: b", "../../../../.." + outside: "a: b",
	}))
	if err != nil && !errors.Is(err, command.ErrProblem) || !strings.Contains(out, `\x1b[2J`) || unprintable(out) != "" {
		t.Errorf("error %v, output %q", err, out)
	}
	if _, err := os.Stat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
	var large bytes.Buffer // it says that it is large
	zipped := gzip.NewWriter(&large)
	header := &tar.Header{Name: "large.log", Mode: 0o600, Size: source.MaxSize + 1}
	check.Must(t, errors.Join(tar.NewWriter(zipped).WriteHeader(header), zipped.Close(), os.WriteFile(outside, large.Bytes(), 0o600)))
	if _, err := run(t, offline, "doctor", "--from", outside); err == nil || !strings.Contains(err.Error(), "it has more content than is read") {
		t.Errorf("a large file: error %v", err)
	}
}

// gatherHealthy has the tests of gather on a cluster with the operator, in which nothing is wrong.
func gatherHealthy(t *testing.T, i *installed) {
	config := apiserver.PlainConfig(t)
	t.Run("all is clear only if all was gathered", func(t *testing.T) {
		dir, out, err := gatherInto(t, config)
		if err != nil || strings.Contains(out, "?") {
			t.Fatalf("error %v, output:\n%s", err, out)
		}
		out, err = run(t, offline, "doctor", "--from", dir)
		if err != nil || !strings.HasPrefix(out, "As gathered at 20") || !strings.Contains(out, "have their addresses") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
		if report := files(t, dir)["doctor.txt"]; !strings.HasSuffix(out, report) {
			t.Errorf("the report is\n%s\nand that of doctor\n%s", report, out)
		}
		// What doctor reads, except lists from which it reads single objects.
		for _, resource := range []string{
			"customresourcedefinitions", "deployments", "listeneroperators", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
			"csidrivers", "daemonsets", "storageclasses", "nodes", "csinodes", "persistentvolumes", "persistentvolumeclaims", "listenerclasses", "listeners",
			"podlisteners", "services", "endpointslices", "pods", "events", "subjectaccessreviews",
		} {
			forbidden := regexp.MustCompile("/" + resource + "($|/)")
			without := via(t, config, func(w http.ResponseWriter, r *http.Request) bool {
				if !forbidden.MatchString(r.URL.Path) {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
				return true
			})
			dir, out, err := gatherInto(t, without)
			if err != nil || resource != "subjectaccessreviews" && !strings.Contains(out, "?") {
				t.Errorf("without %s: error %v, output:\n%s", resource, err, out)
			}
			i.same(t, without, dir, "doctor")
			if out, _ := run(t, offline, "doctor", "--from", dir); strings.Contains(out, "in order") || strings.Contains(out, "Nothing is wrong") {
				t.Errorf("without %s, all is clear:\n%s", resource, out)
			}
		}
	})
	t.Run("times are those of the gathering", func(t *testing.T) {
		i.createUnschedulable(t, "just-now")
		dir := gathered(t, config)
		if out, err := run(t, offline, "doctor", "--from", dir); err != nil || strings.Contains(out, "just-now") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
		changeIndex(t, dir, func(index *source.Index) { index.Time.Time = index.Time.Add(time.Hour) })
		if out, err := run(t, offline, "doctor", "--from", dir); !errors.Is(err, command.ErrProblem) || !strings.Contains(out, "just-now") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
	})
	t.Run("logs are limited", func(t *testing.T) {
		restoring(t, i.agent, i.updateStatus)
		i.agent.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "node-agent", RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		}}
		i.updateStatus(t, i.agent)
		long := via(t, config, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/pods/"+i.agent.Name+"/log") {
				return false
			}
			q := r.URL.Query()
			if q.Get("tailLines") == "" || q.Get("limitBytes") != "" || q.Get("container") != "node-agent" || q.Get("sinceTime") != "2026-11-01T10:00:00Z" {
				t.Errorf("the request is %s", r.URL)
			}
			if q.Get("previous") == "true" {
				fmt.Fprintln(w, "the last words")
				return true
			}
			for range 10 {
				_, _ = w.Write(bytes.Repeat([]byte("a line\n"), 200_000))
			}
			fmt.Fprintln(w, "the newest line")
			return true
		})
		dir, out, err := gatherInto(t, long, "--since-time", "2026-11-01T12:00:00+02:00")
		if err != nil || !strings.Contains(out, "? log current of container node-agent of Pod listener-operator/"+i.agent.Name+": its last 10000 lines have more than 4194304 bytes, and their beginning is left out") {
			t.Errorf("error %v, output:\n%s", err, out)
		}
		logs := files(t, dir)
		maps.DeleteFunc(logs, func(name, _ string) bool { return !strings.HasSuffix(name, ".log") })
		path := "namespaces/" + operators + "/pods/" + i.agent.Name + "/node-agent/node-agent/logs/"
		current := logs[path+"current.log"]
		if n := len(current); n > 4<<20 || n < 4<<20-len("a line\n") || logs[path+"previous.log"] != "the last words\n" || len(logs) != 2 {
			t.Errorf("%d bytes, and %q; %v", n, logs[path+"previous.log"], slices.Sorted(maps.Keys(logs)))
		}
		if !strings.HasPrefix(current, "a line\n") || !strings.HasSuffix(current, "\nthe newest line\n") {
			t.Errorf("the log begins with %.20q and ends with %q", current, current[max(0, len(current)-20):])
		}
	})
}

// A part of the API server does not respond.
func TestGatherSaysWhatItCouldNotDiscover(t *testing.T) {
	config := via(t, apiserver.Config(t), func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Set("Accept", "application/json") // without aggregated discovery
		if r.URL.Path != "/apis/storage.k8s.io/v1" {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	dir, out, err := gatherInto(t, config)
	if err != nil || !strings.Contains(out, "? some of what the cluster serves: ") || !strings.Contains(out, "storage.k8s.io/v1: ") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	if served := files(t, dir)[source.ResourcesFile]; !strings.Contains(served, "listenerclasses") || strings.Contains(served, "csidrivers") {
		t.Errorf("it says that the cluster serves\n%s", served)
	}
}
