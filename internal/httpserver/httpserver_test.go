package httpserver_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/listener-operator/listener-operator/internal/httpserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/flood"
)

// serve returns the address of a server that answers 204.
func serve(t *testing.T) string {
	t.Helper()
	listener, err := httpserver.Listen(t.Context(), "127.0.0.1:0")
	check.Must(t, err)
	server := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String()
}

func TestManyConnectionsWithLargeHeadersNeedLittleMemory(t *testing.T) {
	address := serve(t)
	flood.Check(t, address, "http://"+address, http.StatusNoContent)
}

// dial opens a connection from an address of the machine.
func dial(t *testing.T, from net.IP, to string) net.Conn {
	t.Helper()
	connection, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(t.Context(), "tcp", to)
	check.Must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// ask sends a request, and returns the status line of the response, or an error if the connection is closed.
func ask(connection net.Conn) (string, error) {
	if _, err := connection.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		return "", err
	}
	response := make([]byte, len("HTTP/1.1 204 No Content"))
	_, err := connection.Read(response)
	return string(response), err
}

// Prometheus and the kubelet have one connection each.
func TestAClientWithFewConnectionsKeepsThem(t *testing.T) {
	const connections = 64
	address := serve(t)
	prometheus := dial(t, net.IPv4(127, 0, 0, 2), address)
	var hostile []net.Conn
	for i := range 2 * connections {
		hostile = append(hostile, dial(t, net.IPv4(127, 0, 1, byte(i%16)), address))
	}
	if status, err := ask(hostile[len(hostile)-1]); err != nil || status != "HTTP/1.1 204 No Content" {
		t.Errorf("the last connection got %q, %v", status, err) // and so all connections were accepted
	}
	if status, err := ask(prometheus); err != nil || status != "HTTP/1.1 204 No Content" {
		t.Errorf("the connection of another address got %q, %v", status, err)
	}
	if open := answered(hostile); open != connections-1 {
		t.Errorf("the addresses with %d connections still have %d of them, want %d", len(hostile), open, connections-1)
	}
}

// answered returns how many connections still get a response.
func answered(connections []net.Conn) (count int) {
	for _, connection := range connections {
		if _, err := ask(connection); err == nil {
			count++
		}
	}
	return count
}

func TestAnAddressOpensFewConnectionsInASecond(t *testing.T) {
	const rate = 20
	address, start := serve(t), time.Now()
	var hostile []net.Conn
	for range 3 * rate {
		hostile = append(hostile, dial(t, net.IPv4(127, 0, 1, 1), address))
	}
	dialled := time.Now()
	prometheus := dial(t, net.IPv4(127, 0, 0, 2), address)
	if status, err := ask(prometheus); err != nil || status != "HTTP/1.1 204 No Content" {
		t.Errorf("the connection of another address got %q, %v", status, err) // and so all connections were accepted
	}
	seconds := int(time.Now().Unix() - start.Unix() + 1)
	if open := answered(hostile); open < rate || open > seconds*rate {
		t.Errorf("%d connections, opened within %s, have %d responses, want at most %d in each of %d seconds", len(hostile), dialled.Sub(start), open, rate, seconds)
	}
}
