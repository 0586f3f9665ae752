// Command registry is the image registry of the test cluster. It uses TLS and requires a password, like the registries
// of disconnected clusters. It stores blobs on disk and manifests in memory, so a registry that is restarted is empty.
// It must listen only on the cluster's own bridge.
package main

import (
	"crypto/subtle"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// options are the command line options.
type options struct {
	// address and port to listen on.
	address string
	// dir is the directory for blobs.
	dir string
	// certificate and key are files.
	certificate, key string
	// login is the file with NAME:PASSWORD of the only user.
	login string
}

func main() {
	var o options
	flag.StringVar(&o.address, "address", "", "address and port to listen on")
	flag.StringVar(&o.dir, "dir", "", "directory for blobs")
	flag.StringVar(&o.certificate, "certificate", "", "file with the certificate")
	flag.StringVar(&o.key, "key", "", "file with the certificate's key")
	flag.StringVar(&o.login, "login", "", "file with NAME:PASSWORD of the only user")
	flag.Parse()
	if err := serve(o); err != nil {
		fmt.Fprintf(os.Stderr, "serving the registry: %v\n", err)
		os.Exit(1)
	}
}

// serve serves the registry until an error occurs.
func serve(o options) error {
	login, err := os.ReadFile(o.login)
	if err != nil {
		return fmt.Errorf("reading the login: %w", err)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory: %w", err)
	}
	server := &http.Server{
		Addr:              o.address,
		Handler:           authenticated(strings.TrimSpace(string(login)), registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(o.dir)))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return server.ListenAndServeTLS(o.certificate, o.key)
}

// authenticated serves requests with the given login, and rejects all others.
func authenticated(login string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(login)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
