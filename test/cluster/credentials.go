package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/listener-operator/listener-operator/test/cluster/pki"
)

// users are the users of the API server, by the base names of their files.
var users = map[string]pki.Request{
	"admin":              {CommonName: "admin", Organizations: []string{"system:masters"}},
	"controller-manager": {CommonName: "system:kube-controller-manager"},
	"scheduler":          {CommonName: "system:kube-scheduler"},
	"proxy":              {CommonName: "system:kube-proxy"},
	"network-policies":   {CommonName: "network-policies", Organizations: []string{"system:masters"}},
	"kubelet-client":     {CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}},
}

// ensurePKI creates the certificates and keys of the control plane unless they exist.
func (c *Cluster) ensurePKI() error {
	if ok, err := exists(c.pkiDir()); ok || err != nil {
		return err
	}
	temp := c.pkiDir() + ".new"
	if err := errors.Join(os.RemoveAll(temp), os.Mkdir(temp, 0o700)); err != nil {
		return fmt.Errorf("creating the directory of certificates: %w", err)
	}
	requests := c.servers()
	maps.Copy(requests, users)
	err := errors.Join(
		writeAuthority(temp, "ca", c.name, requests),
		// Aggregated API servers authenticate this one by a separate authority.
		writeAuthority(temp, "front-proxy-ca", c.name+"-front-proxy", map[string]pki.Request{
			"front-proxy-client": {CommonName: "front-proxy-client"},
		}),
		writeSigningKey(temp),
		writeRegistryLogin(temp),
	)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, c.pkiDir()); err != nil {
		return fmt.Errorf("keeping the certificates: %w", err)
	}
	return nil
}

// servers are the servers of the control plane, by the base names of their files.
func (c *Cluster) servers() map[string]pki.Request {
	host, api := address(c.subnets.host().V4), address(c.subnets.api())
	local := net.IPv4(127, 0, 0, 1)
	return map[string]pki.Request{
		"etcd":     {CommonName: "etcd", IPs: []net.IP{host, local}},
		"registry": {CommonName: "registry", IPs: []net.IP{host}},
		"apiserver": {
			CommonName: "kube-apiserver",
			IPs:        []net.IP{host, api, local},
			DNSNames: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			},
		},
	}
}

// writeKubeconfigs writes a kubeconfig for every user, and the administrator's also to Kubeconfig.
func (c *Cluster) writeKubeconfigs() error {
	for name := range users {
		if err := c.writeKubeconfig(c.kubeconfigOf(name), name); err != nil {
			return err
		}
	}
	return c.writeKubeconfig(c.Kubeconfig(), "admin")
}

// ensureNodeCredentials creates a node's certificate, which its kubelet uses both as a server and as a client.
func (c *Cluster) ensureNodeCredentials(node int) error {
	name := c.NodeName(node)
	if ok, err := exists(c.kubeconfigOf(name)); ok || err != nil {
		return err
	}
	authority, err := pki.LoadAuthority(c.pkiDir(), "ca")
	if err != nil {
		return err
	}
	at := c.subnets.node(node)
	err = issue(authority, c.pkiDir(), name, pki.Request{
		CommonName:    "system:node:" + name,
		Organizations: []string{"system:nodes"},
		DNSNames:      []string{name},
		IPs:           []net.IP{address(at.V4), address(at.V6)},
	})
	if err != nil {
		return err
	}
	return c.writeKubeconfig(c.kubeconfigOf(name), name)
}

// IssueCertificate returns a certificate for a server with the name, signed by the cluster's authority, which each
// namespace has in its ConfigMap kube-root-ca.crt.
func (c *Cluster) IssueCertificate(dnsName string) (pki.Pair, error) {
	authority, err := pki.LoadAuthority(c.pkiDir(), "ca")
	if err != nil {
		return pki.Pair{}, err
	}
	return authority.Issue(pki.Request{CommonName: dnsName, DNSNames: []string{dnsName}})
}

// kubeconfigOf is the path of a user's kubeconfig.
func (c *Cluster) kubeconfigOf(user string) string {
	return filepath.Join(c.pkiDir(), user+".kubeconfig")
}

// writeKubeconfig writes a kubeconfig that contains the certificates themselves, so that it can be copied.
func (c *Cluster) writeKubeconfig(path, user string) error {
	data := map[string][]byte{}
	for _, name := range []string{"ca.crt", user + ".crt", user + ".key"} {
		content, err := os.ReadFile(filepath.Join(c.pkiDir(), name))
		if err != nil {
			return fmt.Errorf("reading credentials of %s: %w", user, err)
		}
		data[name] = content
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[c.name] = &clientcmdapi.Cluster{
		Server:                   c.apiURL(),
		CertificateAuthorityData: data["ca.crt"],
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: data[user+".crt"],
		ClientKeyData:         data[user+".key"],
	}
	config.Contexts[c.name] = &clientcmdapi.Context{Cluster: c.name, AuthInfo: user}
	config.CurrentContext = c.name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}

// apiURL is the URL of the API server.
func (c *Cluster) apiURL() string { return "https://" + c.HostIP() + ":6443" }

// writeAuthority creates an authority and certificates, and writes them to dir.
func writeAuthority(dir, name, commonName string, requests map[string]pki.Request) error {
	authority, err := pki.NewAuthority(commonName)
	if err != nil {
		return err
	}
	for file, request := range requests {
		if err := issue(authority, dir, file, request); err != nil {
			return err
		}
	}
	return authority.Write(dir, name)
}

// issue signs a certificate and writes it to dir.
func issue(authority *pki.Authority, dir, name string, request pki.Request) error {
	pair, err := authority.Issue(request)
	if err != nil {
		return err
	}
	return pair.Write(dir, name)
}

// writeSigningKey creates the key that signs ServiceAccount tokens.
func writeSigningKey(dir string) error {
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"service-account.key": private, "service-account.pub": public} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("writing the signing key: %w", err)
		}
	}
	return nil
}

// registryLogin is the file that the registry reads its only user from.
const registryLogin = "registry.login"

// writeRegistryLogin creates the registry's only user.
func writeRegistryLogin(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, registryLogin), []byte("puller:"+rand.Text()), 0o600); err != nil {
		return fmt.Errorf("writing the registry's user: %w", err)
	}
	return nil
}

// RegistryLogin returns the name and the password of the registry's only user.
func (c *Cluster) RegistryLogin() (name, password string, err error) {
	login, err := os.ReadFile(c.pkiFile(registryLogin))
	if err != nil {
		return "", "", fmt.Errorf("reading the registry's user: %w", err)
	}
	name, password, _ = strings.Cut(string(login), ":")
	return name, password, nil
}

// PullSecret returns the content of a Secret of type kubernetes.io/dockerconfigjson for the registry, also under the
// name MirroredRegistry.
func (c *Cluster) PullSecret() ([]byte, error) {
	name, password, err := c.RegistryLogin()
	if err != nil {
		return nil, err
	}
	user := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(name + ":" + password))}
	data, err := json.Marshal(map[string]any{"auths": map[string]any{MirroredRegistry: user, c.Registry(): user}})
	if err != nil {
		return nil, fmt.Errorf("encoding the registry's user: %w", err)
	}
	return data, nil
}

// address converts an address for certificates.
func address(a netip.Addr) net.IP { return a.AsSlice() }

// exists reports whether path exists.
func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
