package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// policyQueue is the number of the netfilter queue in which connections wait until NetworkPolicies are evaluated.
const policyQueue = 100

// queueConnections adds the rules by which a node's connections are queued. They are rules of iptables: not every
// kernel has the expression for nftables.
func (c *Cluster) queueConnections(ctx context.Context, node int) error {
	pods := c.subnets.nodePods(node)
	for program, prefix := range map[string]netip.Prefix{"iptables-restore": pods.V4, "ip6tables-restore": pods.V6} {
		rules, err := render("network-policies.rules", map[string]any{"Pods": prefix, "Queue": policyQueue})
		if err != nil {
			return err
		}
		if _, err := c.node(node).exec(ctx, rules, program); err != nil {
			return fmt.Errorf("queueing connections: %w", err)
		}
	}
	return nil
}

// policiesEnforced reports whether a node enforces NetworkPolicies.
func (c *Cluster) policiesEnforced(node int) (bool, error) {
	holder, err := c.node(node).running()
	if err != nil {
		return false, err
	}
	// Only this file shows that the queue is read, which is when the NetworkPolicies are known.
	queues, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netfilter/nfnetlink_queue", holder.pid))
	if err != nil {
		return false, fmt.Errorf("reading the netfilter queues of %s: %w", c.NodeName(node), err)
	}
	for line := range strings.Lines(string(queues)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == strconv.Itoa(policyQueue) {
			return true, nil
		}
	}
	return false, nil
}
