package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/listener-operator/listener-operator/hack/image"
)

// BusyboxImage is an image with a shell and common tools, which every node has. Its wget may not work on a recent
// kernel.
const BusyboxImage = "localhost/busybox:1"

// Images in config/samples, which so run on every cluster. The web server is busybox's, with the port, folder and user
// of the image that has this name elsewhere.
const (
	samplesShell     = "busybox:1"
	samplesWebServer = "nginxinc/nginx-unprivileged:1"
)

// PauseImage is an image with a program that does nothing until it gets SIGTERM. Every node has it, for the sandboxes
// of Pods.
const PauseImage = "localhost/pause:1"

// corednsImage is the image of CoreDNS.
const corednsImage = "localhost/coredns:1"

// systemArchive is the archive of the images above.
const systemArchive = "system.tar"

// writeSystemImages writes the archive that every node imports first.
func (c *Cluster) writeSystemImages(ctx context.Context) error {
	shell, err := image.Busybox(ctx, busybox)
	if err != nil {
		return err
	}
	web := shell
	web.Entrypoint = []string{"/bin/httpd", "-f", "-p", "8080", "-h", "/usr/share/nginx/html"}
	web.User = "101:101"
	return c.writeArchive(systemArchive, map[string]image.Spec{
		BusyboxImage:     shell,
		samplesShell:     shell,
		samplesWebServer: web,
		PauseImage:       ProgramImage(filepath.Join(c.binDir(), "pause"), "/pause", "65535:65535"),
		corednsImage:     ProgramImage(c.tool("coredns", "coredns"), "/coredns", ""),
	})
}

// LoadImage builds an image and loads it into every node, also into nodes that join later, under the given reference,
// for example "localhost/operator:dev". A Pod uses it with the pull policy IfNotPresent or Never.
func (c *Cluster) LoadImage(ctx context.Context, ref string, spec image.Spec) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.writeArchive(url.PathEscape(ref)+".tar", map[string]image.Spec{ref: spec}); err != nil {
		return err
	}
	return c.importEverywhere(ctx)
}

// LoadArchive loads the images of an archive (of "docker save", or an OCI layout) into every node, under the names in
// the archive.
func (c *Cluster) LoadArchive(ctx context.Context, path string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	source, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the archive: %w", err)
	}
	defer func() { _ = source.Close() }()
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("finding the archive: %w", err)
	}
	if err := c.storeArchive(url.PathEscape(absolute)+".tar", func(w io.Writer) error {
		_, err := io.Copy(w, source)
		return err
	}); err != nil {
		return err
	}
	return c.importEverywhere(ctx)
}

// PushImage builds an image, pushes it to the cluster's own registry and returns its full name with the digest. The
// repository is a path with an optional tag, for example "operator:dev".
func (c *Cluster) PushImage(ctx context.Context, repository string, spec image.Spec) (string, error) {
	img, err := image.Build(spec)
	if err != nil {
		return "", fmt.Errorf("building image %s: %w", repository, err)
	}
	return c.Push(ctx, repository, img)
}

// Push is PushImage for an image that exists already.
func (c *Cluster) Push(ctx context.Context, repository string, img v1.Image) (string, error) {
	tag, err := name.NewTag(c.Registry() + "/" + repository)
	if err != nil {
		return "", fmt.Errorf("parsing image name %q: %w", repository, err)
	}
	access, err := c.registryAccess()
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, img, append(access, remote.WithContext(ctx))...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the digest of %s: %w", tag, err)
	}
	return tag.Context().Digest(digest.String()).String(), nil
}

// registryAccess returns the options for requests to the cluster's own registry.
func (c *Cluster) registryAccess() ([]remote.Option, error) {
	user, password, err := c.RegistryLogin()
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.pkiFile("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the registry's authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return []remote.Option{
		remote.WithAuth(&authn.Basic{Username: user, Password: password}),
		// Without the caller's proxy.
		remote.WithTransport(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}),
	}, nil
}

// writeArchive builds images and stores them as an archive.
func (c *Cluster) writeArchive(file string, specs map[string]image.Spec) error {
	images := make(map[string]v1.Image, len(specs))
	for ref, spec := range specs {
		img, err := image.Build(spec)
		if err != nil {
			return fmt.Errorf("building image %s: %w", ref, err)
		}
		images[ref] = img
	}
	return c.storeArchive(file, func(w io.Writer) error { return image.WriteTar(w, images) })
}

// storeArchive stores the output of write as an archive of images, atomically.
func (c *Cluster) storeArchive(file string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(c.imageDir(), ".*")
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	if err := errors.Join(write(temp), temp.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing the archive: %w", err), os.Remove(temp.Name()))
	}
	if err := os.Rename(temp.Name(), filepath.Join(c.imageDir(), file)); err != nil {
		return fmt.Errorf("keeping the archive: %w", err)
	}
	return nil
}

// importEverywhere imports all archives into all running nodes.
func (c *Cluster) importEverywhere(ctx context.Context) error {
	if err := c.load(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.state.Nodes {
		_, ok, err := c.node(node).find(c.containerd(node))
		if err != nil {
			return err
		}
		if ok {
			group.Go(func() error { return c.importImages(ctx, node) })
		}
	}
	return group.Wait()
}

// importImages imports the archives that a node does not have yet. It records an import by an empty file on the node's
// disk with the archive's name and modification time.
func (c *Cluster) importImages(ctx context.Context, node int) error {
	archives, err := filepath.Glob(filepath.Join(c.imageDir(), "*.tar"))
	if err != nil {
		return fmt.Errorf("listing image archives: %w", err)
	}
	imported := filepath.Join(c.nodeDir(node), "imported")
	if err := os.MkdirAll(imported, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	for _, archive := range archives {
		info, err := os.Stat(archive)
		if err != nil {
			return fmt.Errorf("reading an image archive: %w", err)
		}
		marker := filepath.Join(imported, filepath.Base(archive))
		if had, err := os.Stat(marker); err == nil && had.ModTime().Equal(info.ModTime()) {
			continue
		}
		args := []string{"--namespace=k8s.io", "images", "import", "--local", "--snapshotter=" + snapshotter(c.dir), archive}
		if _, err := c.node(node).exec(ctx, "", c.tool("containerd", "ctr"), args...); err != nil {
			return fmt.Errorf("importing %s: %w", filepath.Base(archive), err)
		}
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			return fmt.Errorf("recording an import: %w", err)
		}
		if err := os.Chtimes(marker, info.ModTime(), info.ModTime()); err != nil {
			return fmt.Errorf("recording an import: %w", err)
		}
	}
	return nil
}
