package listener

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/listener-operator/listener-operator/internal/index"
)

// keys has the keys, such as hosts, that belong to one Listener each. A restart loses them: until a Listener is
// reconciled, the cache shows what it has. It is safe for concurrent use, but fields and set need the lock.
type keys struct {
	// reason is why Listeners are refused that need the key of another one.
	reason  string
	waiting *waiting

	mu      sync.Mutex
	holders map[string]*holding
	// held is what Listeners have that were reconciled since the start: what the cache shows of them may be older.
	held map[types.NamespacedName]*holding
}

// holding is what a Listener has. It does not change.
type holding struct {
	listener types.NamespacedName
	keys     sets.Set[string]
}

func newKeys(reason string, w *waiting) *keys {
	return &keys{reason: reason, waiting: w, holders: map[string]*holding{}, held: map[types.NamespacedName]*holding{}}
}

func (k *keys) heldBy(listener types.NamespacedName) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if held := k.held[listener]; held != nil {
		return held.keys.UnsortedList()
	}
	return nil
}

// set makes the wanted keys those of a Listener, in place of what it has by this process or, if that does not know the
// Listener, of what it had.
func (k *keys) set(listener types.NamespacedName, wanted, had sets.Set[string]) {
	before := k.held[listener]
	if before != nil {
		had = before.keys
	}
	after := &holding{listener, wanted}
	k.held[listener] = after
	for key := range had.Difference(wanted) {
		if k.holders[key] == before {
			delete(k.holders, key)
		}
		k.waiting.free(index.Refusal(k.reason, key))
	}
	for key := range wanted {
		k.holders[key] = after
	}
}

// forget removes a Listener that was deleted.
func (k *keys) forget(listener types.NamespacedName, had sets.Set[string]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(listener, nil, had)
	delete(k.held, listener)
}
