package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// probeLimit is how long the client tries to reach what it should not.
const probeLimit = 2 * time.Second

// outsider is the client outside of the cluster, with an etcdctl.
type outsider struct {
	*demo
	etcdctl string
}

// member is a member of etcd, as etcd itself describes it.
type member struct {
	// ID identifies the member within etcd.
	ID uint64
	// Name is the name that the member gave itself: that of its Pod.
	Name string
	// Address is where the member tells clients to find it: an IP address and a port.
	Address string
}

// outside returns the client.
func (d *demo) outside(ctx context.Context) (*outsider, error) {
	dir, err := tools.Ensure(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	return &outsider{demo: d, etcdctl: filepath.Join(dir, "etcdctl")}, nil
}

// ctl runs etcdctl outside of the cluster, connected to one address only, and returns what it printed.
func (o *outsider) ctl(ctx context.Context, address string, args ...string) ([]byte, error) {
	args = append([]string{"--endpoints=http://" + address}, args...)
	cmd := o.cluster.ClientCommand(ctx, o.etcdctl, args...)
	// No proxy of the host's, nor settings that the user has for another etcd.
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

// quoted returns arguments as one would type them.
func quoted(args []string) string {
	typed := slices.Clone(args)
	for i, arg := range typed {
		if arg == "" || strings.ContainsAny(arg, " '\"") {
			typed[i] = strconv.Quote(arg)
		}
	}
	return strings.Join(typed, " ")
}

// members asks the etcd at an address for its members.
func (o *outsider) members(ctx context.Context, address string) ([]member, error) {
	output, err := o.ctl(ctx, address, "member", "list", "--write-out=json")
	if err != nil {
		return nil, err
	}
	found, err := parseMembers(output)
	if err != nil {
		return nil, fmt.Errorf("reading etcd's list of members: %w", err)
	}
	for _, m := range found {
		fmt.Fprintf(o.out, "    %s is at %s\n", m.Name, m.Address)
	}
	return found, nil
}

// parseMembers reads what "etcdctl member list" prints as JSON. It returns the members in the order of their names, or
// an error unless every member has started and names exactly one address.
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

// put writes a key through a member, at its address.
func (o *outsider) put(ctx context.Context, m member, key, value string) error {
	output, err := o.ctl(ctx, m.Address, "put", key, value, "--write-out=json")
	if err != nil {
		return err
	}
	_, err = parseAnswer(output, m)
	return err
}

// get reads a key through a member, at its address. A key that does not exist has the value "".
func (o *outsider) get(ctx context.Context, m member, key string) (string, error) {
	output, err := o.ctl(ctx, m.Address, "get", key, "--write-out=json")
	if err != nil {
		return "", err
	}
	return parseAnswer(output, m)
}

// errOtherMember says that an address leads to another member than etcd says.
var errOtherMember = errors.New("another member answered")

// parseAnswer reads what etcdctl prints as JSON of putting or getting a key, makes sure that it came from that member
// itself, and returns the value, if there is one.
func parseAnswer(data []byte, from member) (string, error) {
	var answer struct {
		Header struct {
			MemberID uint64 `json:"member_id"`
		} `json:"header"`
		KVs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", fmt.Errorf("parsing %q: %w", data, err)
	}
	if answer.Header.MemberID != from.ID {
		return "", fmt.Errorf("asking %s (%x) at %s: %w: %x", from.Name, from.ID, from.Address, errOtherMember, answer.Header.MemberID)
	}
	if len(answer.KVs) == 0 {
		return "", nil
	}
	return string(answer.KVs[0].Value), nil
}

// errReachable says that the client is not outside of the cluster.
var errReachable = errors.New("the client reaches a Pod by its own address, so it is not outside of the cluster")

// cannotReach checks that the client cannot reach a Pod by its own address.
func (o *outsider) cannotReach(ctx context.Context, podIP string, port int) error {
	address := net.JoinHostPort(podIP, strconv.Itoa(port))
	probe, cancel := context.WithTimeout(ctx, probeLimit)
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

// unreachable tells whether an error of a connection attempt means that there is no way, as opposed to nobody who
// listens.
func unreachable(err error) bool {
	var network net.Error
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || (errors.As(err, &network) && network.Timeout())
}
