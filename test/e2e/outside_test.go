//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// externalClient and patientClient are HTTP clients outside the cluster. The patient one allows for nodes that have
// other work: a late answer is not lost.
var (
	externalClient = clientOf("", 3*time.Second, nil)
	patientClient  = clientOf("", 30*time.Second, nil)
)

// clientOf returns an HTTP client outside the cluster that resolves all hosts to an IP address, as a name server
// would tell, unless that is empty.
func clientOf(ip string, timeout time.Duration, trust *tls.Config) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   trust,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if ip != "" {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				address = net.JoinHostPort(ip, port)
			}
			return testbed.ClientDial(ctx, network, address)
		},
	}}
}

// request sends one request from outside the cluster to an address of a Listener, and returns the body.
func request(ctx context.Context, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	return requestWith(ctx, externalClient, a, path)
}

func requestWith(ctx context.Context, by *http.Client, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	return fetch(ctx, by, "http://"+hostPort(a, "http")+path)
}

// hostPort returns an address and the number of a port in the form of a URL.
func hostPort(a listenersv1alpha1.IngressAddress, port string) string {
	return net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports[port])))
}

// fetch sends one request, and returns the body of the response. Any status but 200 is an error.
func fetch(ctx context.Context, by *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, content)
	}
	return string(content), err
}

// awaitAnswer waits until an address answers a request from outside the cluster with the name of the expected Pod.
// kube-proxy follows a Service with a delay that no watch shows.
func (s *scenario) awaitAnswer(a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		got, err := request(ctx, a, "/whoami")
		if err == nil && got != want {
			err = fmt.Errorf("from outside, %q answered at %s, want %q", got, a.Address, want)
		}
		return err
	})
}

// awaitNoAnswer waits until an address answers no more, for the same reason.
func (s *scenario) awaitNoAnswer(a listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		if name, err := request(ctx, a, "/whoami"); err == nil {
			return fmt.Errorf("from outside, %s still answers at %s", name, a.Address)
		}
		return nil
	})
}

// awaitAnswerOverUDP is awaitAnswer for the port "echo".
func (s *scenario) awaitAnswerOverUDP(a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	target := hostPort(a, "echo")
	s.eventually(func(ctx context.Context) error {
		conn, err := testbed.ClientDial(ctx, "udp", target)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("who are you")); err != nil {
			return err
		}
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		if err == nil && string(answer[:n]) != want {
			err = fmt.Errorf("from outside, over UDP, %q answered at %s, want %q", answer[:n], target, want)
		}
		return err
	})
}

// readFiles requests the files that the test server reads in its volumes, through an address from outside of the
// cluster.
func (s *scenario) readFiles(a listenersv1alpha1.IngressAddress) map[string]string {
	s.Helper()
	body, err := request(s.timeoutContext(), a, "/files")
	if err != nil {
		s.Fatalf("requesting the files: %v", err)
	}
	var files map[string]string
	if err := json.Unmarshal([]byte(body), &files); err != nil {
		s.Fatalf("parsing the files: %v", err)
	}
	return files
}

// checkFilesAt fails the test unless the test server, which is reached at this address, reads it and no other in its
// volume "listener".
func (s *scenario) checkFilesAt(own listenersv1alpha1.IngressAddress) {
	s.Helper()
	check.Equal(s, "files at "+own.Address, wantFiles("listener", own), s.readFiles(own))
}

// awaitFilesAt waits until the test server, which is reached through an address from outside the cluster, reads
// exactly these addresses in its volume "listener".
func (s *scenario) awaitFilesAt(through listenersv1alpha1.IngressAddress, want ...listenersv1alpha1.IngressAddress) {
	s.Helper()
	s.eventually(func(ctx context.Context) error {
		raw, err := request(ctx, through, "/files")
		if err != nil {
			return err
		}
		return checkFiles(raw, want...)
	})
}

// checkFiles returns an error unless the files that the test server has read are those of exactly these addresses in
// its volume "listener".
func checkFiles(raw string, want ...listenersv1alpha1.IngressAddress) error {
	var files map[string]string
	if err := json.Unmarshal([]byte(raw), &files); err != nil {
		return fmt.Errorf("parsing the files: %w", err)
	}
	if diff := cmp.Diff(wantFiles("listener", want...), files); diff != "" {
		return fmt.Errorf("files (-want +got):\n%s", diff)
	}
	return nil
}

// wantFiles returns the expected files of a volume with these addresses.
func wantFiles(volume string, addresses ...listenersv1alpha1.IngressAddress) map[string]string {
	files := map[string]string{}
	for i, a := range addresses {
		dirs := []string{volume + "/addresses/" + a.Address}
		if i == 0 {
			dirs = append(dirs, volume+"/default-address")
		}
		for _, dir := range dirs {
			files[dir+"/address"] = a.Address
			for name, port := range a.Ports {
				files[dir+"/ports/"+name] = strconv.Itoa(int(port))
			}
		}
	}
	return files
}
