package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// addressWith returns an address with a number of ports, whose names have a length.
func addressWith(ports, length int) listenersv1alpha1.IngressAddress {
	a := listenersv1alpha1.IngressAddress{Address: "192.0.2.1", Ports: map[string]int32{}}
	for i := range ports {
		name := fmt.Sprint("p", i)
		a.Ports[name+strings.Repeat("x", length-len(name))] = 80
	}
	return a
}

func TestVolumesBeyondTheLimitsAreRemoved(t *testing.T) {
	small, full, large := []listenersv1alpha1.IngressAddress{addressWith(1, 4)}, []listenersv1alpha1.IngressAddress{
		addressWith(1024, 15), addressWith(1024, 15), addressWith(1024, 15),
	}, []listenersv1alpha1.IngressAddress{addressWith(5000, 5)}
	many, order := map[string][]listenersv1alpha1.IngressAddress{}, []string{}
	for i := range 18 {
		order = append(order, fmt.Sprintf("v%02d", 17-i))
		many[order[i]] = small
	}
	for name, tc := range map[string]struct {
		volumes     map[string][]listenersv1alpha1.IngressAddress
		order, want []string
	}{
		"none":                       {},
		"as large as one may be":     {map[string][]listenersv1alpha1.IngressAddress{"a": full}, []string{"a"}, nil},
		"in this order":              {map[string][]listenersv1alpha1.IngressAddress{"a": full, "b": full}, []string{"b", "a"}, []string{"a"}},
		"too large alone":            {map[string][]listenersv1alpha1.IngressAddress{"a": large, "b": small}, []string{"a", "b"}, []string{"a"}},
		"no listener volume":         {map[string][]listenersv1alpha1.IngressAddress{"b": small}, []string{"other", "b"}, nil},
		"many other volumes":         {map[string][]listenersv1alpha1.IngressAddress{"b": small}, append(slices.Clone(order), "b"), nil},
		"many":                       {many, order, []string{"v01", "v00"}},
		"waiting volumes count, too": {map[string][]listenersv1alpha1.IngressAddress{"a": nil, "b": full}, []string{"a", "b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			spec := listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{}}
			for volume, addresses := range tc.volumes {
				spec.Listeners[volume] = listenersv1alpha1.PodListener{IngressAddresses: addresses}
			}
			got := spec.Limit(tc.order)
			check.Equal(t, "removed", tc.want, got, cmpopts.EquateEmpty())
			if len(spec.Listeners) != len(tc.volumes)-len(tc.want) {
				t.Errorf("%d of %d volumes stay", len(spec.Listeners), len(tc.volumes))
			}
		})
	}
}
