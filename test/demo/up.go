package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/metallb"
	"github.com/listener-operator/listener-operator/test/install"
)

// nodes is the number of the cluster's nodes: one for each member of etcd.
const nodes = 3

// demo is the state that all phases share.
type demo struct {
	variant
	cluster *cluster.Cluster
	client  client.WithWatch
	// out gets the results, messages the progress.
	out, messages io.Writer
	progress      *cluster.Progress
}

// up runs the whole demo. When it is run again, it creates only what is missing, and repeats the walk-through.
func up(ctx context.Context, v variant, out, messages io.Writer) error {
	d, err := start(ctx, v, out, messages)
	if err != nil {
		return err
	}
	err = d.runPhases(ctx)
	if err != nil && ctx.Err() == nil {
		d.diagnose(ctx)
	}
	return err
}

// runPhases runs the phases that need the cluster.
func (d *demo) runPhases(ctx context.Context) error {
	if err := install.Operator(ctx, d.cluster, d.progress); err != nil {
		return fmt.Errorf("installing the operator: %w", err)
	}
	if d.loadBalancer {
		if err := d.installLoadBalancer(ctx); err != nil {
			return fmt.Errorf("installing the load balancer: %w", err)
		}
	}
	times, err := d.timePods(ctx)
	if err != nil {
		return err
	}
	defer times.stop()
	pods, err := d.startEtcd(ctx)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	if err := d.walkThrough(ctx, pods, times); err != nil {
		return fmt.Errorf("using etcd from outside: %w", err)
	}
	d.printHints()
	return nil
}

// installLoadBalancer installs a load balancer with a pool of addresses that the client outside reaches.
func (d *demo) installLoadBalancer(ctx context.Context) error {
	d.progress.Printf("building and installing the load balancer MetalLB")
	if err := metallb.Install(ctx, d.cluster, indented{d.messages}); err != nil {
		return err
	}
	return metallb.SetPool(ctx, d.cluster, "all", nil, d.cluster.FreeIP(1)+"-"+d.cluster.FreeIP(cluster.MaxFree), d.cluster.FreeIPv6(1)+"-"+d.cluster.FreeIPv6(cluster.MaxFree))
}

// start brings up the cluster.
func start(ctx context.Context, v variant, out, messages io.Writer) (*demo, error) {
	d := &demo{variant: v, out: out, messages: messages, progress: cluster.NewProgress(messages)}
	d.progress.Printf("bringing up a cluster of %d nodes, and a client outside of it", nodes)
	var err error
	d.cluster, err = cluster.Up(ctx, cluster.Options{Name: v.cluster, Nodes: nodes, Progress: indented{messages}})
	if err != nil {
		return nil, err
	}
	config, err := d.cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), listenersv1alpha1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme),
	); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	d.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return d, nil
}

// indented writes lines as details of the step before. It gets whole lines only.
type indented struct{ io.Writer }

func (i indented) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if _, err := fmt.Fprintf(i.Writer, "       %s", line); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}

// kubectl runs kubectl on the cluster.
func (d *demo) kubectl(ctx context.Context, args ...string) (string, error) {
	return install.Kubectl(ctx, d.cluster, args...)
}
