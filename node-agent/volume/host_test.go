package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/node-agent/volume"
)

func TestVolumeHasTheFilesOfTheContract(t *testing.T) {
	for name, umask := range map[string]int{"usual umask": 0o022, "strict umask": 0o777} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			defer syscall.Umask(syscall.Umask(umask))
			n.write(
				hostname("node-1.example.com", map[string]int32{"http": 31000, "https": 31443}),
				ip("2001:db8::1", map[string]int32{"http": 31000}),
				ip("10.0.0.1", nil),
			)
			tree := "..generation-X/addresses"
			want := map[string]string{
				"..data":                         "-> ..generation-X",
				"addresses":                      "-> ..data/addresses",
				"default-address":                "-> ..data/default-address",
				"default-address.env":            "-> ..data/default-address.env",
				"default-address.quoted.env":     "-> ..data/default-address.quoted.env",
				"..generation-X":                 "drwxr-xr-x",
				"..generation-X/default-address": "-> addresses/node-1.example.com",
				"..generation-X/default-address.env": "-r--r--r-- LISTENER_ADDRESS=node-1.example.com\n" +
					"LISTENER_PORT_HTTP=31000\nLISTENER_ENDPOINT_HTTP=node-1.example.com:31000\n" +
					"LISTENER_PORT_HTTPS=31443\nLISTENER_ENDPOINT_HTTPS=node-1.example.com:31443\n",
				"..generation-X/default-address.quoted.env": "-r--r--r-- LISTENER_ADDRESS='node-1.example.com'\n" +
					"LISTENER_PORT_HTTP='31000'\nLISTENER_ENDPOINT_HTTP='node-1.example.com:31000'\n" +
					"LISTENER_PORT_HTTPS='31443'\nLISTENER_ENDPOINT_HTTPS='node-1.example.com:31443'\n",
				tree:                                     "drwxr-xr-x",
				tree + "/node-1.example.com":             "drwxr-xr-x",
				tree + "/node-1.example.com/address":     "-r--r--r-- node-1.example.com",
				tree + "/node-1.example.com/ports":       "drwxr-xr-x",
				tree + "/node-1.example.com/ports/http":  "-r--r--r-- 31000",
				tree + "/node-1.example.com/ports/https": "-r--r--r-- 31443",
				tree + "/2001:db8::1":                    "drwxr-xr-x",
				tree + "/2001:db8::1/address":            "-r--r--r-- 2001:db8::1",
				tree + "/2001:db8::1/ports":              "drwxr-xr-x",
				tree + "/2001:db8::1/ports/http":         "-r--r--r-- 31000",
				tree + "/10.0.0.1":                       "drwxr-xr-x",
				tree + "/10.0.0.1/address":               "-r--r--r-- 10.0.0.1",
				tree + "/10.0.0.1/ports":                 "drwxr-xr-x",
			}
			if diff := cmp.Diff(want, listing(t, n.mount)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			info, err := os.Stat(n.mount)
			must(t, err)
			if got := info.Mode().String(); got != "drwxr-xr-x" {
				t.Errorf("the volume itself has mode %s", got)
			}
			if got := n.read("default-address/ports/https"); got != "31443" {
				t.Errorf("default-address/ports/https reads %q", got)
			}
			if got := n.read("addresses/2001:db8::1/ports/http"); got != "31000" {
				t.Errorf("addresses/2001:db8::1/ports/http reads %q", got)
			}
		})
	}
}

