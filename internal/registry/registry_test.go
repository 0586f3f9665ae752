package registry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

var errNone = errors.New("no number is left")

// limited is the range of node ports of the model. A namespace may have three of them.
var limited = Range{PortRange: utilnet.PortRange{Base: 1, Size: 6}, Kind: listenersv1alpha1.WaitingKindNodePort, MaxPerNamespace: 3}

// model is who claims what, said as plainly as possible.
type model struct {
	// shown is what an object of a holder has. before and wanted are what its passes have reserved.
	shown, before, wanted map[Holder]sets.Set[Key]
	// claims are the holders that claim a key, in the order in which they began to.
	claims map[Key][]Holder
	passes map[Holder]*Pass
}

// isClaimed reports whether a holder claims a key.
func (m *model) isClaimed(holder Holder, key Key) bool {
	return m.shown[holder].Has(key) || m.before[holder].Has(key) || m.wanted[holder].Has(key)
}

// order follows a step: who no longer claims a key leaves the order, and the holder that claims it now is the last.
func (m *model) order(holder Holder) (freed sets.Set[Key]) {
	freed = sets.New[Key]()
	for _, key := range keys() {
		had := slices.Contains(m.claims[key], holder)
		switch has := m.isClaimed(holder, key); {
		case had && !has:
			m.claims[key] = slices.DeleteFunc(m.claims[key], func(h Holder) bool { return h == holder })
			freed.Insert(key)
		case has && !had:
			m.claims[key] = append(m.claims[key], holder)
		}
	}
	return freed
}

func (m *model) taken(holder Holder, key Key) bool {
	claims := m.claims[key]
	return len(claims) > 0 && claims[0] != holder
}

// exceeds reports whether a holder may not have these numbers, because of what its namespace has.
func (m *model) exceeds(holder Holder, chosen sets.Set[Key]) bool {
	own, others, more := 0, 0, false
	for _, number := range keys() {
		ofNamespace := func(h Holder) bool { return h != holder && h.Namespace == holder.Namespace }
		switch {
		case number.Kind != limited.Kind || !limited.contains(number.Value):
		case chosen.Has(number):
			own++
			more = more || !m.isClaimed(holder, number)
		case slices.ContainsFunc(m.claims[number], ofNamespace):
			others++
		}
	}
	return more && own+others > limited.MaxPerNamespace
}

// keys returns all keys of the model: numbers from 0 to 7, some outside of the range, and three hosts.
func keys() (all []Key) {
	for number := range int32(8) {
		all = append(all, Number(listenersv1alpha1.WaitingKindNodePort, number))
	}
	return append(all, Keys(listenersv1alpha1.WaitingKindHost, "a", "b", "c")...)
}

// TestRegistryFollowsItsModel takes random steps, and compares the Registry with its model after each: no two holders
// have the same, whoever gives back a key is reported, and at the end, when all are deleted, nothing is left.
func TestRegistryFollowsItsModel(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be the same in each run
		freed := sets.New[Key]()
		r := New(func(key Key) { freed.Insert(key) })
		m := &model{
			shown: map[Holder]sets.Set[Key]{}, before: map[Holder]sets.Set[Key]{}, wanted: map[Holder]sets.Set[Key]{},
			claims: map[Key][]Holder{}, passes: map[Holder]*Pass{},
		}
		for step := range 100 {
			holder := Holder{Namespace: []string{"a", "b"}[random.IntN(2)], Name: fmt.Sprint(random.IntN(3))}
			freed.Clear()
			what := fmt.Sprintf("seed %d, step %d: %s %s", seed, step, holder, m.step(t, r, random, holder))
			if diff := cmp.Diff(m.order(holder), freed); diff != "" {
				t.Fatalf("%s: freed (-want +got):\n%s", what, diff)
			}
			m.compare(t, r, what)
		}
		for _, namespace := range []string{"a", "b"} {
			for name := range 3 {
				holder := Holder{Namespace: namespace, Name: fmt.Sprint(name)}
				r.Forget(holder)
				r.Observe(holder, m.shown[holder], nil)
			}
		}
		if len(r.claims)+len(r.passes) > 0 {
			t.Fatalf("seed %d: nothing exists any more, but %v and %v", seed, r.claims, r.passes)
		}
	}
}

func (m *model) compare(t *testing.T, r *Registry, what string) {
	t.Helper()
	left := map[Range]int{limited: 6, {PortRange: utilnet.PortRange{Base: 4, Size: 10}, Kind: limited.Kind}: 10}
	for _, key := range keys() {
		var got []Holder
		for _, claim := range r.claims[key] {
			got = append(got, claim.holder)
		}
		if !slices.Equal(got, m.claims[key]) {
			t.Fatalf("%s: %v is claimed by %v, want %v", what, key, got, m.claims[key])
		}
		for numbers := range left {
			if len(got) > 0 && key.Kind == numbers.Kind && numbers.contains(key.Value) {
				left[numbers]--
			}
		}
	}
	for numbers, want := range left {
		if got := r.Left([]Range{numbers})[0]; got != want {
			t.Fatalf("%s: %d of %+v are left, want %d", what, got, numbers, want)
		}
	}
}

