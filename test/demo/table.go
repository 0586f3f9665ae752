package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// row is what the demo saw of a member, before and after one of the Pods was replaced.
type row struct {
	member        member
	before, after sight
}

// sight is where a member was at some time.
type sight struct {
	// node is the node of the member's Pod.
	node string
	// podIP is the address of its Pod, which is of no use outside of the cluster.
	podIP string
	// address is where clients outside find the member.
	address string
	// start is how long the Pod took from its creation until it ran.
	start string
}

// rows puts together what is known of members and Pods, which are both sorted by name.
func rows(before, after []member, podsBefore, podsAfter []corev1.Pod, start func(types.UID) string) []row {
	see := func(found []member, pods []corev1.Pod, i int) sight {
		if i >= len(found) || i >= len(pods) {
			return sight{node: "-", podIP: "-", address: "-", start: "-"}
		}
		pod := &pods[i]
		return sight{node: pod.Spec.NodeName, podIP: pod.Status.PodIP, address: found[i].Address, start: start(pod.UID)}
	}
	all := make([]row, 0, len(before))
	for i, m := range before {
		all = append(all, row{member: m, before: see(before, podsBefore, i), after: see(after, podsAfter, i)})
	}
	return all
}

// table renders rows for people: two lines for a member, and what changed is what differs between them.
func table(rows []row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tPOD\tWHEN\tNODE\tPOD IP\tADDRESS FOR CLIENTS\tCREATED TO RUNNING")
	for _, r := range rows {
		fmt.Fprintf(w, "%x\t%s\tbefore\t%s\n", r.member.ID, r.member.Name, r.before)
		fmt.Fprintf(w, "\t\tafter\t%s\n", r.after)
	}
	_ = w.Flush() // to memory
	return text.String()
}

// String renders the last columns of the table.
func (s sight) String() string {
	return strings.Join([]string{s.node, s.podIP, s.address, s.start}, "\t")
}
