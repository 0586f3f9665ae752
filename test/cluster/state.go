package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// ErrNotFound is returned if there is no cluster of the given name.
var ErrNotFound = errors.New("no such cluster")

// state is the recorded state of a cluster: only what cannot be determined from the machine.
type state struct {
	Slot int `json:"slot"`
	// Nodes are the numbers of the nodes that belong to the cluster, whether they run or not.
	Nodes []int `json:"nodes"`
	// Tools maps a tool set to its directory.
	Tools map[string]string `json:"tools"`
	// MicroShift is the directory of a checkout of MicroShift if the cluster runs OpenShift's API server.
	MicroShift string `json:"microShift,omitempty"`
}

// nameFormat restricts a name to what can be a directory, a control group and part of a host name.
var nameFormat = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// baseDir returns the directory of all clusters of this user, and creates it.
func baseDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	dir := filepath.Join(cache, "listener-operator", "clusters")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the directory of clusters: %w", err)
	}
	return dir, nil
}

// lockAllFile is the lock file for what all clusters share.
const lockAllFile = ".lock"

// lockAll takes the lock on what all clusters share.
func lockAll(ctx context.Context, base string) (unlock func(), err error) {
	return tools.Lock(ctx, filepath.Join(base, lockAllFile))
}

// lock takes the lock on this cluster, which every change of it requires.
func (c *Cluster) lock(ctx context.Context) (unlock func(), err error) {
	return tools.Lock(ctx, c.dir+".lock")
}

// names returns the names of all clusters that have a state.
func names(base string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(base, "*", "state.json"))
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var all []string
	for _, file := range files {
		all = append(all, filepath.Base(filepath.Dir(file)))
	}
	return all, nil
}

// locate returns a cluster without its state.
func locate(name string) (*Cluster, error) {
	if !nameFormat.MatchString(name) {
		return nil, fmt.Errorf("cluster name %q must consist of up to 32 lower-case letters, digits and inner hyphens", name)
	}
	base, err := baseDir()
	if err != nil {
		return nil, err
	}
	return &Cluster{name: name, base: base, dir: filepath.Join(base, name), progress: NewProgress(nil)}, nil
}

// load reads the cluster's state, or returns ErrNotFound.
func (c *Cluster) load() error {
	data, err := os.ReadFile(c.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster %s: %w", c.name, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("parsing the state: %w", err)
	}
	c.state, c.subnets = s, subnets{s.Slot}
	return nil
}

// save writes the cluster's state atomically.
func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	temp := c.stateFile() + ".new"
	if err := os.WriteFile(temp, data, 0o644); err != nil {
		return fmt.Errorf("writing the state: %w", err)
	}
	if err := os.Rename(temp, c.stateFile()); err != nil {
		return fmt.Errorf("replacing the state: %w", err)
	}
	return nil
}

// stateFile is the file of the cluster's state. A directory with this file is a cluster.
func (c *Cluster) stateFile() string { return filepath.Join(c.dir, "state.json") }

// claim allocates the first free subnet to a new cluster, and creates its state.
func (c *Cluster) claim(ctx context.Context, microShift string) error {
	unlock, err := lockAll(ctx, c.base)
	if err != nil {
		return fmt.Errorf("allocating a subnet: %w", err)
	}
	defer unlock()
	all, err := names(c.base)
	if err != nil {
		return err
	}
	var taken []int
	for _, name := range all {
		other := &Cluster{name: name, dir: filepath.Join(c.base, name)}
		if err := other.load(); err != nil {
			return err
		}
		taken = append(taken, other.state.Slot)
	}
	local, err := localAddresses()
	if err != nil {
		return err
	}
	slot, err := allocate(taken, local)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("creating the cluster's directory: %w", err)
	}
	c.state, c.subnets = state{Slot: slot, Tools: map[string]string{}, MicroShift: microShift}, subnets{slot}
	return c.save()
}

// addNode and removeNode record which nodes belong to the cluster.
func (c *Cluster) addNode(node int) error {
	if slices.Contains(c.state.Nodes, node) {
		return nil
	}
	c.state.Nodes = append(c.state.Nodes, node)
	slices.Sort(c.state.Nodes)
	return c.save()
}

func (c *Cluster) removeNode(node int) error {
	c.state.Nodes = slices.DeleteFunc(c.state.Nodes, func(n int) bool { return n == node })
	return c.save()
}

// localAddresses returns the addresses of the host's interfaces.
func localAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the machine's addresses: %w", err)
	}
	var local []netip.Addr
	for _, address := range all {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			local = append(local, prefix.Addr().Unmap())
		}
	}
	return local, nil
}
