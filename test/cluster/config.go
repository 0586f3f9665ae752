package cluster

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"golang.org/x/sys/unix"
)

//go:embed templates
var templateFiles embed.FS

// templates are the configuration files of a cluster.
var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*"))

// nodeConfig contains the values for the configuration files of a node.
type nodeConfig struct {
	Name, IP   string
	PKI        string
	Kubeconfig string
	CgroupRoot string
	DNS        string
	// PodCIDR and ClusterPodCIDR are the ranges of the Pods of the node and of the cluster.
	PodCIDR, ClusterPodCIDR prefixes
	Snapshotter             string
	PauseImage              string
	RegistryConfig          string
	// CNIPlugins and OwnCNIPlugins are the directories of Debian's plugins and of the cluster's own.
	CNIPlugins, OwnCNIPlugins string
}

// nodeConfig returns a node's configuration.
func (c *Cluster) nodeConfig(node int) nodeConfig {
	return nodeConfig{
		Name:           c.NodeName(node),
		IP:             c.NodeIP(node),
		PKI:            c.pkiDir(),
		Kubeconfig:     c.kubeconfigOf("proxy"),
		CgroupRoot:     "/" + c.nodeCgroup(node),
		DNS:            c.subnets.dns().String(),
		PodCIDR:        c.subnets.nodePods(node),
		ClusterPodCIDR: c.subnets.pods(),
		Snapshotter:    snapshotter(c.dir),
		PauseImage:     PauseImage,
		RegistryConfig: filepath.Join(c.dir, "registries"),
		CNIPlugins:     cniPlugins,
		OwnCNIPlugins:  filepath.Join(c.nodeDir(node), "cni-plugins"),
	}
}

// nodeCgroup is the control group of a node's Pods.
func (c *Cluster) nodeCgroup(node int) string { return filepath.Join(c.cgroup(), c.NodeName(node)) }

// writeNodeConfig writes the configuration files of a node.
func (c *Cluster) writeNodeConfig(node int) error {
	config, dir := c.nodeConfig(node), c.nodeDir(node)
	for name, path := range map[string]string{
		"containerd.toml": filepath.Join(dir, "containerd.toml"),
		"kubelet.yaml":    filepath.Join(dir, "kubelet.yaml"),
		"kube-proxy.yaml": filepath.Join(dir, "kube-proxy.yaml"),
		"cni.conflist":    filepath.Join(dir, "cni-config", "10-pods.conflist"),
	} {
		if err := renderTo(path, name, config); err != nil {
			return err
		}
	}
	if err := writePlugin(config); err != nil {
		return err
	}
	return c.writeRegistryConfig(config.RegistryConfig)
}

// writePlugin writes the CNI plugin of a node.
func writePlugin(config nodeConfig) error {
	path := filepath.Join(config.OwnCNIPlugins, "ptp-at-once")
	if err := renderTo(path, "ptp-at-once", config); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o755); err != nil {
		return fmt.Errorf("making the CNI plugin executable: %w", err)
	}
	return nil
}

// writeRegistryConfig configures the registries of the nodes. They have the password of the cluster's own registry, but
// none for MirroredRegistry.
func (c *Cluster) writeRegistryConfig(dir string) error {
	name, password, err := c.RegistryLogin()
	if err != nil {
		return err
	}
	for registry, authorization := range map[string]string{
		c.Registry():     "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password)),
		MirroredRegistry: "",
	} {
		if err := renderTo(filepath.Join(dir, registry, "hosts.toml"), "hosts.toml", map[string]string{
			"Registry": c.Registry(), "Authority": c.pkiFile("ca.crt"), "Authorization": authorization,
		}); err != nil {
			return err
		}
	}
	return nil
}

// renderTo renders a template to a file, and creates the file's directory.
func renderTo(path, name string, data any) error {
	content, err := render(name, data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// render renders a template.
func render(name string, data any) (string, error) {
	var buffer bytes.Buffer
	if err := templates.ExecuteTemplate(&buffer, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return buffer.String(), nil
}

// snapshotter returns the containerd snapshotter for a directory. An overlay cannot be mounted on another overlay, such
// as a container's root file system.
func snapshotter(dir string) string {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err == nil && stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}
