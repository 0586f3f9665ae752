package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// resolverDomain returns the DNS domain of the cluster, by the configuration of a Pod's resolver, a file that the
// kubelet writes. It is "" if the configuration names none, as in a Pod with the DNS policy Default.
func resolverDomain(file string) (string, error) {
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return "", fmt.Errorf("reading the configuration of the resolver: %w", err)
	}
	var domain string
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "search" {
			domain = ofSearchList(fields[1:]) // the last list counts
		}
	}
	return domain, nil
}

// ofSearchList returns the domain of the cluster in the search list of a Pod, which has <namespace>.svc.<domain>,
// svc.<domain> and <domain>, and then what the node has.
func ofSearchList(list []string) string {
	for _, entry := range list {
		domain, ok := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(entry, ".")), "svc.")
		if ok && len(validation.IsDNS1123Subdomain(domain)) == 0 {
			return domain
		}
	}
	return ""
}
