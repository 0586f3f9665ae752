package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/crds"
	"github.com/listener-operator/listener-operator/test/pages"
)

// changing are the commands of kubectl that change objects.
var changing = strings.Fields("annotate apply cordon create delete drain label patch scale taint uncordon")

// absent is what kubectl prints if everything is right, but the API server of the test does not have the object, or its
// kind, CloudNativePG's Cluster, or the directory has no file of this name, which earlier commands would have created.
var absent = regexp.MustCompile(`\(NotFound\)|not found|No resources found|timed out waiting|no matching resources|the path "[\w.-]+" does not exist|does not exist on the cluster|doesn't have a resource type "cluster"`)

// TestKubectlAndTheAPIServerAcceptTheCommandsOfPages runs each command that has arguments, but lets none change
// anything: verbs, flags, kinds, files, JSONPath expressions and patches are right. Expressions find what they look
// for.
func TestKubectlAndTheAPIServerAcceptTheCommandsOfPages(t *testing.T) {
	kubectl := newKubectl(t)
	populate(t)
	done := map[string]bool{}
	for _, c := range pages.Commands(t) {
		if len(c.Args) < 3 || c.Args[0] != "kubectl" || slices.Contains([]string{"listener", "krew"}, c.Args[1]) || done[c.String()] {
			continue
		}
		done[c.String()] = true
		args := slices.Clone(c.Args[1:])
		verb := args[slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") && !isNamespace(args, a) })]
		switch {
		case slices.Contains(changing, verb):
			args = append(args, "--dry-run=server")
		case verb == "wait":
			args = append(args, "--timeout=1s")
		}
		args = slices.DeleteFunc(args, func(a string) bool { return a == "--watch" || a == "-w" })
		if strings.Contains(c.String(), "jsonpath=") {
			args = append(args, "--allow-missing-template-keys=false")
		}
		out, failed := kubectl.run(t, args...)
		if failed && !absent.MatchString(out) {
			t.Errorf("%s:%d: %s\n%s", c.Page, c.Line, c, out)
		}
		if !failed && (strings.Contains(c.String(), "jsonpath=") && out == "" || strings.Contains(c.String(), "custom-columns=") && strings.Contains(out, "<none>")) {
			t.Errorf("%s:%d: %s\nfinds nothing:\n%s", c.Page, c.Line, c, out)
		}
	}
	if len(done) < 30 {
		t.Errorf("only %d commands of kubectl were found", len(done))
	}
}

// isNamespace reports whether an argument is the value of the flag before it.
func isNamespace(args []string, arg string) bool {
	i := slices.Index(args, arg)
	return i > 0 && (args[i-1] == "-n" || args[i-1] == "--namespace")
}

// kubectl runs the program that was built with the API server.
type kubectl struct{ program, config, cache, dir string }

func newKubectl(t *testing.T) *kubectl {
	t.Helper()
	config := apiserver.Config(t)
	k := &kubectl{cache: t.TempDir(), dir: t.TempDir()}
	for _, path := range []string{
		filepath.Join(filepath.Dir(os.Getenv("TEST_ASSET_KUBE_APISERVER")), "kubectl"), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
	} {
		if _, err := os.Stat(path); err == nil {
			k.program = path
			break
		}
	}
	if k.program == "" {
		t.Skip("needs kubectl in the directory of kube-apiserver")
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	file.CurrentContext = "test"
	k.config = filepath.Join(k.cache, "kubeconfig")
	check.Must(t, clientcmd.WriteToFile(*file, k.config))
	for _, name := range []string{"config", "scorecard", "test"} { // of the checkout, in which readers run the commands
		target, err := filepath.Abs(filepath.Join("..", name))
		check.Must(t, err)
		check.Must(t, os.Symlink(target, filepath.Join(k.dir, name)))
	}
	return k
}

// run returns the output, and whether the status is not 0.
func (k *kubectl) run(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), k.program, append([]string{"--kubeconfig", k.config, "--cache-dir", k.cache, "--request-timeout=30s"}, args...)...)
	cmd.Dir = k.dir
	out, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(out)), err != nil
}

// populate creates what expressions on the pages look for: the configuration, and Listeners with every condition.
func populate(t *testing.T) {
	t.Helper()
	c := apiserver.Client(t)
	crds.Install(t, c, crds.All()...)
	conditions := func(types ...string) []metav1.Condition {
		var all []metav1.Condition
		for _, name := range types {
			all = append(all, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Test", Message: "message", LastTransitionTime: metav1.Now()})
		}
		return all
	}
	config := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
	create(t, c, config)
	config.Status.Version = "1.2.3"
	config.Status.Conditions = conditions(operatorv1alpha1.ConditionAvailable, operatorv1alpha1.ConditionDegraded, operatorv1alpha1.ConditionProgressing)
	check.Must(t, c.Status().Update(t.Context(), config))
	for app, port := range map[string]string{"web": "http", "redis": "client", "postgresql": "postgresql", "zookeeper": "client"} { // those of the recipes by label
		listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "listener-" + app + "-0", Labels: map[string]string{"app": app},
		}}
		create(t, c, listener)
		listener.Status = &listenersv1alpha1.ListenerStatus{
			KeptClassName: "web", IngressAddresses: []listenersv1alpha1.IngressAddress{}, ServiceName: ptr.To("web"),
			Endpoints:  map[string]string{port: "203.0.113.7:31337"},
			Conditions: conditions(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ListenerReady, listenersv1alpha1.ListenerNodesAvailable),
		}
		check.Must(t, c.Status().Update(t.Context(), listener))
	}
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
}

// create creates an object, and deletes it at the end of the test.
func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	check.Must(t, c.Create(t.Context(), o))
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), o); err != nil {
			t.Error(err)
		}
	})
}

// TestSavedClassesCanBeCreatedAgain runs the commands of the page about moving over, as they are.
func TestSavedClassesCanBeCreatedAgain(t *testing.T) {
	kubectl, c := newKubectl(t), apiserver.Client(t)
	class := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "saved"}, Spec: listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	}
	check.Must(t, c.Create(t.Context(), class))
	var save, restore string
	for _, b := range pages.Blocks(t, "sh") {
		for line := range strings.Lines(b.Text) {
			switch {
			case b.Page != "docs/moving-over.md":
			case strings.Contains(line, "> classes.yaml"):
				save = line
			case strings.Contains(line, "create --filename classes.yaml"):
				restore = line
			}
		}
	}
	kubectl.script(t, save)
	check.Must(t, c.Delete(t.Context(), class))
	kubectl.script(t, restore)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil || class.Spec.ServiceType != listenersv1alpha1.ServiceTypeClusterIP {
		t.Errorf("%+v, error %v", class.Spec, err)
	}
	if err := c.Delete(t.Context(), class); err != nil {
		t.Error(err)
	}
}

// script runs a line of a page by a shell.
func (k *kubectl) script(t *testing.T, line string) {
	t.Helper()
	function := fmt.Sprintf("kubectl() { %s --kubeconfig %s --cache-dir %s \"$@\"; }\n", k.program, k.config, k.cache)
	cmd := exec.CommandContext(context.Background(), "bash", "-e", "-o", "pipefail", "-c", function+line)
	cmd.Dir = k.dir
	if out, err := cmd.CombinedOutput(); err != nil || line == "" {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
}
