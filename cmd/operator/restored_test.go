package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestTheOperatorEndsWhenResourceVersionsWentBack(t *testing.T) {
	namespace := leaseOfAKilledOperator(t, "operator-0_uid-0") // so that this one writes nothing
	config := apiserver.Config(t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			switch query := r.URL.Query(); {
			case query.Get("sendInitialEvents") != "":
				return nil, errors.New("informers list, and then watch from the version of the list")
			case query.Get("watch") == "" && query.Get("limit") == "1":
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
					Body: io.NopCloser(strings.NewReader(`{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1"}}`)),
				}, nil
			}
			return next.RoundTrip(r)
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), apiserver.Timeout)
	defer cancel()
	err := runOn(ctx, config, Options{
		Namespace: namespace, NodeAgentImage: "agent", MetricsAddress: "0", HealthAddress: "0", LeaderElection: true, PodName: "operator-1", PodUID: "uid-1",
	})
	if err == nil || !strings.Contains(err.Error(), "etcd was restored from a backup") {
		t.Errorf("the operator ended with %v", err)
	}
}
