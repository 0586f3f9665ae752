package volume

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/message"
)

// pendingClaims are the claims that cannot be provisioned, by uid. It is safe for concurrent use; the zero value is
// empty.
type pendingClaims struct {
	mu     sync.Mutex
	claims map[types.UID]pendingClaim
}

type pendingClaim struct {
	key    types.NamespacedName
	reason string
}

func (c *pendingClaims) add(pvc *corev1.PersistentVolumeClaim, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claims == nil {
		c.claims = map[types.UID]pendingClaim{}
	}
	c.claims[pvc.UID] = pendingClaim{client.ObjectKeyFromObject(pvc), reason}
}

func (c *pendingClaims) remove(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, uid)
}

// list returns the claims that still exist and wait, of which it forgets the others. unbound reports whether a claim
// of this name and uid has no volume.
func (c *pendingClaims) list(unbound func(types.NamespacedName, types.UID) bool) []pendingClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.claims, func(uid types.UID, p pendingClaim) bool { return !unbound(p.key, uid) })
	return slices.Collect(maps.Values(c.claims))
}

// repeat requeues the claims that wait, twice an hour, so that the reason is reported again.
func (p *Provisioner) repeat(ctx context.Context, requeue func(*corev1.PersistentVolumeClaim)) {
	ticker := time.NewTicker(message.Repeat)
	defer ticker.Stop()
	claims := waitingClaims{reader: p.Client, requeue: requeue}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, c := range p.pending.list(p.unbound(ctx)) {
				claims.requeueUnbound(ctx, c.key)
			}
		}
	}
}
