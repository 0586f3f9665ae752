package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// row is the state of a member before and after one of the Pods was replaced.
type row struct {
	member        member
	before, after placement
}

// placement is where a member runs, and where clients reach it.
type placement struct {
	// node is the node of the member's Pod.
	node string
	// podIP is the address of its Pod, which clients outside the cluster cannot reach.
	podIP string
	// address is where clients outside the cluster reach the member.
	address string
	// start is how long the Pod took from creation to Running.
	start string
}

// rows returns a row for each member. Members and Pods are sorted by name.
func rows(before, after []member, podsBefore, podsAfter []corev1.Pod, start func(types.UID) string) []row {
	placementOf := func(found []member, pods []corev1.Pod, i int) placement {
		if i >= len(found) || i >= len(pods) {
			return placement{node: "-", podIP: "-", address: "-", start: "-"}
		}
		pod := &pods[i]
		return placement{node: pod.Spec.NodeName, podIP: pod.Status.PodIP, address: found[i].Address, start: start(pod.UID)}
	}
	all := make([]row, 0, len(before))
	for i, m := range before {
		all = append(all, row{member: m, before: placementOf(before, podsBefore, i), after: placementOf(after, podsAfter, i)})
	}
	return all
}

// table renders two lines for each member: before and after.
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
func (p placement) String() string {
	return strings.Join([]string{p.node, p.podIP, p.address, p.start}, "\t")
}
