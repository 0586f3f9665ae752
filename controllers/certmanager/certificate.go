package certmanager

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/address"
	"github.com/listener-operator/listener-operator/internal/certificate"
)

// maxNames is the maximum number of names and addresses in a certificate, which every client receives whole.
const maxNames = 500

// member is a Listener with the label for a Certificate.
type member struct {
	listener *listenersv1alpha1.Listener
	// settings are in the Listener's class, or nil if the class does not exist or has none.
	settings *listenersv1alpha1.Certificates
}

type plan struct {
	// settings are in the class, or nil while no Listener has both an address and a class with settings.
	settings *listenersv1alpha1.Certificates
	// dnsNames and ips are the addresses of the Listeners, in order, each once.
	dnsNames, ips []string
	// problems says of a member why it is not part of the Certificate, by its index.
	problems map[int]string
}

// newPlan plans a Certificate of the members, which it sorts: the oldest decides about the issuer, and about who is
// left out. An address counts while a Listener publishes it, and no longer: it may belong to others then.
func newPlan(members []member) plan {
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(a.listener.CreationTimestamp.Compare(b.listener.CreationTimestamp.Time), cmp.Compare(a.listener.Name, b.listener.Name))
	})
	p := plan{problems: map[int]string{}}
	all := sets.New[string]()
	var first *listenersv1alpha1.Listener
	for i, m := range members {
		addresses := addressesOf(m.listener)
		switch {
		case m.settings == nil:
			p.problems[i] = fmt.Sprintf("ListenerClass %s does not exist, or has no certificates: use another class, or remove the label", m.listener.Class())
		case len(addresses) == 0:
		case p.settings != nil && !reflect.DeepEqual(p.settings, m.settings):
			p.problems[i] = fmt.Sprintf("Listener %s has the same label, but its ListenerClass %s has other certificates than ListenerClass %s: use labels with different values",
				first.Name, first.Class(), m.listener.Class())
		case all.Union(sets.New(addresses...)).Len() > maxNames:
			p.problems[i] = fmt.Sprintf("the certificate would have more than %d names and addresses: use labels with different values", maxNames)
		default:
			if p.settings == nil {
				p.settings, first = m.settings, m.listener
			}
			all.Insert(addresses...)
		}
	}
	for _, a := range sets.List(all) {
		if _, err := netip.ParseAddr(a); err == nil {
			p.ips = append(p.ips, a)
		} else {
			p.dnsNames = append(p.dnsNames, a)
		}
	}
	return p
}

// outdated reports whether a Certificate, which may be nil, has an address that none of the members publishes.
func outdated(observed *unstructured.Unstructured, members []member) bool {
	published := sets.New[string]()
	for _, m := range members {
		published.Insert(addressesOf(m.listener)...)
	}
	return observed != nil && !published.HasAll(certificate.SubjectNames(observed)...)
}

// addressesOf returns the published addresses of a Listener that a certificate can be for.
func addressesOf(listener *listenersv1alpha1.Listener) []string {
	if listener.Status == nil {
		return nil
	}
	var found []string
	for _, a := range listener.Status.IngressAddresses {
		if address.IsIP(a.Address) || address.IsHostname(a.Address) {
			found = append(found, strings.ToLower(a.Address))
		}
	}
	return found
}

// spec returns the desired spec of the Certificate with this name, and this Secret. Programs in Java, too, can read its
// key, which is never used for another certificate. The Secret also has key and certificates in one file, which some
// programs require, and which is replaced at once.
func (p plan) spec(name string) map[string]any {
	usages := []any{"digital signature"}
	for _, u := range p.settings.Usages {
		usages = append(usages, string(u)+" auth")
	}
	return map[string]any{
		"secretName": name, "dnsNames": list(p.dnsNames), "ipAddresses": list(p.ips), "usages": usages,
		"issuerRef":               map[string]any{"group": p.settings.IssuerRef.Group, "kind": p.settings.IssuerRef.Kind, "name": p.settings.IssuerRef.Name},
		"privateKey":              map[string]any{"algorithm": "ECDSA", "size": int64(256), "encoding": "PKCS8", "rotationPolicy": "Always"},
		"additionalOutputFormats": []any{map[string]any{"type": "CombinedPEM"}},
	}
}

func list(all []string) []any {
	values := make([]any, 0, len(all))
	for _, s := range all {
		values = append(values, s)
	}
	return values
}
