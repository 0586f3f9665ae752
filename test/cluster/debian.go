package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// cniPlugins is Debian's directory of CNI plugins.
const cniPlugins = "/usr/lib/cni"

// busybox is Debian's static busybox.
const busybox = "/bin/busybox"

// ErrNotRoot is returned when a cluster is created or deleted by another user than root.
var ErrNotRoot = errors.New("a cluster requires root: it creates network namespaces, mounts and control groups")

// packages maps Debian packages to one of their programs that a cluster uses.
var packages = map[string]string{
	"runc":                        "runc",
	"containernetworking-plugins": cniPlugins + "/ptp",
	"nftables":                    "nft",
	"iptables":                    "iptables",
	"conntrack":                   "conntrack",
	"socat":                       "socat",
	"busybox-static":              busybox,
	"iproute2":                    "ip",
	"util-linux":                  "nsenter",
	"procps":                      "pkill",
	"haproxy":                     "haproxy", // for test/router
	"bind9":                       "named",   // for test/e2e
}

// ensurePackages installs the Debian packages that are missing.
func ensurePackages(ctx context.Context, p *Progress) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	p.Printf("installing %s", strings.Join(missing, " "))
	if err := installPackages(ctx, missing...); err != nil {
		return err
	}
	if missing = missingPackages(); len(missing) > 0 {
		return fmt.Errorf("still missing after installing: %s", strings.Join(missing, " "))
	}
	return nil
}

// InstallPackage installs a Debian package, unless one of its programs exists. It is for programs that not every
// cluster needs.
func InstallPackage(ctx context.Context, name, program string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	return installPackages(ctx, name)
}

// installPackages installs Debian packages, while no other process does.
func installPackages(ctx context.Context, names ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("missing packages: install what Debian calls %s", strings.Join(names, " "))
	}
	base, err := baseDir()
	if err != nil {
		return err
	}
	unlock, err := tools.Lock(ctx, filepath.Join(base, ".packages.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	args := append([]string{"install", "-y", "--no-install-recommends"}, names...)
	if err := aptGet(ctx, args...); err == nil {
		return nil
	}
	// The package lists may be absent or too old.
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	return aptGet(ctx, args...)
}

// missingPackages returns the packages whose program does not exist.
func missingPackages() []string {
	var missing []string
	for name, program := range packages {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// aptGet runs apt-get without interaction.
func aptGet(ctx context.Context, args ...string) error {
	_, err := aptGetOutput(ctx, args...)
	return err
}

// aptGetOutput runs apt-get without interaction, and returns its output. It waits while dpkg is used.
func aptGetOutput(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var messages strings.Builder
	cmd.Stderr = &messages
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running apt-get %s: %w\n%s%s", args[0], err, output, messages.String())
	}
	return string(output), nil
}

// packageNames returns the names of all packages that a cluster needs.
func packageNames() []string {
	return slices.Sorted(maps.Keys(packages))
}
