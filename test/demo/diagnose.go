package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/listener-operator/listener-operator/test/install"
)

// diagnosisTimeout is how long the commands may take.
const diagnosisTimeout = 30 * time.Second

// diagnosisLines is the number of lines, from the end of each command's output, that are shown.
const diagnosisLines = 25

// diagnosis are the kubectl commands that show why the demo failed.
var diagnosis = []string{
	"get nodes",
	"describe listeneroperators",
	"--namespace=" + install.Namespace + " get deployments,daemonsets,pods -o wide",
	"--namespace=" + install.Namespace + " logs deployment/listener-operator --tail=8",
	"--namespace=" + etcdNamespace + " get statefulsets,pods,persistentvolumeclaims,listeners,podlisteners -o wide",
	"get events -A --field-selector=type=Warning --sort-by=.metadata.creationTimestamp",
}

// diagnose prints the output of commands that show why the demo failed. It reports no error of its own: the caller
// reports the failure itself.
func (d *demo) diagnose(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	for _, command := range diagnosis {
		output, err := d.kubectl(ctx, strings.Fields(command)...)
		if err != nil {
			output = err.Error()
		}
		fmt.Fprintf(d.messages, "\n$ kubectl %s\n%s\n", command, lastLines(output, diagnosisLines))
	}
	fmt.Fprintf(d.messages, "\nlogs of the cluster's components: %s\n\n", d.cluster.LogDir())
}

// lastLines returns at most n lines of a text, from its end.
func lastLines(text string, n int) string {
	lines := slices.Collect(strings.Lines(strings.TrimSpace(text)))
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
