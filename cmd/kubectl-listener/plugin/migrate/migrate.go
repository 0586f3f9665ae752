// Package migrate has the command `kubectl listener migrate`, which plans the move from Stackable's listener operator.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Plan the move from Stackable's listener operator to this one",
		Long: `Plan the move from Stackable's listener operator to this one, and the way back.

The command shows what there is of the other operator, whether Helm or the Operator Lifecycle Manager installed it, its
settings and which of them are carried over, and each Listener, class and claim that this operator treats differently.
Then it prints the steps in their order, with commands for this cluster. The exit status is 1 if something should be
decided before.

The command only reads, with or without --dry-run: the steps are for an administrator to take, because each of them can
be checked before the next one.

It needs the permissions of a cluster administrator. What you may not read is marked with ?.
docs/moving-over.md has the whole procedure.`,
		Example: `  # What would change, and which are the steps?
  kubectl listener migrate --dry-run

  # Only what needs a decision, for programs
  kubectl listener migrate --dry-run --output json | jq '.findings[] | select(.state == "Failed")'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dryRun {
				return errors.New("--dry-run=false: the command changes nothing; run it without the flag, and take the steps that it prints")
			}
			x, err := e.Examination()
			if err != nil {
				return err
			}
			result := (&migration{Examination: x, missing: map[string]any{}}).plan(cmd.Context())
			return e.Print(x, result, func() { result.write(e.Out) })
		},
	}
	e.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", true, "Change nothing. There is no other mode.")
	return cmd
}

// plan is the result of migrate. Its JSON is part of the output.
type plan struct {
	*check.Report
	// Steps are the steps of the move. Empty if there is nothing to move.
	Steps []step `json:"steps"`
	// Rollback are the steps back. Empty if there is nothing to move.
	Rollback []step `json:"rollback"`
}

// step is something to do.
type step struct {
	Title string `json:"title"`
	// Commands may be empty.
	Commands []string `json:"commands,omitempty"`
}

// migration plans a move. The fields are what was found.
type migration struct {
	*check.Examination
	other other
	// installed is set if this operator is. config is nil if it does not exist or cannot be read.
	installed bool
	config    *operatorv1alpha1.ListenerOperator
	classes   []listenersv1alpha1.ListenerClass
	listeners []listenersv1alpha1.Listener
	// webhook is set if definitions refer to the conversion webhook of the other operator.
	webhook bool
	// missing are settings of the other operator that this one neither finds nor has, as an object with these fields.
	missing map[string]any
}

// plan observes the cluster, compares, and decides on the steps. A later part uses what an earlier one found.
func (m *migration) plan(ctx context.Context) *plan {
	for _, part := range []func(context.Context){
		m.observeOther, m.observeOwn, m.observeListeners, m.compareDefinitions, m.compareStorage, m.compareSettings, m.compareClasses,
		m.compareListeners, m.compareClaims,
	} {
		part(ctx)
	}
	result := &plan{Report: &m.Report, Steps: m.steps(), Rollback: []step{}}
	if len(result.Steps) > 0 {
		result.Rollback = m.rollback()
	}
	return result
}

// observeListeners reads classes and Listeners. A cluster that does not serve them has none.
func (m *migration) observeListeners(ctx context.Context) {
	var classes listenersv1alpha1.ListenerClassList
	var listeners listenersv1alpha1.ListenerList
	m.FollowAll(ctx, check.Finding{Kind: "ListenerClass"}, &classes)
	m.FollowAll(ctx, check.Finding{Kind: "Listener"}, &listeners)
	m.classes, m.listeners = classes.Items, listeners.Items
}

func (p *plan) write(out io.Writer) {
	command.WriteChecksOr(out, p.Report, "Nothing needs a decision.")
	if len(p.Steps) == 0 {
		fmt.Fprintln(out, "There is nothing to move. docs/moving-over.md has the way back to the other operator.")
	}
	writeSteps(out, "In this order", p.Steps)
	writeSteps(out, "And back", p.Rollback)
}

func writeSteps(out io.Writer, title string, steps []step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", title)
	for i, s := range steps {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, command.Printable(s.Title))
		for _, c := range s.Commands {
			fmt.Fprintf(out, "     %s\n", command.Printable(c))
		}
	}
}
