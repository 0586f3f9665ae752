//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/queries"
)

// A ServiceAccount with permission to get /metrics reads them. One without it is forbidden, and a request without a
// token is unauthorized.
func TestMetricsRequirePermission(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.allowMetrics("reader")
	url := s.metricsURL()
	reader, other := s.token("reader"), s.token("other")
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"with permission":    {reader, http.StatusOK},
		"without permission": {other, http.StatusForbidden},
		"without a token":    {"", http.StatusUnauthorized},
	} {
		// RBAC rules take effect with a delay.
		s.eventually(func(ctx context.Context) error {
			code, body, err := metrics(ctx, url, tc.token)
			switch {
			case err != nil:
				return err
			case code != tc.want:
				return fmt.Errorf("%s: status %d, want %d: %s", name, code, tc.want, body)
			case code == http.StatusOK && !strings.Contains(body, "controller_runtime_reconcile_total"):
				return errors.New("no metrics of the controllers")
			}
			return nil
		})
	}
}

// allowMetrics permits a ServiceAccount of the scenario to read metrics.
func (s *scenario) allowMetrics(account string) {
	s.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: account}},
	}
	s.createUntilEnd(role)
	s.createUntilEnd(binding)
}

// metricsURL returns where the operator serves its metrics.
func (s *scenario) metricsURL() string {
	s.Helper()
	return "https://" + net.JoinHostPort(s.operatorPod().Status.PodIP, "8443") + "/metrics"
}

// token creates a ServiceAccount and returns a token for it.
func (s *scenario) token(account string) string {
	s.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	s.create(sa)
	return s.tokenOf(s.namespace, account)
}

// metrics requests metrics, with the token unless it is empty, and returns the status code and the body.
func metrics(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is self-signed
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// With the metrics of the operator and the node agents, scraped as Prometheus does it, each query of the dashboard has
// a result.
func TestEveryQueryOfTheDashboardHasAResult(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned()).Name
	s.createBootstrapListener(class) // without an address
	s.create(pod("web", byClass(class)))
	s.awaitReady("web")
	s.allowMetrics("reader")
	token := s.token("reader")
	begin := time.Now()
	store := &queries.Store{}
	// Rates take two scrapes; Prometheus' times need not be real.
	for _, at := range []time.Time{begin.Add(-2 * time.Minute), begin} {
		s.eventually(func(ctx context.Context) error { return s.scrape(ctx, store, token, at) })
	}
	raw, err := os.ReadFile("../../config/dashboard/grafana-dashboard.json")
	s.must(err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	s.must(json.Unmarshal(raw, &dashboard))
	// These show something only while there is something to show.
	mayBeEmpty := []string{
		"Volumes of lost nodes, by node", "Repairs", "Ports left in ranges", "Use of ranges of ports", "Listeners that wait for a port",
		"Listeners whose nodes are not ready", "Addresses of load balancers, by class", "Longest wait for a load balancer, by class",
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			result, err := store.Query(s.ctx, strings.ReplaceAll(target.Expr, "$namespace", operatorNamespace), begin.Add(time.Second))
			if err != nil || len(result) == 0 && !slices.Contains(mayBeEmpty, p.Title) {
				t.Errorf("panel %s: no result of %s: %v", p.Title, target.Expr, err)
			}
		}
	}
	if len(dashboard.Panels) < 20 {
		t.Errorf("the dashboard has %d panels", len(dashboard.Panels))
	}
}

// scrape adds the metrics of the operator and of all node agents to a store, with the labels of the ServiceMonitor.
func (s *scenario) scrape(ctx context.Context, store *queries.Store, token string, at time.Time) error {
	targets := map[string]map[string]string{s.metricsURL(): {"job": names.MetricsService, "namespace": operatorNamespace, "pod": "operator"}}
	agents, err := podsOf(ctx, "node-agent")
	if err != nil {
		return err
	}
	for _, a := range agents {
		targets["http://"+net.JoinHostPort(a.Status.PodIP, "8081")+"/metrics"] = map[string]string{
			"job": names.NodeAgent, "namespace": operatorNamespace, "pod": a.Name, "node": a.Spec.NodeName,
		}
	}
	if len(targets) != len(testbed.Nodes())+1 {
		return fmt.Errorf("%d targets, want the operator and an agent on each node", len(targets))
	}
	bodies := map[string]string{}
	for url := range targets {
		secret := token
		if strings.HasPrefix(url, "http:") {
			secret = "" // which is the point of these metrics
		}
		code, body, err := metrics(ctx, url, secret)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("%s: status %d: %w", url, code, err)
		}
		bodies[url] = body
	}
	for url, labels := range targets {
		if err := store.Scrape(strings.NewReader(bodies[url]), at, labels); err != nil {
			return err
		}
		up := fmt.Sprintf(`up{job=%q, namespace=%q, pod=%q}`, labels["job"], labels["namespace"], labels["pod"])
		if err := store.Add(up, at, 1); err != nil {
			return err
		}
	}
	return nil
}
