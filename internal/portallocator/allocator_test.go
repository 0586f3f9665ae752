package portallocator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errNone = errors.New("no number is left")

func nodePorts(o client.Object) sets.Set[int32] {
	numbers := sets.New[int32]()
	for _, p := range o.(*corev1.Service).Spec.Ports {
		numbers.Insert(p.NodePort)
	}
	return numbers
}

func service(name types.NamespacedName, numbers ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	for _, number := range numbers {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: number})
	}
	return s
}

// want returns a choice of numbers, if no other Listener has one of them.
func want(numbers ...int32) func(func(int32) bool) (map[string]int32, error) {
	return func(taken func(int32) bool) (map[string]int32, error) {
		chosen := map[string]int32{}
		for _, number := range numbers {
			if taken(number) {
				return nil, errNone
			}
			chosen[fmt.Sprint("port-", number)] = number
		}
		return chosen, nil
	}
}

// model is what the Listeners have, said as plainly as possible.
type model struct {
	objects, pending map[types.NamespacedName][]int32
	// gaveBack states that the last step allocated numbers in place of others, and gave them back.
	gaveBack bool
}

func (m *model) has(listener types.NamespacedName, number int32) bool {
	return slices.Contains(m.objects[listener], number) || slices.Contains(m.pending[listener], number)
}

func (m *model) all() map[string]bool {
	all := map[string]bool{}
	for _, having := range []map[types.NamespacedName][]int32{m.objects, m.pending} {
		for listener, numbers := range having {
			for _, number := range numbers {
				all[fmt.Sprint(number, " ", listener)] = true
			}
		}
	}
	return all
}

// inRange returns how many numbers of the range the Listeners of a namespace have.
func (m *model) inRange(namespace string, from Range) int {
	numbers := sets.New[int32]()
	for _, having := range []map[types.NamespacedName][]int32{m.objects, m.pending} {
		for listener, all := range having {
			for _, number := range all {
				if listener.Namespace == namespace && from.Contains(int(number)) {
					numbers.Insert(number)
				}
			}
		}
	}
	return numbers.Len()
}

// left returns how many numbers of each range nobody has.
func (m *model) left(ranges []utilnet.PortRange) (left []int) {
	held := sets.New[int32]()
	for _, having := range []map[types.NamespacedName][]int32{m.objects, m.pending} {
		for _, numbers := range having {
			held.Insert(numbers...)
		}
	}
	for _, r := range ranges {
		count := 0
		for number := r.Base; number < r.Base+r.Size; number++ {
			if !held.Has(int32(number)) { //nolint:gosec // at most 101
				count++
			}
		}
		left = append(left, count)
	}
	return left
}

// TestAllocatorFollowsItsModel takes random steps, and compares the Allocator with its model after each.
func TestAllocatorFollowsItsModel(t *testing.T) {
	from := Range{PortRange: utilnet.PortRange{Base: 1, Size: 6}, MaxPerNamespace: 3}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be the same in each run
		requested := false
		a := New(nodePorts, func() { requested = true })
		m := &model{objects: map[types.NamespacedName][]int32{}, pending: map[types.NamespacedName][]int32{}}
		for step := range 60 {
			listener := types.NamespacedName{Namespace: []string{"a", "b"}[random.IntN(2)], Name: fmt.Sprint(random.IntN(3))}
			before := m.all()
			requested = false
			what := m.step(t, a, random, listener, from)
			after := m.all()
			freed := false
			for number := range before {
				freed = freed || !after[number]
			}
			if freed && !requested || !freed && !m.gaveBack && requested {
				t.Fatalf("seed %d, step %d, %s: others are requested: %t", seed, step, what, requested)
			}
			got := map[string]bool{}
			for number, holders := range a.holders {
				for holder := range holders {
					got[fmt.Sprint(number, " ", holder)] = true
				}
			}
			if diff := cmp.Diff(after, got); diff != "" {
				t.Fatalf("seed %d, step %d, %s (-want +got):\n%s", seed, step, what, diff)
			}
			ranges := []utilnet.PortRange{from.PortRange, {Base: 4, Size: 10}, {Base: 100, Size: 2}}
			if diff := cmp.Diff(m.left(ranges), a.Left(ranges)); diff != "" {
				t.Fatalf("seed %d, step %d, %s: left (-want +got):\n%s", seed, step, what, diff)
			}
		}
	}
}

// step takes a random step with a Listener, and describes it.
func (m *model) step(t *testing.T, a *Allocator, random *rand.Rand, listener types.NamespacedName, from Range) string {
	t.Helper()
	number := int32(random.IntN(8)) //nolint:gosec // at most 7
	m.gaveBack = false
	switch random.IntN(4) {
	case 0:
		was := m.objects[listener]
		m.objects[listener] = []int32{number}
		m.settle(listener)
		a.replace(service(listener, was...), service(listener, number))
		return fmt.Sprintf("the object of %s gets %d instead of %v", listener, number, was)
	case 1:
		was := m.objects[listener]
		delete(m.objects, listener)
		delete(m.pending, listener)
		a.replace(service(listener, was...), nil)
		return fmt.Sprintf("the object of %s with %v is deleted", listener, was)
	default:
		return m.allocate(t, a, listener, number, from, random.IntN(2) == 0)
	}
}

// settle forgets pending numbers that the object has.
func (m *model) settle(listener types.NamespacedName) {
	if !slices.ContainsFunc(m.pending[listener], func(n int32) bool { return !slices.Contains(m.objects[listener], n) }) {
		delete(m.pending, listener)
	}
}

// allocate allocates a number, and gives it back if it is rejected.
func (m *model) allocate(t *testing.T, a *Allocator, listener types.NamespacedName, number int32, from Range, rejected bool) string {
	t.Helper()
	taken := false
	for _, having := range []map[types.NamespacedName][]int32{m.objects, m.pending} {
		for other, numbers := range having {
			taken = taken || other != listener && slices.Contains(numbers, number)
		}
	}
	was := m.pending[listener]
	limited := false
	if !taken && !m.has(listener, number) && from.Contains(int(number)) {
		m.pending[listener] = []int32{number} // in place of those that were pending
		own := slices.DeleteFunc(slices.Clone(m.objects[listener]), func(n int32) bool { return n != number })
		objects := m.objects[listener]
		m.objects[listener] = own
		limited = m.inRange(listener.Namespace, from) > from.MaxPerNamespace
		m.objects[listener] = objects
		m.pending[listener] = was
	}
	before := a.Pending(listener)
	_, err := a.Allocate(listener, from, want(number))
	var limit *LimitError
	what := fmt.Sprintf("%s allocates %d, rejected: %t", listener, number, rejected)
	switch {
	case errors.Is(err, errNone) != taken, errors.As(err, &limit) != limited:
		t.Fatalf("%s: %v", what, err)
	case err != nil:
		return what
	}
	m.pending[listener] = nil
	if !slices.Contains(m.objects[listener], number) {
		m.pending[listener] = []int32{number}
	}
	if rejected {
		a.SetPending(listener, before)
		m.gaveBack = true
		m.pending[listener] = was
	}
	return what
}