func TestAShellReadsTheDefaultAddress(t *testing.T) {
	n := newNode(t)
	n.write(ip("2001:db8::1", map[string]int32{"http": 31000, "client-tls": 31443}), ip("10.0.0.1", map[string]int32{"http": 80}))
	for _, file := range []string{"default-address.env", "default-address.quoted.env"} {
		shell := exec.CommandContext(t.Context(), "sh", "-euc", `. ./`+file+`
		echo "$LISTENER_ADDRESS $LISTENER_PORT_HTTP $LISTENER_ENDPOINT_HTTP $LISTENER_ENDPOINT_CLIENT_TLS"`)
		shell.Dir = n.mount
		got, err := shell.Output()
		must(t, err)
		if want := "2001:db8::1 31000 [2001:db8::1]:31000 [2001:db8::1]:31443\n"; string(got) != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// An agent before a file existed wrote the other files alike.
func TestVolumeWithoutVariablesIsWrittenAgain(t *testing.T) {
	for file, want := range map[string]string{
		"default-address.env": "LISTENER_ENDPOINT_HTTP=192.0.2.1:80\n", "default-address.quoted.env": "LISTENER_ENDPOINT_HTTP='192.0.2.1:80'\n",
	} {
		n := newNode(t)
		address := ip("192.0.2.1", map[string]int32{"http": 80})
		n.write(address)
		must(t, os.Remove(filepath.Join(n.mount, file)))
		must(t, os.Remove(filepath.Join(n.mount, "..data", file)))
		if !n.write(address).Changed {
			t.Errorf("without %s, the volume is not written", file)
		}
		if got := n.read(file); !strings.Contains(got, want) {
			t.Errorf("%s reads %q", file, got)
		}
	}
}

func TestInvalidNamesAreSkippedAndReported(t *testing.T) {
	for name, tc := range map[string]struct {
		address listenersv1alpha1.IngressAddress
		skipped string // a prefix of what is reported; empty if nothing is skipped
	}{
		"IPv4":                    {ip("192.0.2.1", nil), ""},
		"IPv6":                    {ip("fd00::1", nil), ""},
		"upper-case host":         {hostname("Node-1.Example.com", nil), ""},
		"longest host":            {hostname(strings.Repeat("a.", 126)+"a", nil), ""},
		"too long host":           {hostname(strings.Repeat("a.", 127)+"a", nil), "address"},
		"empty address":           {ip("", nil), "address"},
		"parent":                  {hostname("..", nil), "address"},
		"here":                    {hostname(".", nil), "address"},
		"absolute":                {hostname("/etc", nil), "address"},
		"path":                    {hostname("a/b", nil), "address"},
		"traversal":               {hostname("../../../../etc/cron.d", nil), "address"},
		"NUL":                     {hostname("a\x00b", nil), "address"},
		"zone":                    {ip("fe80::1%eth0", nil), "address"},
		"zone that is a path":     {ip("fe80::1%/../../..", nil), "address"},
		"bracketed IPv6":          {ip("[fd00::1]", nil), "address"},
		"hidden":                  {hostname("..data", nil), "address"},
		"port of a Service":       {ip("192.0.2.1", map[string]int32{strings.Repeat("p", 63): 1}), ""},
		"port starting by digit":  {ip("192.0.2.1", map[string]int32{"9092-tls": 9092}), ""},
		"empty port name":         {ip("192.0.2.1", map[string]int32{"": 1}), "port"},
		"too long port name":      {ip("192.0.2.1", map[string]int32{strings.Repeat("p", 64): 1}), "port"},
		"port name with a slash":  {ip("192.0.2.1", map[string]int32{"a/b": 1}), "port"},
		"port name that is dots":  {ip("192.0.2.1", map[string]int32{"..": 1}), "port"},
		"port name with a NUL":    {ip("192.0.2.1", map[string]int32{"a\x00": 1}), "port"},
		"port that is a path":     {ip("192.0.2.1", map[string]int32{"../../../x": 1}), "port"},
		"port number zero":        {ip("192.0.2.1", map[string]int32{"http": 0}), "port"},
		"port number of 17 bits":  {ip("192.0.2.1", map[string]int32{"http": 65536}), "port"},
		"negative port number":    {ip("192.0.2.1", map[string]int32{"http": -1}), "port"},
		"highest and lowest port": {ip("192.0.2.1", map[string]int32{"a": 1, "b": 65535}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			other := hostname("other.example.com", map[string]int32{"good": 80})
			written := n.write(tc.address, other)
			if got := strings.Join(written.Skipped, "; "); tc.skipped == "" && got != "" || !strings.HasPrefix(got, tc.skipped) {
				t.Errorf("skipped %q, want something about %q", got, tc.skipped)
			}
			if got := n.read("addresses/other.example.com/ports/good"); got != "80" {
				t.Errorf("the address beside it has port %q", got)
			}
			if tc.skipped == "address" {
				if got := n.read("default-address/address"); got != "other.example.com" {
					t.Errorf("the default address is %q", got)
				}
			} else if got := n.read("default-address/address"); got != tc.address.Address {
				t.Errorf("the default address is %q", got)
			}
		})
	}
}

func TestVolumeIsNotCreatedWithoutAValidAddress(t *testing.T) {
	n := newNode(t)
	for _, addresses := range [][]listenersv1alpha1.IngressAddress{nil, {hostname("../..", nil)}} {
		if _, err := n.host.Write(n.target, addresses); !errors.Is(err, volume.ErrNoAddress) {
			t.Errorf("writing %v: %v", addresses, err)
		}
	}
	if _, err := os.Lstat(n.mount); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume exists: %v", err)
	}
}

func TestDuplicateAddressIsWrittenOnce(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", map[string]int32{"http": 1}), ip("192.0.2.1", map[string]int32{"http": 2}))
	if got := n.read("default-address/ports/http"); got != "1" {
		t.Errorf("port http is %q, want that of the first", got)
	}
}

func TestSameContentIsNotWrittenAgain(t *testing.T) {
	n := newNode(t)
	addresses := []listenersv1alpha1.IngressAddress{ip("192.0.2.1", map[string]int32{"http": 80}), hostname("a.example.com", nil)}
	if !n.write(addresses...).Changed {
		t.Error("the first write changed nothing")
	}
	before := inodes(t, n.mount)
	if n.write(addresses...).Changed {
		t.Error("the second write changed something")
	}
	if diff := cmp.Diff(before, inodes(t, n.mount)); diff != "" {
		t.Errorf("files were recreated (-before +after):\n%s", diff)
	}
}

func TestChangedContentIsWritten(t *testing.T) {
	first := []listenersv1alpha1.IngressAddress{ip("192.0.2.1", map[string]int32{"http": 80}), ip("192.0.2.2", nil)}
	for name, second := range map[string][]listenersv1alpha1.IngressAddress{
		"other port number":     {ip("192.0.2.1", map[string]int32{"http": 81}), ip("192.0.2.2", nil)},
		"longer port number":    {ip("192.0.2.1", map[string]int32{"http": 800}), ip("192.0.2.2", nil)},
		"other port name":       {ip("192.0.2.1", map[string]int32{"https": 80}), ip("192.0.2.2", nil)},
		"one port more":         {ip("192.0.2.1", map[string]int32{"http": 80, "https": 80}), ip("192.0.2.2", nil)},
		"one port less":         {ip("192.0.2.1", nil), ip("192.0.2.2", nil)},
		"other order":           {ip("192.0.2.2", nil), ip("192.0.2.1", map[string]int32{"http": 80})},
		"one address less":      {ip("192.0.2.1", map[string]int32{"http": 80})},
		"one address more":      append(first[:2:2], ip("192.0.2.3", nil)),
		"one address different": {ip("192.0.2.1", map[string]int32{"http": 80}), ip("192.0.2.3", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			n, fresh := newNode(t), newNode(t)
			n.write(first...)
			if !n.write(second...).Changed {
				t.Error("nothing changed")
			}
			fresh.write(second...)
			check.Equal(t, "differs from a fresh volume", seen(t, fresh), seen(t, n))
		})
	}
}

func TestLeftoversOfUnfinishedWritesAreRemoved(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	// An agent that was killed leaves trees to which no link points, and links that were not renamed.
	must(t, os.MkdirAll(filepath.Join(n.mount, "..generation-KILLED", "addresses", "192.0.2.9"), 0o755))
	must(t, os.Symlink("..generation-KILLED", filepath.Join(n.mount, "..link-KILLED")))
	if got := n.read("default-address/address"); got != "192.0.2.1" {
		t.Errorf("the Pod reads %q", got)
	}
	n.write(ip("192.0.2.2", map[string]int32{"http": 80}))
	n.write(ip("192.0.2.3", map[string]int32{"http": 80}))
	// The previous tree is kept for readers that are still in it.
	want := []string{"..data", "..generation-X", "..generation-X", "addresses", "default-address", "default-address.env", "default-address.quoted.env"}
	if diff := cmp.Diff(want, namesIn(t, n.mount)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInterruptedWriteIsCompletedByTheNext(t *testing.T) {
	fresh := newNode(t)
	fresh.write(ip("192.0.2.2", map[string]int32{"http": 80}))
	for name, tc := range map[string]struct {
		published bool
		kill      func(t *testing.T, mount string)
	}{
		"before the volume's directory": {false, func(*testing.T, string) {}},
		"before the first link": {false, func(t *testing.T, mount string) {
			must(t, os.MkdirAll(filepath.Join(mount, "..generation-A", "addresses"), 0o755))
		}},
		"after the first link": {false, func(t *testing.T, mount string) {
			must(t, os.MkdirAll(filepath.Join(mount, "..generation-A", "addresses"), 0o755))
			must(t, os.Symlink("..generation-A", filepath.Join(mount, "..data")))
		}},
		"after the second link": {false, func(t *testing.T, mount string) {
			must(t, os.MkdirAll(filepath.Join(mount, "..generation-A", "addresses"), 0o755))
			must(t, os.Symlink("..generation-A", filepath.Join(mount, "..data")))
			must(t, os.Symlink("..data/default-address", filepath.Join(mount, "default-address")))
		}},
		"while rewriting": {true, func(t *testing.T, mount string) {
			must(t, os.MkdirAll(filepath.Join(mount, "..generation-A", "addresses", "192.0.2.2", "ports"), 0o755))
			must(t, os.WriteFile(filepath.Join(mount, "..generation-A", "addresses", "192.0.2.2", "address"), nil, 0o444))
		}},
		"in a crash of the node that lost the content": {true, func(t *testing.T, mount string) {
			must(t, os.Truncate(filepath.Join(mount, "default-address", "address"), 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			if tc.published {
				n.write(ip("192.0.2.2", map[string]int32{"http": 80}))
			}
			tc.kill(t, n.mount)
			n.write(ip("192.0.2.2", map[string]int32{"http": 80}))
			check.Equal(t, "differs from a fresh volume", seen(t, fresh), seen(t, n))
		})
	}
}

// writeLikeStackable writes a volume in the layout of Stackable's listener operator.
func writeLikeStackable(t *testing.T, mount, address, port string) {
	t.Helper()
	ports := filepath.Join(mount, "addresses", address, "ports")
	must(t, os.MkdirAll(ports, 0o755))
	must(t, os.WriteFile(filepath.Join(mount, "addresses", address, "address"), []byte(address), 0o644))
	must(t, os.WriteFile(filepath.Join(ports, "http"), []byte(port), 0o644))
	must(t, os.Symlink("addresses/"+address, filepath.Join(mount, "default-address")))
}

func TestVolumeOfStackableIsKeptWhileItIsUpToDate(t *testing.T) {
	n := newNode(t)
	writeLikeStackable(t, n.mount, "192.0.2.1", "80")
	before := inodes(t, n.mount)
	if n.write(ip("192.0.2.1", map[string]int32{"http": 80})).Changed {
		t.Error("the volume was changed")
	}
	if diff := cmp.Diff(before, inodes(t, n.mount)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestVolumeOfStackableIsMigratedWhenItChanges(t *testing.T) {
	fresh := newNode(t)
	fresh.write(ip("192.0.2.2", map[string]int32{"http": 81}))
	want := seen(t, fresh)
	for range 20 {
		n := newNode(t)
		writeLikeStackable(t, n.mount, "192.0.2.1", "80")
		reader := startReading(t, n.mount, map[string]string{"192.0.2.1": "80", "192.0.2.2": "81"}, true)
		n.write(ip("192.0.2.2", map[string]int32{"http": 81}))
		reader.stop()
		if diff := cmp.Diff(want, seen(t, n)); diff != "" {
			t.Fatalf("differs from a fresh volume (-want +got):\n%s", diff)
		}
		n.write(ip("192.0.2.3", nil))
		for _, name := range []string{"192.0.2.1", "192.0.2.2"} {
			if _, err := os.Lstat(filepath.Join(n.mount, "addresses", name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the old address %s still exists: %v", name, err)
			}
		}
	}
}

func TestInterruptedMigrationIsCompletedByTheNextWrite(t *testing.T) {
	fresh := newNode(t)
	fresh.write(ip("192.0.2.2", map[string]int32{"http": 81}))
	adopted := func(mount string) error {
		tree := filepath.Join(mount, "..generation-A")
		return errors.Join(os.Mkdir(tree, 0o755), os.Symlink("addresses/192.0.2.1", filepath.Join(tree, "default-address")),
			os.Symlink("..generation-A", filepath.Join(mount, "..data")))
	}
	for name, kill := range map[string]func(mount string) error{
		"before the exchange": func(mount string) error {
			return errors.Join(adopted(mount), os.Symlink("..data/addresses", filepath.Join(mount, "..generation-A", "addresses")))
		},
		"after the exchange": func(mount string) error {
			return errors.Join(adopted(mount), os.Rename(filepath.Join(mount, "addresses"), filepath.Join(mount, "..generation-A", "addresses")),
				os.Symlink("..data/addresses", filepath.Join(mount, "addresses")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			writeLikeStackable(t, n.mount, "192.0.2.1", "80")
			must(t, kill(n.mount))
			if got := n.read("default-address/ports/http"); got != "80" {
				t.Errorf("before the next write the Pod reads %q", got)
			}
			n.write(ip("192.0.2.2", map[string]int32{"http": 81}))
			check.Equal(t, "differs from a fresh volume", seen(t, fresh), seen(t, n))
		})
	}
}

func TestUpdateDoesNotPublish(t *testing.T) {
	for name, prepare := range map[string]func(n *node) error{
		"never published": func(*node) error { return nil },
		"Pod deleted":     func(n *node) error { return os.RemoveAll(filepath.Join(n.dir, "pods", podUID)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			must(t, prepare(n))
			written, err := n.host.Update(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)})
			if err != nil || written.Changed {
				t.Errorf("changed %v, error %v", written.Changed, err)
			}
			if entries, err := os.ReadDir(n.mount); len(entries) != 0 {
				t.Errorf("the volume has %v, error %v", entries, err)
			}
		})
	}
}

func TestUpdateWritesNewAddresses(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", nil))
	written, err := n.host.Update(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.2", nil)})
	must(t, err)
	if got := n.read("default-address/address"); !written.Changed || got != "192.0.2.2" {
		t.Errorf("changed %v, the Pod reads %q", written.Changed, got)
	}
}

func TestUpdateWritesAVolumeThatItsPodHasEmptied(t *testing.T) {
	fresh := newNode(t)
	fresh.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	for name, damage := range map[string]func(mount string) error{
		"everything": hostileEverything,
		"visible names": func(mount string) error {
			return errors.Join(os.Remove(filepath.Join(mount, "addresses")), os.Remove(filepath.Join(mount, "default-address")))
		},
		"what is in them": func(mount string) error { return os.RemoveAll(filepath.Join(mount, "addresses", "192.0.2.1")) },
		"a single file":   func(mount string) error { return os.Remove(filepath.Join(mount, "default-address", "ports", "http")) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
			must(t, damage(n.mount))
			published, err := n.host.Published(podUID)
			must(t, err)
			if len(published) != 1 {
				t.Fatalf("published: %v", published)
			}
			written, err := n.host.Update(published[0].Target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", map[string]int32{"http": 80})})
			if err != nil || !written.Changed {
				t.Errorf("changed %v, error %v", written.Changed, err)
			}
			check.Equal(t, "differs from a fresh volume", seen(t, fresh), seen(t, n))
		})
	}
}

func hostileEverything(mount string) error { return hostile["everything is deleted"](mount, "") }

func TestWriteDoesNotCreateThePodsDirectory(t *testing.T) {
	n := newNode(t)
	must(t, os.RemoveAll(filepath.Join(n.dir, "pods", podUID)))
	if _, err := n.host.Write(n.target, []listenersv1alpha1.IngressAddress{ip("192.0.2.1", nil)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writing a volume of a Pod whose directory does not exist: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(n.dir, "pods", podUID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the Pod's directory: %v", err)
	}
}

func TestRemoveLeavesNothingAndIsIdempotent(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	must(t, os.MkdirAll(filepath.Join(n.mount, "of the Pod", "deep"), 0o000))
	must(t, os.WriteFile(filepath.Join(n.mount, "addresses", "192.0.2.1", "extra"), nil, 0o000))
	for range 3 {
		must(t, n.host.Remove(t.Context(), n.target))
		if _, err := os.Lstat(n.mount); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the volume: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(n.mount), "vol_data.json")); err != nil {
		t.Errorf("the kubelet's record was removed: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(n.dir, "pods", podUID)))
	must(t, n.host.Remove(t.Context(), n.target))
}

func TestRemoveDoesNotFollowLinks(t *testing.T) {
	n := newNode(t)
	n.write(ip("192.0.2.1", nil))
	outside := canary(t, n.dir)
	must(t, os.Symlink(outside, filepath.Join(n.mount, "link")))
	must(t, n.host.Remove(t.Context(), n.target))
	checkCanary(t, outside)
}

func TestUsable(t *testing.T) {
	n := newNode(t)
	if n.host.Usable(n.target) {
		t.Error("a volume that does not exist is usable")
	}
	n.write(ip("192.0.2.1", nil))
	if !n.host.Usable(n.target) {
		t.Error("a volume that was written is not usable")
	}
	must(t, os.Truncate(filepath.Join(n.mount, "default-address", "address"), 0))
	if n.host.Usable(n.target) {
		t.Error("a volume that lost its content is usable")
	}
}

// inodes returns the inode numbers of all files below a directory.
func inodes(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		all[path] = info.Sys().(*syscall.Stat_t).Ino
		return nil
	}))
	return all
}

// seen returns what a Pod sees that follows links and ignores hidden names.
func seen(t *testing.T, n *node) map[string]string {
	t.Helper()
	to, err := os.Readlink(filepath.Join(n.mount, "..data"))
	must(t, err)
	all := listing(t, filepath.Join(n.mount, to))
	for name, content := range listing(t, n.mount) {
		if link, ok := strings.CutPrefix(content, "-> "); ok && !strings.HasPrefix(name, "..") && !strings.Contains(name, "/") {
			all["/"+name] = link
		}
	}
	return all
}

// canary creates a directory outside of the volume, for checkCanary.
func canary(t testing.TB, dir string) string {
	t.Helper()
	outside := filepath.Join(dir, "outside")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o600))
	must(t, os.Chtimes(outside, time.Unix(1, 0), time.Unix(1, 0)))
	return outside
}

func checkCanary(t testing.TB, outside string) {
	t.Helper()
	check.Equal(t, "outside of the volume", map[string]string{"canary": "-rw------- alive"}, listing(t, outside))
	info, err := os.Stat(outside)
	must(t, err)
	if !info.ModTime().Equal(time.Unix(1, 0)) {
		t.Error("something was written outside of the volume")
	}
}

func TestOnlyRootMayWriteInAVolume(t *testing.T) {
	n := newNode(t)
	defer syscall.Umask(syscall.Umask(0))
	n.write(ip("192.0.2.1", map[string]int32{"http": 80}))
	must(t, filepath.WalkDir(n.mount, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() == fs.ModeSymlink {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode()&0o022 != 0 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}))
}

func TestNumberOfFilesInAVolumeIsLimited(t *testing.T) {
	ports := map[string]int32{}
	for i := range 30_000 {
		ports[fmt.Sprintf("p%d", i)] = 80
	}
	many := make([]listenersv1alpha1.IngressAddress, 30_000)
	for i := range many {
		many[i] = ip(fmt.Sprintf("10.0.%d.%d", i/256, i%256), nil)
	}
	for name, tc := range map[string]struct {
		addresses []listenersv1alpha1.IngressAddress
		kind      string
	}{
		"ports":               {[]listenersv1alpha1.IngressAddress{ip("10.0.0.0", ports)}, "port"},
		"addresses":           {many, "address"},
		"ports and addresses": {append([]listenersv1alpha1.IngressAddress{ip("10.0.0.0", map[string]int32{"http": 80})}, many...), "address"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			written := n.write(tc.addresses...)
			if got := len(inodes(t, n.mount)); got > 4*4096+10 {
				t.Errorf("the volume has %d inodes", got)
			}
			if got := n.read("default-address/address"); got != "10.0.0.0" {
				t.Errorf("the default address is %q", got)
			}
			if len(written.Skipped) != 11 || !strings.HasPrefix(written.Skipped[0], tc.kind) || !strings.HasSuffix(written.Skipped[0], "at most 4096 addresses and ports") ||
				!strings.HasPrefix(written.Skipped[10], "and 2") {
				t.Errorf("skipped: %q", written.Skipped)
			}
			if n.write(tc.addresses...).Changed {
				t.Error("the same addresses are written again")
			}
		})
	}
}

// A tool that restores files on nodes may have backed up the volume of an earlier Pod, in another namespace.
func TestWhatABackupRestoresIsNotRead(t *testing.T) {
	for name, restore := range map[string]func(n *node){
		"the tree of an earlier Pod": func(n *node) {
			earlier := filepath.Join(n.mount, "..generation-other.EARLIER")
			must(n.t, os.CopyFS(earlier, os.DirFS(filepath.Join(n.mount, "..data"))))
			must(n.t, os.Chmod(filepath.Join(earlier, "default-address.env"), 0o644))
			must(n.t, os.WriteFile(filepath.Join(earlier, "default-address.env"), []byte("LISTENER_ADDRESS=198.51.100.9\n"), 0o644))
			must(n.t, os.Remove(filepath.Join(n.mount, "..data")))
			must(n.t, os.Symlink(filepath.Base(earlier), filepath.Join(n.mount, "..data")))
		},
		"a file in place of a link": func(n *node) {
			must(n.t, os.Remove(filepath.Join(n.mount, "default-address.env")))
			must(n.t, os.WriteFile(filepath.Join(n.mount, "default-address.env"), []byte("LISTENER_ADDRESS=198.51.100.9\n"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.target.Namespace = "shop"
			n.write(ip("192.0.2.1", nil))
			want := n.read("default-address.env")
			restore(n)
			must(t, os.MkdirAll(filepath.Join(n.mount, ".velero"), 0o755))
			if got := n.read("default-address.env"); got == want {
				t.Fatal("nothing was restored")
			}
			published, err := n.host.Published(podUID)
			if err != nil || published[0].Namespace != "shop" {
				t.Errorf("published %+v, error %v", published, err)
			}
			n.host.Relink()
			if got := n.read("default-address.env"); got != want {
				t.Errorf("containers read %q", got)
			}
			must(t, n.host.Remove(t.Context(), n.target))
			n.host.Relink()
			if _, err := os.Lstat(n.mount); !os.IsNotExist(err) {
				t.Errorf("the volume exists: %v", err)
			}
		})
	}
}
