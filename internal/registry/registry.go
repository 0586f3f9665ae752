// Package registry knows what only one Listener can have, such as a node port, a host, or a listener of a Gateway, and
// who has it. It knows no object: those who observe them tell it what they show. A pass of a Listener reserves what it
// needs before it writes, and then commits or rolls back all of it.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// Key is something that only one holder can have.
type Key struct {
	Kind  listenersv1alpha1.WaitingKind
	Value string
}

// Number returns the key of a number, such as a node port.
func Number(kind listenersv1alpha1.WaitingKind, number int32) Key {
	return Key{kind, strconv.Itoa(int(number))}
}

// Keys returns the keys of values. Empty values have none.
func Keys(kind listenersv1alpha1.WaitingKind, values ...string) (keys []Key) {
	for _, value := range values {
		if value != "" {
			keys = append(keys, Key{kind, value})
		}
	}
	return keys
}

// Holder has keys: a Listener together with its Service, by the key of the Service, or another Service.
type Holder = types.NamespacedName

// Registry is safe for concurrent use. Who began to claim a key first has it until it no longer claims it.
type Registry struct {
	freed func(Key)

	mu     sync.Mutex
	claims map[Key][]claim
	// passes are what the passes of Listeners have reserved.
	passes map[Holder]holding
}

// claim is a holder that claims a key, for some reasons: objects that show it, and a reservation.
type claim struct {
	holder  Holder
	reasons int
}

// Held is a key, and what its holder uses it for, such as the name of a port, or "".
type Held struct {
	Key

	Use string
}

// For returns keys that are held for the same use.
func For(use string, keys ...Key) (all []Held) {
	for _, key := range keys {
		all = append(all, Held{key, use})
	}
	return all
}

// holding is small. A key may have several uses: a TCP and a UDP port share a number.
type holding []Held

func (h holding) keys() sets.Set[Key] {
	keys := sets.New[Key]()
	for _, held := range h {
		keys.Insert(held.Key)
	}
	return keys
}

// with returns the holding, and what another one has of further keys.
func (h holding) with(other holding) holding {
	all, keys := slices.Clone(h), h.keys()
	for _, held := range other {
		if !keys.Has(held.Key) && !slices.Contains(all, held) {
			all = append(all, held)
		}
	}
	return all
}

// without returns the holding without some keys.
func (h holding) without(drop func(Held) bool) holding {
	return slices.DeleteFunc(slices.Clone(h), drop)
}

// New returns a Registry. freed, which must not call the Registry, is called when a holder no longer claims a key.
func New(freed func(Key)) *Registry {
	return &Registry{freed: freed, claims: map[Key][]claim{}, passes: map[Holder]holding{}}
}

// Observe follows a change of an object of a holder, which showed some keys before it, and shows others after it.
func (r *Registry) Observe(holder Holder, before, after sets.Set[Key]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range after {
		r.claim(holder, key)
	}
	for key := range before {
		r.release(holder, key)
	}
}

// Forget gives back what the passes of a Listener that was deleted have reserved.
func (r *Registry) Forget(holder Holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserve(holder, nil)
}

// ReservesAny reports whether the passes of a Listener have reserved a key of a kind.
func (r *Registry) ReservesAny(holder Holder, kind listenersv1alpha1.WaitingKind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.passes[holder], func(held Held) bool { return held.Kind == kind })
}

// Range is a range of numbers. The Listeners of a namespace may have MaxPerNamespace together, or any if it is 0.
type Range struct {
	utilnet.PortRange

	Kind            listenersv1alpha1.WaitingKind
	MaxPerNamespace int
}

// Left returns, for each of the ranges, which may overlap, how many of its numbers have no holder.
func (r *Registry) Left(ranges []Range) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := make([]int, len(ranges))
	for i := range ranges {
		left[i] = ranges[i].Size
	}
	for key := range r.claims {
		number, _ := strconv.Atoi(key.Value) // no range has 0
		for i := range ranges {
			if key.Kind == ranges[i].Kind && ranges[i].Contains(number) {
				left[i]--
			}
		}
	}
	return left
}

func (r *Registry) claim(holder Holder, key Key) {
	claims := r.claims[key]
	if i := indexOf(claims, holder); i >= 0 {
		claims[i].reasons++
		return
	}
	r.claims[key] = append(claims, claim{holder, 1})
}

func (r *Registry) release(holder Holder, key Key) {
	claims := r.claims[key]
	i := indexOf(claims, holder)
	if i < 0 {
		return
	}
	if claims[i].reasons--; claims[i].reasons > 0 {
		return
	}
	if r.claims[key] = slices.Delete(claims, i, i+1); len(claims) == 1 {
		delete(r.claims, key)
	}
	r.freed(key)
}

func indexOf(claims []claim, holder Holder) int {
	return slices.IndexFunc(claims, func(c claim) bool { return c.holder == holder })
}

// reserve replaces what the passes of a holder have reserved. Whatever its uses, a reserved key is one reason.
func (r *Registry) reserve(holder Holder, now holding) {
	before, after := r.passes[holder].keys(), now.keys()
	for key := range after.Difference(before) {
		r.claim(holder, key)
	}
	if r.passes[holder] = now; len(now) == 0 {
		delete(r.passes, holder)
	}
	for key := range before.Difference(after) {
		r.release(holder, key)
	}
}

// otherHolder returns who has a key, if it is not this holder.
func (r *Registry) otherHolder(holder Holder, key Key) (other Holder, taken bool) {
	claims := r.claims[key]
	if len(claims) == 0 || claims[0].holder == holder {
		return Holder{}, false
	}
	return claims[0].holder, true
}

