package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// run runs the plugin as the user of a configuration, and returns its output.
func run(t *testing.T, config *rest.Config, args ...string) (string, error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	return runWith(t, config, streams, out, args...)
}

func runWith(t *testing.T, config *rest.Config, streams genericiooptions.IOStreams, out *bytes.Buffer, args ...string) (string, error) {
	t.Helper()
	return runUntil(t.Context(), t, config, streams, out, args...)
}

// runUntil is runWith with a context that may end before the test does.
func runUntil(ctx context.Context, t *testing.T, config *rest.Config, streams genericiooptions.IOStreams, out *bytes.Buffer, args ...string) (string, error) {
	t.Helper()
	command := plugin.NewCommand(streams, backends.All())
	command.SetArgs(append([]string{"--kubeconfig", kubeconfig(t, config), "--cache-dir", t.TempDir()}, args...))
	err := command.ExecuteContext(ctx)
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("the output is no terminal, and has colours:\n%q", out)
	}
	if file := regexp.MustCompile(`(^|[^\w/])(docs|config|hack|test)/[\w/-]+\.\w+`).FindString(out.String()); file != "" {
		t.Errorf("users of the plugin do not have %s:\n%s", file, out)
	}
	return out.String(), err
}

// kubeconfig writes a file with the configuration of a client.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken, Impersonate: config.Impersonate.UserName,
	}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	file.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, clientcmd.WriteToFile(*file, path))
	return path
}

// via returns the configuration of a client of an API server, some of whose requests answer responds to if it returns
// true.
func via(t *testing.T, config *rest.Config, answer func(http.ResponseWriter, *http.Request) bool) *rest.Config {
	t.Helper()
	return &rest.Config{Host: proxy(t, config, answer).URL}
}

// proxy is via for a test that closes connections.
func proxy(t *testing.T, config *rest.Config, answer func(http.ResponseWriter, *http.Request) bool) *httptest.Server {
	t.Helper()
	transport, err := rest.TransportFor(config)
	check.Must(t, err)
	host, err := url.Parse(config.Host)
	check.Must(t, err)
	upstream := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(host) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			upstream.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// result is the JSON of why and doctor.
type result struct {
	Findings []found `json:"findings"`
	Problem  *found  `json:"problem"`
}

type found struct {
	Kind, Namespace, Name, State, Reason, Message, Remedy string
}

// resultOf runs the plugin as the user of a configuration, and returns its result.
func resultOf(t *testing.T, config *rest.Config, args ...string) result {
	t.Helper()
	out, err := run(t, config, append(args, "--output", "json")...)
	return decode(t, out, err)
}

// whyOf returns what why finds out.
func whyOf(t *testing.T, namespace, argument string) result {
	t.Helper()
	return resultOf(t, apiserver.Config(t), "why", argument, "--namespace", namespace)
}

// decode decodes the output of a command, whose error must be ErrProblem if and only if it names a problem.
func decode(t *testing.T, out string, err error) result {
	t.Helper()
	var r result
	if decodeErr := json.Unmarshal([]byte(out), &r); decodeErr != nil {
		t.Fatalf("error %v, output %q: %v", err, out, decodeErr)
	}
	if errors.Is(err, command.ErrProblem) != (r.Problem != nil) {
		t.Errorf("the error is %v, and the problem %+v", err, r.Problem)
	}
	return r
}
