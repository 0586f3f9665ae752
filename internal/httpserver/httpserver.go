// Package httpserver serves health checks and metrics to clients that nobody knows. What they send, and how many
// connections they open, must neither need much memory nor keep other clients away. Handlers must not read bodies.
package httpserver

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const (
	// maxConnections is the number of open connections of a listener. The kubelet and Prometheus need one each.
	maxConnections = 64
	// maxRate is the number of connections that an IP address may open within a second. TLS handshakes need much CPU.
	maxRate = 20
	// maxHeader is the size of a request's header in bytes, to which net/http adds 4 KiB. A token has about one KiB.
	maxHeader = 8 << 10
	// readTimeout is how long a request may take to arrive, and so may a TLS handshake.
	readTimeout = 5 * time.Second
	// writeTimeout is how long a response may take. Prometheus waits for ten seconds by default.
	writeTimeout = 30 * time.Second
	// idleTimeout is longer than the common interval of scrapes, so that Prometheus can reuse its connection.
	idleTimeout = 2 * time.Minute
)

// New returns a server for requests that are small. Clients decide what it logs, so it logs nothing at the usual level.
func New(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout,
		ErrorLog:    slog.NewLogLogger(logr.ToSlogHandler(klog.Background()), slog.LevelDebug),
	}
}

// Listen listens on a TCP address. The listener closes at once what exceeds the rate of an IP address. When there are
// too many connections, it closes the oldest one of the IP address that has the most. So a client with few connections
// keeps them, however many others open. The listener is of no use after an error.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	return &listener{Listener: l}, err
}

type listener struct {
	net.Listener

	mu   sync.Mutex
	open []*connection // the oldest first

	// second is when connections were accepted last, in seconds since 1970, and opened their number by IP address.
	second int64
	opened map[string]int
}

// Accept implements net.Listener. It does not wait until there are fewer connections, which clients could prevent.
func (l *listener) Accept() (net.Conn, error) {
	var c *connection
	for c == nil {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(accepted.RemoteAddr().String())
		if l.tooFast(host) {
			_ = accepted.Close()
			continue
		}
		c = &connection{Conn: accepted, listener: l, host: host}
	}
	l.mu.Lock()
	l.open = append(l.open, c)
	excess := l.excess()
	l.mu.Unlock()
	if excess != nil {
		_ = excess.Close()
	}
	return c, nil
}

// tooFast counts a connection of an IP address, and reports whether there are too many within this second.
func (l *listener) tooFast(host string) bool {
	if now := time.Now().Unix(); now != l.second {
		l.second, l.opened = now, map[string]int{}
	}
	l.opened[host]++
	return l.opened[host] > maxRate
}

func (l *listener) excess() *connection {
	if len(l.open) <= maxConnections {
		return nil
	}
	count := map[string]int{}
	for _, c := range l.open {
		count[c.host]++
	}
	return slices.MaxFunc(l.open, func(a, b *connection) int { return cmp.Compare(count[a.host], count[b.host]) })
}

type connection struct {
	net.Conn
	listener *listener
	host     string
}

func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.open = slices.DeleteFunc(c.listener.open, func(o *connection) bool { return o == c })
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
