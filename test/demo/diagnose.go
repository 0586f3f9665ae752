package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// diagnosisLimit is how long looking for the cause of a failure may take.
const diagnosisLimit = 30 * time.Second

// diagnosisLines is how much of each command's output is shown: its last lines.
const diagnosisLines = 25

// diagnosis are the kubectl commands that show why something is not as it should be.
var diagnosis = []string{
	"get nodes",
	"describe listeneroperators",
	"--namespace=" + operatorNamespace + " get deployments,daemonsets,pods -o wide",
	"--namespace=" + operatorNamespace + " logs deployment/listener-operator --tail=8",
	"--namespace=" + etcdNamespace + " get statefulsets,pods,persistentvolumeclaims,listeners,podlisteners -o wide",
	"get events -A --field-selector=type=Warning --sort-by=.metadata.creationTimestamp",
}

// diagnose prints what somebody would look at who wants to know why the demo failed. What cannot be had is left out:
// the failure itself is reported elsewhere.
func (d *demo) diagnose(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisLimit)
	defer cancel()
	for _, command := range diagnosis {
		output, err := d.kubectl(ctx, strings.Fields(command)...)
		if err != nil {
			output = err.Error()
		}
		fmt.Fprintf(d.progress.writer, "\n$ kubectl %s\n%s\n", command, lastLines(output, diagnosisLines))
	}
	fmt.Fprintf(d.progress.writer, "\nlogs of the cluster's own programs: %s\n\n", d.cluster.LogDir())
}

// lastLines returns at most n lines of a text, from its end.
func lastLines(text string, n int) string {
	lines := slices.Collect(strings.Lines(strings.TrimSpace(text)))
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
