package main

import (
	"fmt"
	"path/filepath"
)

// printHints prints commands that show the objects on the cluster.
func (d *demo) printHints() {
	fmt.Fprintf(d.out, `A client outside the cluster used every member of etcd, and each kept its address when a Pod was replaced.

To look around on the cluster:

  export KUBECONFIG=%s
  alias kubectl=%s

  kubectl get listenerclasses                      # the policies
  kubectl get lsn -A                               # Listeners and their addresses
  kubectl describe lsn -n demo listener-etcd-0     # its Service, ports and conditions
  kubectl get podlsn -n demo                       # the addresses of each Pod's own volumes
  kubectl get listeneroperator cluster -o yaml     # the operator's configuration and state
  kubectl exec -n demo etcd-0 -- sh -c 'cd /listener; ls -l; cat default-address/address; cat default-address/ports/client'

To connect from outside the cluster, with no route to Pods and Services:

  go -C test run ./cmd/cluster client --name %s curl --cacert %s https://ADDRESS:PORT/version

To delete the cluster, and those of other demos: make demo-down

To see nodes, Pods, Listeners and addresses in your browser, as they change:

  make build-plugin && bin/kubectl-listener map --namespace demo
`, d.cluster.Kubeconfig(), d.cluster.Kubectl(), d.cluster.Name(), filepath.Join(filepath.Dir(d.cluster.Kubeconfig()), authorityFile))
}
