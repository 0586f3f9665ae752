package podlisteners_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// namesOfSecretOperator returns what Stackable's secret operator puts into certificates for the volumes of a Pod
// (contract: the secret operator). It reads every entry of the object, also for a Pod that names one volume only, and
// fails until all have addresses. It decodes as the operator's types do: fields that are required have to be there,
// enums are closed, null and absent are the same, and other fields are ignored.
func namesOfSecretOperator(object map[string]any) (map[string][]string, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	var decoded struct {
		Spec *struct {
			Listeners map[string]struct {
				Scope            *string `json:"scope"`
				IngressAddresses *[]struct {
					Address     *string          `json:"address"`
					AddressType *string          `json:"addressType"`
					Ports       map[string]int32 `json:"ports"`
				} `json:"ingressAddresses"`
			} `json:"listeners"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if decoded.Spec == nil || decoded.Spec.Listeners == nil {
		return nil, fmt.Errorf("a required field is missing: %s", raw)
	}
	found := map[string][]string{}
	for volume, entry := range decoded.Spec.Listeners {
		switch {
		case entry.Scope == nil || !slices.Contains([]string{"Node", "Cluster"}, *entry.Scope):
			return nil, fmt.Errorf("volume %s has no known scope: %s", volume, raw)
		case entry.IngressAddresses == nil:
			return nil, fmt.Errorf("volume %s has no addresses yet", volume)
		}
		for _, a := range *entry.IngressAddresses {
			if a.Address == nil || a.AddressType == nil || a.Ports == nil {
				return nil, fmt.Errorf("volume %s: a required field is missing: %s", volume, raw)
			}
			switch *a.AddressType {
			case "Hostname":
				found[volume] = append(found[volume], "DNS:"+*a.Address)
			case "IP":
				ip, err := netip.ParseAddr(*a.Address)
				if err != nil || ip.Zone() != "" {
					return nil, fmt.Errorf("volume %s: %q is no IP address", volume, *a.Address)
				}
				found[volume] = append(found[volume], "IP:"+ip.String())
			default:
				return nil, fmt.Errorf("volume %s: unknown type %q", volume, *a.AddressType)
			}
		}
	}
	return found, nil
}

// A Pod has a volume of its own, and a shared one.
func TestTheSecretOperatorGetsTheAddressesOfEachVolume(t *testing.T) {
	own := []listenersv1alpha1.IngressAddress{
		{Address: "2001:db8::7", AddressType: listenersv1alpha1.AddressTypeIP, Ports: map[string]int32{"http": 8080}},
		{Address: "lb.example.com", AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"http": 8080}},
	}
	for name, tc := range map[string]struct {
		own  []listenersv1alpha1.IngressAddress
		want map[string][]string
		err  string
	}{
		"both have addresses": {own, map[string][]string{"listener": {"IP:192.0.2.1"}, "own": {"IP:2001:db8::7", "DNS:lb.example.com"}}, ""},
		// No certificate is issued that lacks an address of the Pod: a list that is empty would not keep it waiting.
		"one has none yet": {[]listenersv1alpha1.IngressAddress{}, nil, "volume own has no addresses yet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			class, listener := w.Class.DeepCopy(), w.Listener.DeepCopy()
			class.Name, class.Spec.ServiceType = "lb", listenersv1alpha1.ServiceTypeLoadBalancer
			listener.Name, listener.UID, listener.Spec.ClassName = "own", "cccc-dddd", &class.Name
			listener.Status.NodePorts, listener.Status.IngressAddresses = nil, tc.own
			c, _ := w.mustRun(t, append(w.addClaim(byName("own")), class, listener)...)
			stored := &unstructured.Unstructured{}
			stored.SetGroupVersionKind(listenersv1alpha1.GroupVersion.WithKind("PodListeners"))
			check.Must(t, c.Get(t.Context(), objectKey, stored))
			got, err := namesOfSecretOperator(stored.Object)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			check.Equal(t, "names in the certificate", tc.want, got)
		})
	}
}
