//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMetricsRequirePermission: a ServiceAccount with permission to get /metrics reads them. One without it is
// forbidden, and a request without a token is unauthorized.
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
		err := eventually(s.timeoutContext(), func(ctx context.Context) error {
			code, body, err := metrics(ctx, url, tc.token)
			switch {
			case err != nil:
				return err
			case code != tc.want:
				return fmt.Errorf("status %d, want %d: %s", code, tc.want, body)
			case code == http.StatusOK && !strings.Contains(body, "controller_runtime_reconcile_total"):
				return errors.New("no metrics of the controllers")
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
	for _, o := range []client.Object{role, binding} {
		s.create(o)
		s.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
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
	request := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(s.ctx, sa, request); err != nil {
		s.Fatalf("requesting a token for %s: %v", account, err)
	}
	return request.Status.Token
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
