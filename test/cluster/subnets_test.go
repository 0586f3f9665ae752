package cluster

import (
	"net/netip"
	"testing"
)

func TestAllocateReturnsFirstFreeSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		taken []int
		local []netip.Addr
		want  int
	}{
		"nothing is taken":                {want: 0},
		"others are taken":                {taken: []int{0, 1, 3}, want: 2},
		"the machine has such an address": {local: []netip.Addr{netip.MustParseAddr("10.89.0.77")}, want: 1},
		"both":                            {taken: []int{1}, local: []netip.Addr{netip.MustParseAddr("10.89.0.1")}, want: 2},
		"the machine has one of IPv6":     {local: []netip.Addr{netip.MustParseAddr("fd00:10:89::77")}, want: 1},
		"another address of the machine":  {local: []netip.Addr{netip.MustParseAddr("10.89.1.1")}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := allocate(tc.taken, tc.local)
			if err != nil || got != tc.want {
				t.Errorf("allocate(%v, %v) = %d, %v, want %d", tc.taken, tc.local, got, err, tc.want)
			}
		})
	}
}

func TestAllocateFailsWhenAllSlotsAreTaken(t *testing.T) {
	var taken []int
	for slot := range slots {
		taken = append(taken, slot)
	}
	if slot, err := allocate(taken, nil); err == nil {
		t.Errorf("allocate gave slot %d although all are taken", slot)
	}
}

func TestNoTwoRangesOverlap(t *testing.T) {
	var all []netip.Prefix
	for slot := range slots {
		s := subnets{slot}
		for _, p := range []prefixes{s.nodes(), s.pods(), s.services()} {
			all = append(all, p.V4, p.V6)
		}
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.Overlaps(b) {
				t.Errorf("%s overlaps %s", a, b)
			}
		}
	}
}

func TestAddressesAreInTheirRanges(t *testing.T) {
	s := subnets{slot: 1}
	for _, tc := range []struct {
		got   ips
		want  string
		inner prefixes
	}{
		{s.host(), "10.90.0.1,fd00:10:90::1", s.nodes()},
		{s.node(1), "10.90.0.11,fd00:10:90::11", s.nodes()},
		{s.node(MaxNodes), "10.90.0.30,fd00:10:90::30", s.nodes()},
		{s.client(), "10.90.0.200,fd00:10:90::200", s.nodes()},
		{s.free(1), "10.90.0.201,fd00:10:90::201", s.nodes()},
		{s.free(MaxFree), "10.90.0.250,fd00:10:90::250", s.nodes()},
	} {
		if tc.got.String() != tc.want || !tc.inner.V4.Contains(tc.got.V4) || !tc.inner.V6.Contains(tc.got.V6) {
			t.Errorf("got %s in %s, want %s", tc.got, tc.inner, tc.want)
		}
	}
	for want, got := range map[string]netip.Addr{"10.101.0.1": s.api(), "10.101.0.10": s.dns()} {
		if got.String() != want || !s.services().contain(got) {
			t.Errorf("got %s in %s, want %s", got, s.services(), want)
		}
	}
	inner := s.nodePods(MaxNodes)
	if !s.pods().contain(inner.V4.Addr()) || !s.pods().contain(inner.V6.Addr()) || inner.String() != "10.243.20.0/24,fd00:10:243:20::/64" {
		t.Errorf("Pods of the last node have %s", inner)
	}
}

func TestLinkNamesAreShortEnoughForKernel(t *testing.T) {
	for _, name := range []string{subnets{slots - 1}.bridge(), subnets{slots - 1}.nodeLink(MaxNodes), subnets{slots - 1}.clientLink()} {
		if len(name) > 15 {
			t.Errorf("%s is longer than the kernel allows", name)
		}
	}
}
