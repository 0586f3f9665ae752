// Package flood does what a hostile Pod may do to an HTTP server: it opens many connections with endless headers.
package flood

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

const (
	// connections is how many there are: as many as have killed a node agent.
	connections = 150
	headerBytes = 1 << 20
	// maxGrowth is how much more memory may be in use meanwhile. Without limits, it is connections*headerBytes.
	maxGrowth = 24 << 20
)

// Check fails the test if a flood of connections from 16 addresses makes the process, in which the server at the
// address runs, use much memory, or if a client with another address does not get the wanted status of a URL meanwhile.
func Check(t *testing.T, address, url string, want int) {
	t.Helper()
	before := heap()
	var sent sync.WaitGroup
	header := append([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nX: "), bytes.Repeat([]byte("a"), headerBytes)...)
	for i := range connections {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%16))}}
		connection, err := dialer.DialContext(t.Context(), "tcp", address)
		check.Must(t, err)
		defer connection.Close()
		writer := io.Writer(connection)
		if url[:5] == "https" {
			writer = tls.Client(connection, insecure())
		}
		sent.Go(func() { _, _ = writer.Write(header) }) // fails if the server closes the connection
	}
	client := http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: insecure(),
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, 1)}}).DialContext(ctx, network,
					address)
			}}}
	defer client.CloseIdleConnections()
	get := func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		check.Must(t, err)
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("a client with another address is kept away: %v", err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != want {
			t.Errorf("%s: status %d, %v, want %d", url, response.StatusCode, err, want)
		}
	}
	get()
	sent.Wait()
	get()
	if growth := heap() - before; growth > maxGrowth {
		t.Errorf("%d connections need %d MiB of memory", connections, growth>>20)
	} else {
		t.Logf("%d connections need %d KiB of memory", connections, growth>>10)
	}
	runtime.KeepAlive(header)
}

func insecure() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate is self-signed
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse + stats.StackInuse) //nolint:gosec // far below the maximum
}
