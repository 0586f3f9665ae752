package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/httpserver"
)

// Anybody can send requests for metrics, and their reviews must not delay other requests to the API server.
const (
	// reviewTimeout is how long the API server may take to review a request for metrics.
	reviewTimeout = 10 * time.Second
	// reviewsPerSecond is how many requests are reviewed, after reviewBurst at once. Others are rejected.
	reviewsPerSecond = 2
	reviewBurst      = 10
	// permitted and refused are how long the result of a review holds for further requests with the same token.
	permitted, refused = time.Minute, 10 * time.Second
	// remembered is how long after its last review a permitted request is reviewed again whatever the rate, so that
	// requests with other tokens do not keep Prometheus away. It is as long as tokens of Pods are used.
	remembered = time.Hour
	maxResults = 1024
)

// authorization serves metrics to clients that the API server authenticates by their bearer token, and authorizes for
// the path. controller-runtime's filter links the machinery of an API server, which would be half of the program.
type authorization struct {
	clients kubernetes.Interface
	limiter flowcontrol.PassiveRateLimiter
	// results has the status of the response by the hash of a request's token, method and path.
	results *cache.LRUExpireCache
	// known has the hashes of requests whose last review permitted them. Others cannot displace them.
	known *cache.LRUExpireCache
}

func newAuthorization(clients kubernetes.Interface, c clock.Clock) *authorization {
	return &authorization{
		clients: clients, limiter: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewsPerSecond, reviewBurst,
			c),
		results: cache.NewLRUExpireCacheWithClock(maxResults, c),
		known:   cache.NewLRUExpireCacheWithClock(maxResults, c),
	}
}

func (a *authorization) filter(log logr.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := a.review(r)
		if err != nil {
			log.Error(err, "Reviewing a request for metrics")
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// review returns 200 for a request that is authorized, or else the status of the response.
func (a *authorization) review(r *http.Request) (int, error) {
	kind, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "Bearer") || token == "" {
		return http.StatusUnauthorized, nil
	}
	key := sha256.Sum256([]byte(r.Method + " " + r.URL.Path + " " + token))
	if status, ok := a.results.Get(key); ok {
		return status.(int), nil
	}
	if _, known := a.known.Get(key); !known && !a.limiter.TryAccept() {
		return http.StatusTooManyRequests, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	status, err := a.ask(ctx, token, r)
	switch {
	case err != nil: // the next request is reviewed again
	case status == http.StatusOK:
		a.results.Add(key, status, permitted)
		a.known.Add(key, nil, remembered)
	default:
		a.results.Add(key, status, refused)
		a.known.Remove(key)
	}
	return status, err
}

func (a *authorization) ask(ctx context.Context, token string, r *http.Request) (int, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	who, err := a.clients.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("authenticating: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups,
		Extra: make(map[string]authorizationv1.ExtraValue, len(user.Extra)),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path,
			Verb: strings.ToLower(r.Method)},
	}}
	for key, values := range user.Extra {
		access.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	may, err := a.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("authorizing user %s: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// addServers adds servers for health checks and metrics to the manager, whose own ones accept any number of connections
// and headers of a MiB. They speak HTTP/1.1 only, because a connection of HTTP/2 has many requests at once.
func addServers(ctx context.Context, mgr manager.Manager, options Options, metricsTLS ...func(*tls.Config)) error {
	checks, measured := http.NewServeMux(), http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		handler := http.StripPrefix(path, &healthz.Handler{})
		checks.Handle(path, handler)
		checks.Handle(path+"/", handler)
	}
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating the clients for the authorization of metrics: %w", err)
	}
	measured.Handle("/metrics", newAuthorization(clients, clock.RealClock{}).filter(mgr.GetLogger(),
		promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{})))
	encryption := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, set := range metricsTLS {
		set(encryption)
	}
	return errors.Join(
		addServer(ctx, mgr, "health checks", options.HealthAddress, checks, nil),
		addServer(ctx, mgr, "metrics", options.MetricsAddress, measured, encryption),
	)
}

// addServer adds a server to the manager, unless the address is "0". Without encryption, it serves plain HTTP.
func addServer(ctx context.Context, mgr manager.Manager, name, address string, handler http.Handler,
	encryption *tls.Config) error {
	if address == "0" {
		return nil
	}
	listener, err := httpserver.Listen(ctx, address)
	if err != nil {
		return fmt.Errorf("listening for %s: %w", name, err)
	}
	if encryption != nil {
		listener = tls.NewListener(listener, encryption)
	}
	// Clients must not delay the end of the process, because another one becomes the leader only then.
	server := &manager.Server{Name: name, Server: httpserver.New(handler), Listener: listener,
		ShutdownTimeout: ptr.To(time.Second)}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the server for %s: %w", name, err)
	}
	return nil
}
