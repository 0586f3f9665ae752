// Package takeover keeps the operator from writing while Stackable's listener operator runs: both would write the
// same objects for ever, and serve the same sockets. Only the controller of ListenerOperator/cluster runs meanwhile,
// and reports what it waits for. The package must never change anything itself.
package takeover

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/listener-operator/listener-operator/internal/requests"
	"github.com/listener-operator/listener-operator/internal/stackable"
)

// Gate is a manager that starts what is added to it when Stackable's listener operator does not run. If that starts
// later, the Gate ends the process: the next one begins with the delay.
type Gate struct {
	manager.Manager
	end  context.CancelCauseFunc
	open chan struct{}
	// opened is whether it is. Reconcile alone uses it, and never runs concurrently.
	opened bool
	finder stackable.Finder
}

// SetupWithManager registers a Gate, which runs at the start, and when Pods of Stackable's listener operator change. It
// calls end to end the manager, and with it the process.
func SetupWithManager(mgr manager.Manager, end context.CancelCauseFunc) (*Gate, error) {
	g := &Gate{Manager: mgr, end: end, open: make(chan struct{})}
	return g, requests.Controller(mgr, "takeover", 1).
		WatchesRawSource(requests.OnlyAtStart()).
		Watches(&corev1.Pod{}, requests.Only(), builder.WithPredicates(stackable.Pods())).
		Complete(g)
}

// Reconcile opens the Gate, or ends the process if it is open already.
func (g *Gate) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	found, err := g.finder.Running(ctx, g.GetClient(), time.Now())
	if err != nil {
		return reconcile.Result{}, err
	}
	switch running := found.Names(); {
	case len(running) == 0 && g.opened:
	case len(running) == 0:
		g.opened = true
		close(g.open)
	case g.opened:
		g.end(fmt.Errorf("all controllers have to stop: Stackable's listener operator was started, by %s",
			strings.Join(running, ", ")))
	default:
		log.FromContext(ctx).Info("Waiting for the end of Stackable's listener operator", "workloads", running)
	}
	return reconcile.Result{RequeueAfter: found.Recheck}, nil
}

// Add implements manager.Manager. Only the leader starts the runnable, because only the leader opens the Gate.
func (g *Gate) Add(r manager.Runnable) error {
	return g.Manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-g.open:
			return r.Start(ctx)
		}
	}))
}
