// Command registry is the plain-http image registry of the test cluster. Blobs lie on disk, manifests in memory: a
// registry that is started again is empty. It must never listen on anything but the cluster's own bridge.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address := flag.String("address", "", "address and port to listen on")
	dir := flag.String("dir", "", "directory for blobs")
	flag.Parse()
	if err := serve(*address, *dir); err != nil {
		fmt.Fprintf(os.Stderr, "serving the registry: %v\n", err)
		os.Exit(1)
	}
}

// serve serves the registry until that fails.
func serve(address, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory: %w", err)
	}
	server := &http.Server{
		Addr:              address,
		Handler:           registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	return server.ListenAndServe()
}
