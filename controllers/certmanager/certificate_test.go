package certmanager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

func issuer(name string) *listenersv1alpha1.Certificates {
	return &listenersv1alpha1.Certificates{
		IssuerRef: listenersv1alpha1.CertificateIssuer{Group: "cert-manager.io", Kind: "Issuer", Name: name},
		Usages:    []listenersv1alpha1.CertificateUsage{listenersv1alpha1.CertificateUsageServer},
	}
}

// listener returns a member. age is in minutes.
func listener(name string, age int, settings *listenersv1alpha1.Certificates, addresses ...string) member {
	l := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-time.Duration(age) * time.Minute))},
		Spec:       listenersv1alpha1.ListenerSpec{ClassName: ptr.To("class-" + name)},
		Status:     &listenersv1alpha1.ListenerStatus{},
	}
	for _, a := range addresses {
		l.Status.IngressAddresses = append(l.Status.IngressAddresses, listenersv1alpha1.IngressAddress{Address: a})
	}
	return member{listener: l, settings: settings}
}

func many(n int) (addresses []string) {
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	return addresses
}

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		members  []member
		issuer   string
		dnsNames []string
		ips      []string
		problems map[string]string
	}{
		"addresses of all Listeners, each once and in order": {
			members: []member{
				listener("b", 1, issuer("x"), "192.0.2.2", "b.example"), listener("a", 1, issuer("x"), "192.0.2.1", "B.example", "2001:db8::1", "192.0.2.2"),
			},
			issuer: "x", dnsNames: []string{"b.example"}, ips: []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"},
		},
		"an address that no certificate can have": {
			members: []member{listener("a", 1, issuer("x"), "fe80::1%eth0", "not a name", "192.0.2.1")}, issuer: "x", ips: []string{"192.0.2.1"},
		},
		"no address yet": {members: []member{listener("a", 1, issuer("x"))}},
		"nothing of a Listener that has no address": {
			members: []member{listener("a", 1, issuer("x"), "192.0.2.1"), listener("b", 1, issuer("x"))}, issuer: "x", ips: []string{"192.0.2.1"},
		},
		"a class without certificates": {
			members: []member{listener("a", 2, nil, "192.0.2.1"), listener("b", 1, issuer("x"), "192.0.2.2")},
			issuer:  "x", ips: []string{"192.0.2.2"},
			problems: map[string]string{"a": "ListenerClass class-a does not exist, or has no certificates: use another class, or remove the label"},
		},
		"two issuers, of which the older Listener decides": {
			members: []member{listener("a", 1, issuer("y"), "192.0.2.1"), listener("b", 2, issuer("x"), "192.0.2.2")},
			issuer:  "x", ips: []string{"192.0.2.2"},
			problems: map[string]string{"a": "Listener b has the same label, but its ListenerClass class-b has other certificates than ListenerClass class-a: use labels with different values"},
		},
		"an issuer of a Listener that has no address decides nothing": {
			members: []member{listener("a", 2, issuer("y")), listener("b", 1, issuer("x"), "192.0.2.2")}, issuer: "x", ips: []string{"192.0.2.2"},
		},
		"too many addresses": {
			members: []member{listener("a", 2, issuer("x"), many(maxNames)...), listener("b", 1, issuer("x"), "192.0.2.2")},
			issuer:  "x", ips: slices.Sorted(slices.Values(many(maxNames))),
			problems: map[string]string{"b": "the certificate would have more than 500 names and addresses: use labels with different values"},
		},
		"too many addresses of the first": {
			members:  []member{listener("a", 2, issuer("x"), many(maxNames+1)...)},
			problems: map[string]string{"a": "the certificate would have more than 500 names and addresses: use labels with different values"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(test.members)
			got := ""
			if p.settings != nil {
				got = p.settings.IssuerRef.Name
			}
			problems := map[string]string{}
			for _, m := range test.members {
				if m.problem != "" {
					problems[m.listener.Name] = m.problem
				}
			}
			if test.problems == nil {
				test.problems = map[string]string{}
			}
			var dnsNames, ips []string
			for _, name := range p.dnsNames {
				dnsNames = append(dnsNames, name.(string))
			}
			for _, ip := range p.ips {
				ips = append(ips, ip.(string))
			}
			want := []any{test.issuer, test.dnsNames, test.ips, test.problems}
			if diff := cmp.Diff(want, []any{got, dnsNames, ips, problems}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A Certificate that no class describes any more stays while its addresses are those of Listeners.
func TestOutdated(t *testing.T) {
	observed := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"dnsNames": []any{"a.example"}, "ipAddresses": []any{"192.0.2.1"}}}}
	for name, test := range map[string]struct {
		observed *unstructured.Unstructured
		members  []member
		want     bool
	}{
		"all addresses are published":      {observed, []member{listener("a", 1, nil, "192.0.2.1", "192.0.2.2"), listener("b", 1, nil, "A.example")}, false},
		"an address is not published":      {observed, []member{listener("a", 1, nil, "192.0.2.1")}, true},
		"there is no Certificate":          {nil, []member{listener("a", 1, nil, "192.0.2.1")}, false},
		"no Listener publishes an address": {observed, []member{listener("a", 1, issuer("x"))}, true},
	} {
		if got := outdated(test.observed, test.members); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
