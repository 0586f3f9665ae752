package cluster

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// newTestCluster returns a cluster that only has a directory, with its registry's login.
func newTestCluster(t *testing.T) *Cluster {
	t.Helper()
	dir := t.TempDir()
	c := &Cluster{name: "test", base: dir, dir: dir + "/test", subnets: subnets{slot: 2}, progress: NewProgress(nil)}
	check.Must(t, os.MkdirAll(c.pkiDir(), 0o700))
	check.Must(t, writeRegistryLogin(c.pkiDir()))
	return c
}

func TestKubeletConfigIsValid(t *testing.T) {
	c := newTestCluster(t)
	rendered, err := render("kubelet.yaml", c.nodeConfig(3))
	check.Must(t, err)
	var got kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(rendered), &got); err != nil {
		t.Fatalf("parsing\n%s: %v", rendered, err)
	}
	if got.CgroupRoot != "/listener-operator-test/node-3" {
		t.Errorf("cgroupRoot is %q", got.CgroupRoot)
	}
	if len(got.ClusterDNS) != 1 || got.ClusterDNS[0] != "10.102.0.10" {
		t.Errorf("clusterDNS is %q", got.ClusterDNS)
	}
	if got.ResolverConfig == nil || *got.ResolverConfig != "" {
		t.Error("the kubelet would use the host's resolv.conf")
	}
	if !strings.HasSuffix(got.TLSCertFile, "/test/pki/node-3.crt") {
		t.Errorf("tlsCertFile is %q", got.TLSCertFile)
	}
}

func TestNetworkConfigHasPodRangeOfNode(t *testing.T) {
	c := newTestCluster(t)
	rendered, err := render("cni.conflist", c.nodeConfig(3))
	check.Must(t, err)
	if !json.Valid([]byte(rendered)) {
		t.Errorf("not JSON:\n%s", rendered)
	}
	for _, subnet := range []string{"10.242.3.0/24", "fd00:10:242:3::/64"} {
		if !strings.Contains(rendered, `[{"subnet": "`+subnet+`"}]`) {
			t.Errorf("the node's Pods do not get %s:\n%s", subnet, rendered)
		}
	}
}

func TestEveryTemplateRendersForNode(t *testing.T) {
	c := newTestCluster(t)
	check.Must(t, c.writeNodeConfig(1))
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "kube-proxy.yaml", "cni-config/10-pods.conflist", "cni-plugins/ptp-at-once"} {
		if read(t, c.nodeDir(1)+"/"+name) == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

func TestNodesHavePasswordForClusterRegistryOnly(t *testing.T) {
	c := newTestCluster(t)
	check.Must(t, c.writeNodeConfig(1))
	own, mirrored := read(t, c.dir+"/registries/10.91.0.1:5000/hosts.toml"), read(t, c.dir+"/registries/registry.example/hosts.toml")
	for _, got := range []string{own, mirrored} {
		if !strings.Contains(got, `server = "https://10.91.0.1:5000"`) {
			t.Errorf("hosts.toml does not name the registry:\n%s", got)
		}
	}
	if !strings.Contains(own, "Authorization") || strings.Contains(mirrored, "Authorization") {
		t.Errorf("want the password in the first, and not in the second:\n%s\n%s", own, mirrored)
	}
}

func TestClusterNamesAreValidPaths(t *testing.T) {
	for name, want := range map[string]bool{
		"listener": true, "a": true, "a-1": true,
		"": false, "..": false, "a/b": false, "-a": false, "a-": false, "A": false, strings.Repeat("a", 33): false,
	} {
		if got := nameFormat.MatchString(name); got != want {
			t.Errorf("name %q is accepted: %t", name, got)
		}
	}
}
