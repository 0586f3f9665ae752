// Command server is the program that the end-to-end tests run in Pods. It answers clients with its own name, over TCP
// and UDP, and returns the address that a client has, and the files that it reads in its listener volumes. If it finds
// a CA, it also serves TLS, with certificates for the addresses in its volumes, and if it finds a certificate, with
// that. With the argument "advertised", it listens on the ports that it reads in its volume, and with "probe" it
// reports whether that server still listens on them. It does not use the Kubernetes API.
package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// mountRoot is where Pods mount their listener volumes, each in a directory of its volume's name.
const mountRoot = "/listeners"

// bundle is where Pods may mount a certificate with its key, by the kubelet.
const bundle = mountRoot + "/tls/bundle.pem"

// authorityDir is where Pods mount tls.crt and tls.key of the CA that signs their certificates.
const authorityDir = "/authority"

// startedWith is a file with the port that the server read at its start. Pods that run probe have a directory for it.
const startedWith = "/tmp/port"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "mess" {
		if err := mess(filepath.Join(mountRoot, "listener")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if len(os.Args) == 2 && os.Args[1] == "probe" {
		if err := probe(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	web, echo := "8080", "9090"
	if len(os.Args) == 2 && os.Args[1] == "advertised" {
		web, echo = advertised("http"), advertised("echo")
		_ = os.WriteFile(startedWith, []byte(web), 0o600) // if it can, for probe
		go serveProbes()
	}
	go serveUDP(echo)
	mux := http.NewServeMux()
	mux.HandleFunc("/whoami", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, name()) })
	mux.HandleFunc("/client", func(w http.ResponseWriter, r *http.Request) {
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = fmt.Fprint(w, client) //nolint:gosec // an address
	})
	// What a program that reads its addresses once, as most do, has read.
	started, _ := os.ReadFile(filepath.Join(mountRoot, "listener", "default-address", "address"))
	mux.HandleFunc("/started", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(started) })
	mux.HandleFunc("/files", func(w http.ResponseWriter, _ *http.Request) {
		files, err := readAll(mountRoot)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(files)
	})
	if _, err := os.Stat(authorityDir); err == nil {
		go serveTLS(mux, issued())
	} else if _, err := os.Stat(bundle); err == nil {
		go serveTLS(mux, mounted)
	}
	server := &http.Server{Addr: ":" + web, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// advertised returns the number of a port of the default address in the volume "listener".
func advertised(port string) string {
	number, err := os.ReadFile(filepath.Join(mountRoot, "listener", "default-address", "ports", port))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return string(number)
}

// probe connects to the port that the server in the same container read at its start, as docs/choosing-a-class.md
// advises.
func probe() error {
	web, err := os.ReadFile(startedWith)
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", string(web)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// serveProbes answers the kubelet, whose probes cannot name a port that is only known in the volume.
func serveProbes() {
	server := &http.Server{Addr: ":8081", Handler: http.NotFoundHandler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// serveTLS serves the handler with TLS, with a certificate that is made or read for each connection.
func serveTLS(handler http.Handler, certificate func() (tls.Certificate, error)) {
	server := &http.Server{Addr: ":8443", Handler: handler, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := certificate()
			return &c, err
		},
	}}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS("", ""))
	os.Exit(1)
}

// issued returns a function that issues a certificate for the addresses that are in the volumes at that time, with the
// name of the Pod as the subject.
func issued() func() (tls.Certificate, error) {
	authority, err := pki.LoadAuthority(authorityDir, "tls")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return func() (tls.Certificate, error) {
		files, err := readAll(mountRoot)
		if err != nil {
			return tls.Certificate{}, err
		}
		request := pki.Request{CommonName: name()}
		for path, content := range files {
			if strings.Contains(path, "/addresses/") && strings.HasSuffix(path, "/address") {
				request.DNSNames = append(request.DNSNames, content)
			}
		}
		pair, err := authority.Issue(request)
		if err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(pair.Cert, pair.Key)
	}
}

// mounted returns the certificate and the key that the kubelet has written.
func mounted() (tls.Certificate, error) {
	content, err := os.ReadFile(bundle)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(content, content)
}

func name() string {
	hostname, _ := os.Hostname()
	return hostname
}

// serveUDP answers each datagram with the server's name.
func serveUDP(port string) {
	conn, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buffer := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFrom(buffer)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = conn.WriteTo([]byte(name()), from)
	}
}

// readAll reads the files of all volumes as a product would, by the path through default-address and addresses.
func readAll(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, pattern := range []string{"*/default-address/address", "*/default-address/ports/*", "*/addresses/*/address", "*/addresses/*/ports/*", "*/ca.crt"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range matches {
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // replaced since Glob
			}
			if err != nil {
				return nil, err
			}
			files[strings.TrimPrefix(path, root+"/")] = string(content)
		}
	}
	return files, nil
}

// mess creates files in a volume, as a hostile Pod can as root, that are hard to remove or lead out of the volume.
func mess(volume string) error {
	locked := filepath.Join(volume, "locked")
	sticky := filepath.Join(volume, "sticky")
	return errors.Join(
		os.MkdirAll(filepath.Join(locked, "deep"), 0o700),
		os.WriteFile(filepath.Join(locked, "deep", "file"), []byte("x"), 0o600),
		os.Chown(filepath.Join(locked, "deep"), 4242, 4242),
		os.Chown(locked, 4242, 4242),
		os.Mkdir(sticky, 0o777),
		os.WriteFile(filepath.Join(sticky, "file"), []byte("x"), 0o600),
		os.Chown(filepath.Join(sticky, "file"), 4243, 4243),
		os.Chmod(sticky, 0o777|fs.ModeSticky),
		os.Chown(sticky, 4242, 4242),
		os.Symlink("/etc", filepath.Join(volume, "escape")),
		os.Remove(filepath.Join(volume, "..data")),
		os.MkdirAll(filepath.Join(volume, "..data", "addresses"), 0o755),
		nest(volume, 3_000),
	)
}

// nest creates directories, each in the one before, deeper than any path can be long. Package node-agent/volume tests
// more of them than a process may have files open, for which the disk that all nodes share would take minutes here.
func nest(dir string, levels int) error {
	at, err := os.OpenRoot(dir)
	for range levels {
		if err != nil {
			return err
		}
		if err := at.Mkdir("d", 0o700); err != nil {
			return err
		}
		var next *os.Root
		next, err = at.OpenRoot("d")
		_ = at.Close()
		at = next
	}
	return err
}
