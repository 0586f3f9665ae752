// Package topology has the command `kubectl listener map`, a page with a picture of nodes, Pods, Listeners and their
// addresses. The page is served to the user alone, and only reads. What is wrong has the words of package walk.
package topology

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
)

// outputSVG is the value of the flag --output for a file.
const outputSVG = "svg"

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	var address, output string
	var allNamespaces bool
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Show nodes, Pods, Listeners and addresses as a picture that follows the cluster",
		Long: `Show nodes, Pods, Listeners and addresses as a picture that follows the cluster.

The command serves a page to the browsers of this machine until it is interrupted, and prints the address of the page.
The page reads with your permissions and changes nothing. Its address contains a secret, without which it cannot be
opened. It marks what is wrong in the words of kubectl listener why. Select a Pod or a Listener to see its path, the files in its
volumes, and whether its addresses can be reached from here.

With --output svg, the command writes the picture as it is now, and ends.`,
		Example: `  # The Listeners of a namespace
  kubectl listener map --namespace shop

  # All namespaces, at a port of your choice
  kubectl listener map --all-namespaces --address 127.0.0.1:8080

  # A picture for a document
  kubectl listener map --namespace shop --output svg > shop.svg`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != outputSVG {
				return fmt.Errorf("--output is %q, and must be svg", output)
			}
			at, err := loopback(address)
			if err != nil {
				return err
			}
			namespace, title := "", "Listeners of all namespaces"
			if !allNamespaces {
				if namespace, err = e.Namespace(); err != nil {
					return err
				}
				title = "Listeners of namespace " + command.Printable(namespace)
			}
			c, err := e.Client()
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(logr.NewContext(cmd.Context(), logr.Discard()))
			defer stop()
			s := newServer(source.Watch(ctx, c, namespace), title)
			if err := s.observe(ctx); err != nil {
				return err
			}
			if output == "" {
				return s.run(ctx, at, e.Out)
			}
			if _, err := e.Out.Write(s.graph.lay("", false).svg(title)); err != nil {
				return err
			}
			if len(s.graph.problems()) > 0 {
				return command.ErrProblem
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Write the picture and end: svg. Defaults to serving a page.")
	cmd.Flags().StringVar(&address, "address", "127.0.0.1:0", "Loopback address and port to serve the page at. Port 0 is any free port.")
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "Show the Listeners of all namespaces.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputSVG}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// loopback returns an address to listen at, which nobody outside this machine can reach.
func loopback(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--address: %w", err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return "", fmt.Errorf("--address is %q, and must be a loopback address such as 127.0.0.1:8080: the page reads with your permissions, "+
			"and others could reach it at any other address", address)
	}
	return net.JoinHostPort(host, port), nil
}
