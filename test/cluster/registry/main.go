// Command registry is the image registry of the test cluster. It speaks TLS and asks for a password, as the registries
// of clusters without the internet do. Blobs lie on disk, manifests in memory: a registry that is started again is
// empty. It must never listen on anything but the cluster's own bridge.
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

// options say what to serve, and to whom.
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

// serve serves the registry until that fails.
func serve(o options) error {
	login, err := os.ReadFile(o.login)
	if err != nil {
		return fmt.Errorf("reading who may log in: %w", err)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory: %w", err)
	}
	server := &http.Server{
		Addr:              o.address,
		Handler:           only(strings.TrimSpace(string(login)), registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(o.dir)))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return server.ListenAndServeTLS(o.certificate, o.key)
}

// only serves the user of that login, and asks everybody else for it.
func only(login string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(login)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
