package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// metricsAPI is an API server that authenticates the token "good", and allows that user to get /metrics.
type metricsAPI struct {
	tokenError, accessError error
	// tokens and accesses are those that were reviewed.
	tokens   []string
	accesses []authorizationv1.SubjectAccessReviewSpec
	clock    *clocktesting.FakeClock
	// revoked states that no token is good any more.
	revoked bool
}

func newMetricsAPI() (*metricsAPI, *authorization) {
	a, clients := &metricsAPI{clock: clocktesting.NewFakeClock(time.Now())}, fake.NewClientset()
	clients.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		a.tokens = append(a.tokens, review.Spec.Token)
		review.Status.Authenticated = review.Spec.Token == "good" && !a.revoked
		review.Status.User = authenticationv1.UserInfo{
			Username: "prometheus", UID: "1", Groups: []string{"monitoring"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
		}
		return true, review, a.tokenError
	})
	clients.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		a.accesses = append(a.accesses, review.Spec)
		review.Status.Allowed = *review.Spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		return true, review, a.accessError
	})
	return a, newAuthorization(clients, a.clock)
}

func get(t *testing.T, a *authorization, request *http.Request) int {
	t.Helper()
	handler := a.filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response.Code
}

func TestOnlyAuthorizedClientsGetMetrics(t *testing.T) {
	broken := errors.New("the API server is unavailable")
	for name, tc := range map[string]struct {
		header, method, path    string
		tokenError, accessError error
		want                    int
	}{
		"authorized":              {header: "Bearer good", want: http.StatusOK},
		"scheme in another case":  {header: "bearer good", want: http.StatusOK},
		"no header":               {want: http.StatusUnauthorized},
		"no token":                {header: "Bearer ", want: http.StatusUnauthorized},
		"another scheme":          {header: "Basic good", want: http.StatusUnauthorized},
		"token alone":             {header: "good", want: http.StatusUnauthorized},
		"unknown token":           {header: "Bearer bad", want: http.StatusUnauthorized},
		"two tokens":              {header: "Bearer good good", want: http.StatusUnauthorized},
		"another path":            {header: "Bearer good", path: "/debug", want: http.StatusForbidden},
		"another method":          {header: "Bearer good", method: http.MethodPost, want: http.StatusForbidden},
		"no authentication":       {header: "Bearer good", tokenError: broken, want: http.StatusInternalServerError},
		"no authorization":        {header: "Bearer good", accessError: broken, want: http.StatusInternalServerError},
		"unknown, and no reviews": {header: "Bearer bad", accessError: broken, want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			api, a := newMetricsAPI()
			api.tokenError, api.accessError = tc.tokenError, tc.accessError
			request := httptest.NewRequestWithContext(t.Context(), cmp.Or(tc.method, http.MethodGet), cmp.Or(tc.path, "/metrics"), http.NoBody)
			if tc.header != "" {
				request.Header.Set("Authorization", tc.header)
			}
			if got := get(t, a, request); got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTheAPIServerDecidesAboutTheWholeUser(t *testing.T) {
	api, a := newMetricsAPI()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics?name[]=up", http.NoBody)
	request.Header.Set("Authorization", "Bearer good")
	get(t, a, request)
	check.Equal(t, "reviewed access", []authorizationv1.SubjectAccessReviewSpec{{
		User: "prometheus", UID: "1", Groups: []string{"monitoring"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}, api.accesses)
}

func scrape(t *testing.T, token string) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+token)
	return request
}

// A flood of requests for metrics must not become one of requests to the API server.
func TestRequestsForMetricsAreReviewedAtALimitedRate(t *testing.T) {
	api, a := newMetricsAPI()
	if got := get(t, a, scrape(t, "good")); got != http.StatusOK {
		t.Fatalf("status %d", got)
	}
	statuses := map[int]int{}
	for i := range 100 {
		statuses[get(t, a, scrape(t, fmt.Sprint("bad", i)))]++
	}
	want := map[int]int{http.StatusUnauthorized: reviewBurst - 1, http.StatusTooManyRequests: 101 - reviewBurst}
	check.Equal(t, "statuses", want, statuses)
	check.Equal(t, "number of reviews", reviewBurst, len(api.tokens))
	if got := get(t, a, scrape(t, "good")); got != http.StatusOK || len(api.tokens) != reviewBurst {
		t.Errorf("status %d, %d reviews, of a client that was authorized before the flood", got, len(api.tokens))
	}
	api.clock.Step(time.Second)
	for i := range 100 {
		get(t, a, scrape(t, fmt.Sprint("later", i)))
	}
	if got := len(api.tokens); got != reviewBurst+reviewsPerSecond {
		t.Errorf("%d reviews after another second", got)
	}
}

// Three requests a second would be enough to take all reviews.
func TestAFloodOfTokensDoesNotKeepPrometheusAway(t *testing.T) {
	api, a := newMetricsAPI()
	get(t, a, scrape(t, "good"))
	floods, scrapes := 0, map[int]int{}
	for second := range 600 {
		api.clock.Step(time.Second)
		for range 20 {
			floods++
			get(t, a, scrape(t, fmt.Sprint("bad", floods)))
		}
		if second%30 == 0 {
			scrapes[get(t, a, scrape(t, "good"))]++
		}
	}
	check.Equal(t, "scrapes by status", map[int]int{http.StatusOK: 20}, scrapes)
	if limit := reviewBurst + 600*reviewsPerSecond + 20; len(api.tokens) > limit {
		t.Errorf("%d reviews, more than %d", len(api.tokens), limit)
	}
}

// A token that was permitted, and no longer is, is one of many.
func TestARevokedTokenIsReviewedAtTheLimitedRate(t *testing.T) {
	api, a := newMetricsAPI()
	get(t, a, scrape(t, "good"))
	api.revoked = true
	api.clock.Step(permitted + time.Second)
	if got := get(t, a, scrape(t, "good")); got != http.StatusUnauthorized {
		t.Errorf("status %d after the token was revoked", got)
	}
	for i := range reviewBurst + 1 {
		get(t, a, scrape(t, fmt.Sprint("bad", i)))
	}
	api.clock.Step(refused + time.Millisecond)
	for i := range reviewBurst + reviewsPerSecond*int(refused/time.Second) {
		get(t, a, scrape(t, fmt.Sprint("later", i)))
	}
	if got := get(t, a, scrape(t, "good")); got != http.StatusTooManyRequests {
		t.Errorf("status %d of a revoked token during a flood", got)
	}
}

func TestResultsOfReviewsHoldForAWhile(t *testing.T) {
	for token, tc := range map[string]struct {
		status int
		holds  time.Duration
	}{"good": {http.StatusOK, permitted}, "bad": {http.StatusUnauthorized, refused}} {
		t.Run(token, func(t *testing.T) {
			api, a := newMetricsAPI()
			for range 40 {
				if got := get(t, a, scrape(t, token)); got != tc.status {
					t.Errorf("status %d", got)
				}
			}
			if len(api.tokens) != 1 {
				t.Errorf("%d reviews of one token", len(api.tokens))
			}
			api.clock.Step(tc.holds + time.Second)
			if got := get(t, a, scrape(t, token)); got != tc.status || len(api.tokens) != 2 {
				t.Errorf("status %d, %d reviews, after %s", got, len(api.tokens), tc.holds)
			}
		})
	}
}

// The result of a review holds for one path, and a failed review has none.
func TestOtherRequestsAreReviewed(t *testing.T) {
	api, a := newMetricsAPI()
	get(t, a, scrape(t, "good"))
	other := scrape(t, "good")
	other.URL.Path = "/debug"
	if got := get(t, a, other); got != http.StatusForbidden {
		t.Errorf("status %d of another path", got)
	}
	api.tokenError = errors.New("the API server is unavailable")
	if got := get(t, a, scrape(t, "good ")); got != http.StatusOK {
		t.Errorf("status %d of the same request", got)
	}
	api.clock.Step(permitted + time.Second)
	if got := get(t, a, scrape(t, "good")); got != http.StatusInternalServerError {
		t.Errorf("status %d without a review", got)
	}
	api.tokenError = nil
	if got := get(t, a, scrape(t, "good")); got != http.StatusOK {
		t.Errorf("status %d after a review that failed", got)
	}
}
