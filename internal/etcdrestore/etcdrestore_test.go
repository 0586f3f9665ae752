package etcdrestore_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/listener-operator/listener-operator/internal/etcdrestore"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestWatchesFromAFutureResourceVersionAreRefused(t *testing.T) {
	const path = "/api/v1/pods"
	list, watched := path+"?limit=1", path+"?labelSelector=a&resourceVersion=%s&watch=true"
	for name, tc := range map[string]struct {
		// version is where the client's watch starts, current what the API server has.
		version, current string
		// code is the one of the API server's answer to the list.
		code int
		// want is the code of the answer to the watch, or 0 for an error, requests what the API server gets.
		want     int
		requests []string
		reported bool
	}{
		"restored":                {version: "1000", current: "999", code: 200, requests: []string{list}, reported: true},
		"current":                 {version: "1000", current: "1000", code: 200, want: 200, requests: []string{list, watched}},
		"newer":                   {version: "999", current: "1000", code: 200, want: 200, requests: []string{list, watched}},
		"API server busy":         {version: "1000", current: "1000", code: 429, want: 429, requests: []string{list}},
		"other kind of version":   {version: "a", current: "b", code: 200, want: 200, requests: []string{list, watched}},
		"watch from any version":  {version: "0", want: 200, requests: []string{watched}},
		"watch from the last one": {version: "", want: 200, requests: []string{watched}},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, r.URL.String())
				if r.URL.Query().Get("limit") == "1" {
					w.WriteHeader(tc.code)
					_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":%q},"items":[{}]}`, tc.current)
				}
			}))
			defer server.Close()
			var reported []string
			client := http.Client{Transport: etcdrestore.Detect(func(err error) { reported = append(reported, err.Error()) })(http.DefaultTransport)}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+fmt.Sprintf(watched, tc.version), http.NoBody)
			check.Must(t, err)
			response, err := client.Do(request)
			if tc.reported != apierrors.IsResourceExpired(err) || !tc.reported && err != nil {
				t.Fatal(err)
			}
			if err == nil {
				defer func() { _ = response.Body.Close() }()
				if response.StatusCode != tc.want {
					t.Errorf("the answer has code %d, want %d", response.StatusCode, tc.want)
				}
			}
			want := slices.Clone(tc.requests)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "%s", tc.version)
			}
			if !slices.Equal(requests, want) {
				t.Errorf("the API server got %q, want %q", requests, want)
			}
			if !tc.reported {
				if len(reported) > 0 {
					t.Errorf("reported: %q", reported)
				}
				return
			}
			const reason = "/api/v1/pods went back from 1000 to 999: etcd was restored from a backup"
			if len(reported) != 1 || !strings.Contains(reported[0], reason) {
				t.Errorf("reported %q, want one with %q", reported, reason)
			}
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A client that may watch only an object of one name may list no others.
func TestTheListHasTheNameOfTheWatch(t *testing.T) {
	for selector, want := range map[string]string{
		"fieldSelector=metadata.name%3Dx":      "fieldSelector=metadata.name%3Dx&limit=1",
		"fieldSelector=spec.nodeName%3Dx":      "limit=1",
		"labelSelector=metadata.name%3Dx":      "limit=1",
		"fieldSelector=metadata.namespace%3Dx": "limit=1",
	} {
		var lists []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				lists = append(lists, r.URL.RawQuery)
				_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"1"}}`)
			}
		}))
		defer server.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/?"+selector+"&resourceVersion=1&watch=true", http.NoBody)
		check.Must(t, err)
		response, err := etcdrestore.Detect(func(error) {})(http.DefaultTransport).RoundTrip(request)
		check.Must(t, err)
		_ = response.Body.Close()
		if !slices.Equal(lists, []string{want}) {
			t.Errorf("before a watch with %s, the lists are %q, want one with %s", selector, lists, want)
		}
	}
}
