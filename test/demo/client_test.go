package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestParseMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		json string
		want []member
		// wantErr is part of the error, or "" for none.
		wantErr string
	}{
		"members are sorted by name": {
			json: `{"header":{"cluster_id":1},"members":[
				{"ID":10276657743932975437,"name":"etcd-1","peerURLs":["http://etcd-1.etcd-peers:2380"],"clientURLs":["http://10.89.0.12:31002"]},
				{"ID":2,"name":"etcd-0","peerURLs":["http://etcd-0.etcd-peers:2380"],"clientURLs":["http://10.89.0.11:31001"]}]}`,
			want: []member{
				{ID: 2, Name: "etcd-0", Address: "10.89.0.11:31001"},
				{ID: 10276657743932975437, Name: "etcd-1", Address: "10.89.0.12:31002"},
			},
		},
		"an IPv6 address keeps its brackets": {
			json: `{"members":[{"ID":1,"name":"etcd-0","clientURLs":["http://[fd00::1]:31001"]}]}`,
			want: []member{{ID: 1, Name: "etcd-0", Address: "[fd00::1]:31001"}},
		},
		"a member that has not started has no name": {
			json:    `{"members":[{"ID":255,"peerURLs":["http://etcd-0.etcd-peers:2380"]}]}`,
			wantErr: "member ff",
		},
		"a member without an address": {
			json:    `{"members":[{"ID":1,"name":"etcd-0"}]}`,
			wantErr: "one address",
		},
		"a member with two addresses": {
			json:    `{"members":[{"ID":1,"name":"etcd-0","clientURLs":["http://10.89.0.11:1","http://10.89.0.12:1"]}]}`,
			wantErr: "one address",
		},
		"an address without a port": {
			json:    `{"members":[{"ID":1,"name":"etcd-0","clientURLs":["http://10.89.0.11"]}]}`,
			wantErr: "not a host and a port",
		},
		"an invalid address": {
			json:    `{"members":[{"ID":1,"name":"etcd-0","clientURLs":["http://%zz"]}]}`,
			wantErr: "parsing the address of etcd-0",
		},
		"not JSON": {
			json:    `8e9e05c52164694d, started, etcd-0`,
			wantErr: "8e9e05c52164694d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMembers([]byte(tc.json))
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("error %v, want %q", err, tc.wantErr)
			}
			check.Equal(t, "members", tc.want, got)
		})
	}
}

func TestParseResponse(t *testing.T) {
	from := member{ID: 10276657743932975437, Name: "etcd-0", Address: "10.89.0.11:31001"}
	for name, tc := range map[string]struct {
		json    string
		want    string
		wantErr string
	}{
		"a value": {
			json: `{"header":{"cluster_id":1,"member_id":10276657743932975437,"revision":2,"raft_term":2},` +
				`"kvs":[{"key":"ZGVtby9ldGNkLTA=","create_revision":2,"mod_revision":2,"version":1,"value":"aGVsbG8="}],"count":1}`,
			want: "hello",
		},
		"no such key":       {json: `{"header":{"member_id":10276657743932975437}}`},
		"response to put":   {json: `{"header":{"member_id":10276657743932975437,"revision":3}}`},
		"of another member": {json: `{"header":{"member_id":255},"kvs":[{"value":"aGVsbG8="}]}`, wantErr: "etcd-0 (8e9e05c52164694d) at 10.89.0.11:31001: another member answered: ff"},
		"without a member":  {json: `{}`, wantErr: "another member answered: 0"},
		"not a response":    {json: `OK`, wantErr: `parsing "OK"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseResponse([]byte(tc.json), from)
			wantError(t, err, tc.wantErr)
			wantText(t, got, tc.want)
		})
	}
}

func TestArgumentsAreQuotedAsInShell(t *testing.T) {
	wantText(t, quoted([]string{"put", "demo/etcd-0", "by etcd-0", ""}), `put demo/etcd-0 "by etcd-0" ""`)
}

func TestUnreachableMeansNoRoute(t *testing.T) {
	wrap := func(errno unix.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"no route to the network": {err: wrap(unix.ENETUNREACH), want: true},
		"no route to the host":    {err: wrap(unix.EHOSTUNREACH), want: true},
		"no answer":               {err: &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, want: true},
		"refused":                 {err: wrap(unix.ECONNREFUSED)},
		"no client to dial from":  {err: fmt.Errorf("client %w", errors.New("is not running"))},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unreachable(tc.err); got != tc.want {
				t.Errorf("unreachable(%v) = %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}
