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
		all = append(all, s.nodes(), s.pods(), s.services())
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
		got   netip.Addr
		want  string
		inner netip.Prefix
	}{
		{s.host(), "10.90.0.1", s.nodes()},
		{s.node(1), "10.90.0.11", s.nodes()},
		{s.node(MaxNodes), "10.90.0.30", s.nodes()},
		{s.client(), "10.90.0.200", s.nodes()},
		{s.free(1), "10.90.0.201", s.nodes()},
		{s.free(MaxFree), "10.90.0.250", s.nodes()},
		{s.api(), "10.101.0.1", s.services()},
		{s.dns(), "10.101.0.10", s.services()},
	} {
		if tc.got.String() != tc.want || !tc.inner.Contains(tc.got) {
			t.Errorf("got %s in %s, want %s", tc.got, tc.inner, tc.want)
		}
	}
	if inner := s.nodePods(MaxNodes); !s.pods().Overlaps(inner) || inner.String() != "10.243.20.0/24" {
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
