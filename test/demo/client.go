package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// probeTimeout is how long the client tries to connect to an address that it should not reach.
const probeTimeout = 2 * time.Second

// outsideClient is the client outside the cluster, which runs etcdctl.
type outsideClient struct {
	*demo
	etcdctl string
	// dir is where it runs, with what it trusts in the file authorityFile.
	dir string
}

// authorityFile is the file with the authority of etcd's namespace.
const authorityFile = "ca.crt"

// member is a member of etcd, as etcd itself describes it.
type member struct {
	// ID identifies the member within etcd.
	ID uint64
	// Name is the member's name, which is its Pod's.
	Name string
	// Address is the address that the member advertises to clients: an IP address and a port.
	Address string
}

// outside returns the client outside the cluster.
func (d *demo) outside(ctx context.Context) (*outsideClient, error) {
	dir, err := tools.Ensure(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	o := &outsideClient{demo: d, etcdctl: filepath.Join(dir, "etcdctl"), dir: filepath.Dir(d.cluster.Kubeconfig())}
	var trusted corev1.ConfigMap
	key := types.NamespacedName{Namespace: etcdNamespace, Name: names.CertificateAuthorityConfigMap}
	if err := d.client.Get(ctx, key, &trusted); err != nil {
		return nil, fmt.Errorf("reading what clients have to trust, in ConfigMap %s: %w", key, err)
	}
	if err := os.WriteFile(filepath.Join(o.dir, authorityFile), []byte(trusted.Data[names.CertificateAuthorityKey]), 0o600); err != nil {
		return nil, fmt.Errorf("writing what the client trusts: %w", err)
	}
	return o, nil
}

// ctl runs etcdctl outside the cluster, with one address as its only endpoint, and returns its output.
func (o *outsideClient) ctl(ctx context.Context, address string, args ...string) ([]byte, error) {
	args = append([]string{"--cacert=" + authorityFile, "--endpoints=https://" + address}, args...)
	cmd := o.cluster.ClientCommand(ctx, o.etcdctl, args...)
	cmd.Dir = o.dir
	// Neither the host's proxy settings nor etcdctl's own variables apply.
	cmd.Env = []string{}
	fmt.Fprintf(o.out, "  outside$ etcdctl %s\n", quoted(args))
	var messages strings.Builder
	cmd.Stderr = &messages
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running etcdctl %s: %w: %s", quoted(args), err, strings.TrimSpace(messages.String()))
	}
	return output, nil
}

// quoted returns arguments as they are typed in a shell.
func quoted(args []string) string {
	typed := slices.Clone(args)
	for i, arg := range typed {
		if arg == "" || strings.ContainsAny(arg, " '\"") {
			typed[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(typed, " ")
}

// members returns the members that the etcd at an address lists.
func (o *outsideClient) members(ctx context.Context, address string) ([]member, error) {
	output, err := o.ctl(ctx, address, "member", "list", "--write-out=json")
	if err != nil {
		return nil, err
	}
	found, err := parseMembers(output)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's list of members: %w", err)
	}
	for _, m := range found {
		fmt.Fprintf(o.out, "    %s: %s\n", m.Name, m.Address)
	}
	return found, nil
}

// parseMembers parses the JSON output of "etcdctl member list", and returns the members sorted by name. It returns an
// error unless every member has started and has exactly one address.
func parseMembers(data []byte) ([]member, error) {
	var list struct {
		Members []struct {
			ID         uint64   `json:"ID"`
			Name       string   `json:"name"`
			ClientURLs []string `json:"clientURLs"`
		} `json:"members"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("parsing %q: %w", data, err)
	}
	var found []member
	for _, m := range list.Members {
		if m.Name == "" || len(m.ClientURLs) != 1 {
			return nil, fmt.Errorf("member %x, named %q, has the addresses %q; want a name and one address", m.ID, m.Name, m.ClientURLs)
		}
		u, err := url.Parse(m.ClientURLs[0])
		if err != nil {
			return nil, fmt.Errorf("parsing the address of %s: %w", m.Name, err)
		}
		if u.Hostname() == "" || u.Port() == "" {
			return nil, fmt.Errorf("the address of %s, %q, is not a host and a port", m.Name, m.ClientURLs[0])
		}
		found = append(found, member{ID: m.ID, Name: m.Name, Address: u.Host})
	}
	slices.SortFunc(found, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// put writes a key through a member.
func (o *outsideClient) put(ctx context.Context, m member, key, value string) error {
	output, err := o.ctl(ctx, m.Address, "put", key, value, "--write-out=json")
	if err != nil {
		return err
	}
	_, err = parseResponse(output, m)
	return err
}

// get reads a key through a member. The value of a key that does not exist is "".
func (o *outsideClient) get(ctx context.Context, m member, key string) (string, error) {
	output, err := o.ctl(ctx, m.Address, "get", key, "--write-out=json")
	if err != nil {
		return "", err
	}
	return parseResponse(output, m)
}

// errOtherMember is returned when an address leads to a member that does not advertise it.
var errOtherMember = errors.New("another member answered")

// parseResponse parses the JSON output of "etcdctl put" or "etcdctl get", checks that the given member itself
// responded, and returns the value, if there is one.
func parseResponse(data []byte, from member) (string, error) {
	var response struct {
		Header struct {
			MemberID uint64 `json:"member_id"`
		} `json:"header"`
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(data, &response); err != nil {
		return "", fmt.Errorf("parsing %q: %w", data, err)
	}
	if response.Header.MemberID != from.ID {
		return "", fmt.Errorf("querying %s (%x) at %s: %w: %x", from.Name, from.ID, from.Address, errOtherMember, response.Header.MemberID)
	}
	if len(response.KVs) == 0 {
		return "", nil
	}
	return string(response.KVs[0].Value), nil
}

// certificate returns the certificate of a member, if it is for the address that the client connects to, and signed by
// the authority that the client trusts.
func (o *outsideClient) certificate(ctx context.Context, m member) (*x509.Certificate, error) {
	trusted, err := os.ReadFile(filepath.Join(o.dir, authorityFile))
	if err != nil {
		return nil, fmt.Errorf("reading what the client trusts: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	connection, err := o.cluster.ClientDial(ctx, "tcp", m.Address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", m.Name, err)
	}
	defer func() { _ = connection.Close() }()
	host, _, _ := net.SplitHostPort(m.Address)
	session := tls.Client(connection, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13})
	if err := session.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("verifying the certificate of %s for %s: %w", m.Name, host, err)
	}
	return session.ConnectionState().PeerCertificates[0], nil
}

// errReachable is returned when the client reaches a Pod.
var errReachable = errors.New("the client reaches a Pod by the Pod's own address, so it is not outside the cluster")

// checkUnreachable checks that the client cannot reach a Pod by the Pod's own address.
func (o *outsideClient) checkUnreachable(ctx context.Context, podIP string, port int) error {
	address := net.JoinHostPort(podIP, strconv.Itoa(port))
	probe, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := o.cluster.ClientDial(probe, "tcp", address)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: %w", address, errReachable), conn.Close())
	}
	if !unreachable(err) || ctx.Err() != nil {
		return fmt.Errorf("probing %s from outside: %w", address, err)
	}
	fmt.Fprintf(o.out, "  outside$ connect to Pod %s: %v\n", address, err)
	return nil
}

// unreachable reports whether the error of a connection attempt means that there is no route to the address, as opposed
// to no listening process.
func unreachable(err error) bool {
	var network net.Error
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || (errors.As(err, &network) && network.Timeout())
}
