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

// TestMetricsAreForThoseWhoMayReadThem: a ServiceAccount with the right to /metrics reads them, one without it does
// not, and nobody does without a token.
func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	t.Parallel()
	s := tell(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "reader"}},
	}
	for _, o := range []client.Object{role, binding} {
		s.create(o)
		t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	var operators corev1.PodList
	if err := api.List(s.ctx, &operators, client.InNamespace(operatorSpace), client.MatchingLabels{"app.kubernetes.io/component": "operator"}); err != nil {
		t.Fatal(err)
	}
	if len(operators.Items) == 0 {
		t.Fatal("no operator runs")
	}
	url := "https://" + net.JoinHostPort(operators.Items[0].Status.PodIP, "8443") + "/metrics"
	reader, stranger := s.token("reader"), s.token("stranger")
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"a reader":   {reader, http.StatusOK},
		"a stranger": {stranger, http.StatusForbidden},
		"nobody":     {"", http.StatusUnauthorized},
	} {
		// The right of the reader takes a moment to be in force.
		err := eventually(s.within(), func(ctx context.Context) error {
			code, body, err := metrics(ctx, url, tc.token)
			switch {
			case err != nil:
				return err
			case code != tc.want:
				return fmt.Errorf("answer %d, want %d: %s", code, tc.want, body)
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

// token makes a ServiceAccount, and returns a token of it.
func (s *story) token(account string) string {
	s.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	s.create(sa)
	request := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(s.ctx, sa, request); err != nil {
		s.Fatalf("asking for a token of %s: %v", account, err)
	}
	return request.Status.Token
}

// metrics reads metrics as somebody with the token does, if it is not empty.
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
