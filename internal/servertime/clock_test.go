package servertime_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/servertime"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// It is not if the header alone may explain the difference.
func TestTheClockIsThatOfTheServer(t *testing.T) {
	for name, tc := range map[string]struct {
		date string
		want time.Duration
	}{
		"an hour ahead":  {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), time.Hour},
		"an hour behind": {time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), -time.Hour},
		"a second off":   {time.Now().Add(-time.Second).UTC().Format(http.TimeFormat), 0},
		"unknown":        {"yesterday", 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", tc.date) }))
			defer server.Close()
			c := &servertime.Clock{}
			if ahead := time.Until(c.Now()); ahead.Abs() > time.Second {
				t.Errorf("before the first response, the clock is ahead by %s", ahead)
			}
			response, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Get(server.URL)
			check.Must(t, err)
			check.Must(t, response.Body.Close())
			if ahead := time.Until(c.Now()); (ahead - tc.want).Abs() > 30*time.Second {
				t.Errorf("the clock is ahead by %s", ahead)
			}
			if since := c.Since(time.Now().Add(-time.Minute)); (since - time.Minute - tc.want).Abs() > 30*time.Second {
				t.Errorf("a minute takes %s", since)
			}
		})
	}
}
