// Package servertime has the time of the API server. It is for what the API server compares with its own time, so that
// the operator works on a node whose clock is wrong.
package servertime

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// tolerance is up to which difference the node's own time counts: the header has seconds, and responses take time.
const tolerance = 5 * time.Second

// Clock is a clock.PassiveClock with the time of the API server as of its last response, and of the node before.
type Clock struct{ ahead atomic.Int64 }

var _ clock.PassiveClock = &Clock{}

// Wrap is a transport.WrapperFunc for the client whose responses the clock follows. Their header Date is the time at
// which the API server begins to respond (RFC 9110, section 6.6.1).
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return response, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			ahead := time.Until(date)
			if ahead.Abs() < tolerance {
				ahead = 0
			}
			c.ahead.Store(int64(ahead))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Since is the time that has passed since a time of the API server.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
