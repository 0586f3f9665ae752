package main

import (
	"fmt"
)

// printHints tells how to look around on the cluster.
func (d *demo) printHints() {
	fmt.Fprintf(d.out, `Every member of etcd was used from outside of the cluster, and kept its address when its Pod was replaced.

Look around:

  export KUBECONFIG=%s
  alias kubectl=%s

  kubectl get listenerclasses                      # the policies
  kubectl get lsn -A                               # Listeners and their addresses
  kubectl describe lsn -n demo listener-etcd-0     # its Service, node port and conditions
  kubectl get podlsn -n demo                       # what each Pod was told about itself
  kubectl get listeneroperator cluster -o yaml     # the operator's configuration and state
  kubectl exec -n demo etcd-0 -- sh -c 'cd /listener; ls -l; cat default-address/address; cat default-address/ports/client'

From outside, as a client that has no route to Pods and Services:

  go -C test run ./cmd/cluster client --name %s curl http://ADDRESS:PORT/version

Take everything down: make demo-down
`, d.cluster.Kubeconfig(), d.cluster.Kubectl(), clusterName)
}
