// Package plugin has the commands of the kubectl plugin `kubectl listener`. They read with the permissions of the user
// and say what they may not read. What they know about Listeners, claims and volumes is from the operator's own
// packages, and from what the operator reports in conditions and events: no rule of the operator may be repeated here.
package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/binding"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/ca"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/connect"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/doctor"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/gather"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/get"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/migrate"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/release"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/topology"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/why"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/version"
)

// NewCommand returns the command with all others below it. They know the backends of the list.
func NewCommand(streams genericiooptions.IOStreams, list backends.List) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-listener",
		Short: "Show what is wrong with listener volumes, and what to do about it",
		Long: `Show what is wrong with listener volumes, Listeners and the installation of the listener operator, and what to do
about it.

The exit status is 0 if nothing is wrong, 1 if something is wrong, which the command has printed, and 2 if the command
could not be carried out.`,
		Version:       version.Version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl listener"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	e := command.NewEnvironment(streams, list, root)
	root.AddCommand(why.NewCommand(e), doctor.NewCommand(e), get.NewCommand(e), release.NewCommand(e),
		connect.NewCommand(e), ca.NewCommand(e),
		binding.NewCommand(e), migrate.NewCommand(e), gather.NewCommand(e), topology.NewCommand(e))
	for _, c := range root.Commands() {
		c.Long = version.Link(c.Long)
		if c.ValidArgsFunction == nil {
			c.Args, c.ValidArgsFunction = cobra.NoArgs, cobra.NoFileCompletions
		}
	}
	return root
}
