package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestClusterDomainIsThatOfTheResolver(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"as the kubelet writes it": {"search operators.svc.cluster.local svc.cluster.local cluster.local corp.example.com\nnameserver 10.96.0.10\noptions ndots:5\n", "cluster.local"},
		"another domain":           {"nameserver 10.96.0.10\nsearch operators.svc.k8s.example.com svc.k8s.example.com k8s.example.com\n", "k8s.example.com"},
		"a single label":           {"search operators.svc.prod svc.prod prod", "prod"},
		"with final dots":          {"search operators.svc.k8s.example.com. svc.K8s.Example.com. k8s.example.com.\n", "k8s.example.com"},
		"several lists":            {"search svc.first.example.com\nsearch svc.second.example.com\n", "second.example.com"},
		"with tabs":                {"search\toperators.svc.k8s.example.com\tsvc.k8s.example.com\n", "k8s.example.com"},
		"that of a node":           {"search corp.example.com example.com\nnameserver 192.0.2.1\n", ""},
		"no domain":                {"search svc.\n", ""},
		"an invalid domain":        {"search svc.under_score\n", ""},
		"in a comment":             {"# search svc.k8s.example.com\n", ""},
		"empty":                    {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "resolv.conf")
			check.Must(t, os.WriteFile(file, []byte(tc.content), 0o600))
			got, err := resolverDomain(file)
			if err != nil || got != tc.want {
				t.Errorf("domain is %q, error is %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestClusterDomainIsUnknownWithoutTheFile(t *testing.T) {
	if got, err := resolverDomain(filepath.Join(t.TempDir(), "missing")); err == nil || got != "" {
		t.Errorf("domain is %q, error is %v", got, err)
	}
}
