// Package size measures the operator as a separate process against a real API server with many Listeners: how much
// memory it uses, how long it works after a start, and how many requests it sends. There are no kubelets and no
// controllers except the operator's: nodes, claims, volumes and Pods are only objects.
package size

import (
	"context"
	"errors"

	"github.com/listener-operator/listener-operator/test/bench/result"
	"github.com/listener-operator/listener-operator/test/cluster"
)

// Options configure Measure.
type Options struct {
	// Dir is a directory for the objects of the API server. A later call with the same directory adds those that are
	// missing, so that it can continue after an interrupt, and after a measurement with fewer Listeners.
	Dir string
	// Operator is the path of the operator's program.
	Operator string
	// Listeners is the number of Listeners, each with a Service, a claim, a volume and a Pod.
	Listeners int
	// Nodes is the number of nodes.
	Nodes int
	// Progress gets a line for each step.
	Progress *cluster.Progress
}

// Measure runs the operator twice: with the Listeners that are new, and again.
func Measure(ctx context.Context, o Options) (_ *result.Size, err error) {
	o.Progress.Printf("starting an API server")
	s, err := start(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	o.Progress.Printf("adding nodes up to %d, and Listeners with claims, volumes and Pods up to %d", o.Nodes, o.Listeners)
	if err := errors.Join(s.addNodes(ctx, o.Nodes), s.addListeners(ctx, o.Listeners, o.Nodes)); err != nil {
		return nil, err
	}
	size := &result.Size{Listeners: o.Listeners, Nodes: o.Nodes}
	for _, start := range []struct {
		what string
		run  *result.Run
	}{{"with new Listeners", &size.New}, {"again", &size.Again}} {
		o.Progress.Printf("starting the operator, %s", start.what)
		if *start.run, err = s.measure(ctx, o.Operator); err != nil {
			return nil, err
		}
	}
	return size, nil
}