// step takes a random step with a holder, and describes it.
func (m *model) step(t *testing.T, r *Registry, random *rand.Rand, holder Holder) string {
	t.Helper()
	some := sets.New[Key]()
	for _, key := range keys() {
		if random.IntN(5) == 0 {
			some.Insert(key)
		}
	}
	pass := m.passes[holder]
	switch action := random.IntN(9); {
	case action == 0:
		r.Observe(holder, m.shown[holder], some)
		m.shown[holder] = some
		return fmt.Sprintf("shows %v", some)
	case action == 1:
		r.Forget(holder)
		delete(m.passes, holder)
		m.before[holder], m.wanted[holder] = nil, nil
		return "is deleted"
	case action == 2 || pass == nil: // the last one may be neither committed nor rolled back
		m.passes[holder] = r.Begin(holder)
		m.before[holder], m.wanted[holder] = m.before[holder].Union(m.wanted[holder]), sets.New[Key]()
		return "begins"
	case action <= 4:
		return m.reserve(t, pass, holder, some, action == 3)
	case action == 5:
		return m.allocate(t, pass, holder, keys()[random.IntN(8)], keys()[random.IntN(8)])
	case action == 6:
		pass.Withdraw(some.Has)
		m.wanted[holder] = m.wanted[holder].Difference(some)
		return fmt.Sprintf("withdraws %v", some)
	case action == 7:
		pass.RollBack()
		m.wanted[holder] = sets.New[Key]()
		return "rolls back"
	}
	pass.Commit(some.Has)
	m.before[holder] = m.before[holder].Intersection(some)
	return fmt.Sprintf("commits, and keeps %v", some)
}

// reserve reserves all of the keys, or keeps those that no other holder has.
func (m *model) reserve(t *testing.T, pass *Pass, holder Holder, some sets.Set[Key], keep bool) string {
	t.Helper()
	free := some.Clone()
	for key := range some {
		if m.taken(holder, key) {
			free.Delete(key)
		}
	}
	if keep {
		pass.Keep(append(For("tcp", some.UnsortedList()...), For("udp", some.UnsortedList()...)...)...)
		m.wanted[holder] = m.wanted[holder].Union(free)
		return fmt.Sprintf("keeps %v", some)
	}
	err := pass.Reserve(some.UnsortedList()...)
	taken, refused := errors.AsType[*TakenError](err)
	if refused != (len(free) < len(some)) || refused && (free.Has(taken.Key) || m.claims[taken.Key][0] != taken.Holder) {
		t.Fatalf("%s reserves %v, of which %v are free: %v", holder, some, free, err)
	}
	if !refused {
		m.wanted[holder] = m.wanted[holder].Union(some)
	}
	return fmt.Sprintf("reserves %v", some)
}

// allocate allocates the numbers of two ports, which may be the same, in place of others.
func (m *model) allocate(t *testing.T, pass *Pass, holder Holder, tcp, udp Key) string {
	t.Helper()
	numbers, chosen := map[string]int32{}, sets.New(tcp, udp)
	for port, key := range map[string]Key{"tcp": tcp, "udp": udp} {
		var number int32
		_, _ = fmt.Sscan(key.Value, &number)
		numbers[port] = number
	}
	_, err := pass.Allocate(limited, func(taken func(int32) bool) (map[string]int32, error) {
		if taken(numbers["tcp"]) || taken(numbers["udp"]) {
			return nil, errNone
		}
		return numbers, nil
	})
	taken := m.taken(holder, tcp) || m.taken(holder, udp)
	_, limit := errors.AsType[*LimitError](err)
	if exceeded := !taken && m.exceeds(holder, chosen); errors.Is(err, errNone) != taken || limit != exceeded {
		t.Fatalf("%s allocates %v: taken %t, exceeded %t: %v", holder, numbers, taken, exceeded, err)
	}
	if err == nil {
		hosts := sets.New(Keys(listenersv1alpha1.WaitingKindHost, "a", "b", "c")...)
		m.wanted[holder] = m.wanted[holder].Intersection(hosts).Union(chosen)
	}
	return fmt.Sprintf("allocates %v", numbers)
}

// A Listener that is reconciled again keeps its numbers, each for the port that it is for, whatever was committed.
func TestNumbersKeepTheirUse(t *testing.T) {
	r := New(func(Key) {})
	holder := Holder{Namespace: "shop", Name: "web"}
	allocate := func(numbers map[string]int32) *Pass {
		pass := r.Begin(holder)
		if _, err := pass.Allocate(limited, func(func(int32) bool) (map[string]int32, error) { return numbers, nil }); err != nil {
			t.Fatal(err)
		}
		return pass
	}
	expect := func(want map[string]int32) {
		t.Helper()
		check.Equal(t, "numbers", want, r.Begin(holder).Reserved(limited.Kind))
	}
	allocate(map[string]int32{"http": 1, "admin": 2}).Commit(func(Key) bool { return false })
	expect(map[string]int32{"http": 1, "admin": 2})
	allocate(map[string]int32{"http": 3}) // without an answer
	expect(map[string]int32{"http": 3, "admin": 2})
	allocate(map[string]int32{"http": 3}).Commit(func(Key) bool { return false })
	expect(map[string]int32{"http": 3})
	allocate(map[string]int32{"http": 4}).RollBack()
	expect(map[string]int32{"http": 3})
}