// Pass reserves what a pass of a Listener needs, in addition to what the Listener has had so far, until it is committed
// or rolled back. A pass that is neither leaves both reserved: the API server may have stored what was sent to it. A
// Listener has one pass at a time, which is not safe for concurrent use.
type Pass struct {
	registry       *Registry
	holder         Holder
	before, wanted holding
}

func (r *Registry) Begin(holder Holder) *Pass {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Pass{registry: r, holder: holder, before: r.passes[holder]}
}

// TakenError means that another holder has a key.
type TakenError struct {
	Key

	Holder Holder
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %s belongs to %s", e.Kind, e.Value, e.Holder)
}

// Holder returns the Listener.
func (p *Pass) Holder() Holder { return p.holder }

// HolderOf returns which other holder has a key, if one has it.
func (p *Pass) HolderOf(key Key) (other Holder, taken bool) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.registry.otherHolder(p.holder, key)
}

// Reserved returns the numbers of a kind that the Listener had before, by their use.
func (p *Pass) Reserved(kind listenersv1alpha1.WaitingKind) map[string]int32 {
	numbers := map[string]int32{}
	for _, held := range p.before {
		number, err := strconv.ParseInt(held.Value, 10, 32)
		// What was reserved last comes first.
		if _, known := numbers[held.Use]; !known && err == nil && held.Kind == kind {
			numbers[held.Use] = int32(number)
		}
	}
	return numbers
}

// Reserve reserves keys. The error is nil, or a *TakenError if another holder has one of them, and nothing changes.
func (p *Pass) Reserve(keys ...Key) error {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	for _, key := range keys {
		if other, taken := p.registry.otherHolder(p.holder, key); taken {
			return &TakenError{key, other}
		}
	}
	p.set(p.wanted.with(For("", keys...)))
	return nil
}

// Keep reserves those of the keys that no other holder has: the Listener has them already.
func (p *Pass) Keep(held ...Held) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.set(p.wanted.with(holding(held).without(func(held Held) bool {
		_, taken := p.registry.otherHolder(p.holder, held.Key)
		return taken
	})))
}

// Retain reserves what the Listener had before of a kind.
func (p *Pass) Retain(kind listenersv1alpha1.WaitingKind) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.set(p.wanted.with(p.before.without(func(held Held) bool { return held.Kind != kind })))
}

func (p *Pass) set(wanted holding) {
	p.wanted = wanted
	p.registry.reserve(p.holder, wanted.with(p.before))
}

func (r *Range) contains(value string) bool {
	number, err := strconv.Atoi(value)
	return err == nil && r.Contains(number)
}

// LimitError means that a namespace has as many numbers of a range as it may have.
type LimitError struct {
	Others int
}

func (e *LimitError) Error() string { return "the namespace has as many numbers as it may have" }

// Allocate reserves the chosen numbers, by their use, in place of others of their kind that the pass reserved.
// choose, which must not call the Registry, gets a function that reports whether another holder has a number. If there
// is an error, for example a *LimitError, nothing changes. What the Listener has already is not limited.
func (p *Pass) Allocate(from Range, choose func(taken func(int32) bool) (map[string]int32, error)) (
	map[string]int32, error) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	chosen, err := choose(func(number int32) bool {
		_, taken := p.registry.otherHolder(p.holder, Number(from.Kind, number))
		return taken
	})
	if err == nil {
		err = p.checkLimit(from, chosen)
	}
	if err != nil {
		return nil, err
	}
	wanted := p.wanted.without(func(held Held) bool { return held.Kind == from.Kind })
	for _, use := range slices.Sorted(maps.Keys(chosen)) {
		wanted = append(wanted, Held{Number(from.Kind, chosen[use]), use})
	}
	p.set(wanted)
	return chosen, nil
}

func (p *Pass) checkLimit(from Range, chosen map[string]int32) error {
	own, more := sets.New[Key](), false
	for _, number := range chosen {
		if key := Number(from.Kind, number); from.Contains(int(number)) {
			own.Insert(key)
			more = more || indexOf(p.registry.claims[key], p.holder) < 0
		}
	}
	if from.MaxPerNamespace == 0 || !more {
		return nil
	}
	others := p.ofNamespace(from).Difference(own)
	if others.Len()+own.Len() > from.MaxPerNamespace {
		return &LimitError{Others: others.Len()}
	}
	return nil
}

// ofNamespace returns the numbers of a range that other holders of the namespace claim.
func (p *Pass) ofNamespace(from Range) sets.Set[Key] {
	numbers := sets.New[Key]()
	other := func(c claim) bool { return c.holder.Namespace == p.holder.Namespace && c.holder != p.holder }
	for key, claims := range p.registry.claims {
		if key.Kind == from.Kind && from.contains(key.Value) && slices.ContainsFunc(claims, other) {
			numbers.Insert(key)
		}
	}
	return numbers
}

// Withdraw gives back those of the keys that the pass has reserved, and that the Listener did not have before.
func (p *Pass) Withdraw(reserved func(Key) bool) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.set(p.wanted.without(func(held Held) bool { return reserved(held.Key) }))
}

// RollBack gives back what the pass has reserved, and the Listener did not have before.
func (p *Pass) RollBack() { p.Withdraw(func(Key) bool { return true }) }

// Commit gives back what the Listener had before, and the pass has not reserved, unless it keeps it.
func (p *Pass) Commit(keeps func(Key) bool) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.before = p.before.without(func(held Held) bool { return !keeps(held.Key) })
	p.set(p.wanted)
}
