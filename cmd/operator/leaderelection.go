package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/listener-operator/listener-operator/internal/names"
)

// electionTimes are the lease duration, renew deadline and retry period of leader election.
type electionTimes struct{ lease, renew, retry time.Duration }

// election returns the times of leader election: on OpenShift as its conventions for operators say, which let the
// leader survive the restart of the API server of a single node, otherwise the defaults of controller-runtime.
func election(openShift bool) electionTimes {
	if openShift {
		return electionTimes{lease: 137 * time.Second, renew: 107 * time.Second, retry: 26 * time.Second}
	}
	return electionTimes{lease: 15 * time.Second, renew: 10 * time.Second, retry: 2 * time.Second}
}

// newLock returns the lease for leader election. The leader is a Pod, not a process: a
// container that restarts continues with the lease of the one before, instead of waiting until it expires. The kubelet
// starts a container only when the one before has exited, so the two never run at the same time.
func newLock(config *rest.Config, options Options, times electionTimes) (resourcelock.Interface, error) {
	identity := resourcelock.ResourceLockConfig{Identity: options.PodName + "_" + options.PodUID}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.Namespace, names.Operator,
		identity, config, times.renew)
	if err != nil {
		return nil, fmt.Errorf("creating the lock for leader election: %w", err)
	}
	return lock, nil
}
