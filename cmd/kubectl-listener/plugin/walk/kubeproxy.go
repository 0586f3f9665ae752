package walk

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/columns"
)

// primary are the first address of a node, and the first one of the other family, in the options of kube-proxy.
const primary = "primary"

// nodePorts warns of published addresses of nodes at which kube-proxy serves no node ports, if its configuration is
// where kubeadm writes it. It knows nothing about other addresses, from which the network may translate.
func (w *Walk) nodePorts(ctx context.Context, listener *listenersv1alpha1.Listener, service *corev1.Service) {
	if !w.asked || service == nil || service.Spec.Type != corev1.ServiceTypeNodePort || listener.Status == nil {
		return
	}
	var nodes corev1.NodeList
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}}
	if w.Get(ctx, client.ObjectKeyFromObject(config), config) != check.Present || w.List(ctx, &nodes) != check.Present {
		return
	}
	ranges := servedRanges(config.Data["config.conf"])
	var unserved []string
	for node := range check.Each(nodes.Items) {
		for _, address := range unservedAddresses(node, ranges) {
			if slices.ContainsFunc(listener.Status.IngressAddresses,
				func(a listenersv1alpha1.IngressAddress) bool { return a.Address == address }) {
				unserved = append(unserved, address)
			}
		}
	}
	if len(unserved) > 0 {
		w.Add(check.Finding{Kind: "ListenerClass", Name: listener.Class()}.Warning("",
			fmt.Sprintf("publishes %s, where kube-proxy serves no node ports, because its nodePortAddresses are %s: "+
				"extend them, or publish other addresses: docs/classes.md#which-address-of-a-node",
				columns.Names(unserved), strings.Join(ranges, ", "))))
	}
}

// servedRanges returns at which addresses of nodes kube-proxy serves node ports, or nil if at all.
func servedRanges(config string) []string {
	var proxy struct {
		Mode              string   `json:"mode"`
		NodePortAddresses []string `json:"nodePortAddresses"`
	}
	if yaml.Unmarshal([]byte(config), &proxy) == nil && len(proxy.NodePortAddresses) == 0 && proxy.Mode == "nftables" {
		return []string{primary}
	}
	return proxy.NodePortAddresses
}

// unservedAddresses returns the internal addresses of a node that are in none of the ranges of kube-proxy.
func unservedAddresses(node *corev1.Node, ranges []string) (unserved []string) {
	families := map[bool]bool{}
	for _, a := range node.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type != corev1.NodeInternalIP || err != nil || len(ranges) == 0 {
			continue
		}
		first := !families[ip.Is4()]
		families[ip.Is4()] = true
		if !slices.ContainsFunc(ranges, func(r string) bool {
			prefix, err := netip.ParsePrefix(r)
			return r == primary && first || err == nil && prefix.Contains(ip)
		}) {
			unserved = append(unserved, a.Address)
		}
	}
	return unserved
}
