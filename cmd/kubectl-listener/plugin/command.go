// Package plugin has the commands of the kubectl plugin `kubectl listener`. They read with the permissions of the user
// and say what they may not read. What they know about Listeners, claims and volumes is from the operator's own
// packages, and from what the operator reports in conditions and events: no rule of the operator may be repeated here.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/version"
)

// ErrProblem is the error of a command that was carried out, and has printed what is wrong. It needs no further
// message.
var ErrProblem = errors.New("something is wrong")

// Exit statuses, as those of `kubectl diff`.
const (
	// ExitProblem is that of ErrProblem.
	ExitProblem = 1
	// ExitError is that of a command that could not be carried out.
	ExitError = 2
)

// Formats of the flag --output. The empty string is text for people.
const (
	outputJSON = "json"
	outputYAML = "yaml"
)

// environment is what all commands share.
type environment struct {
	genericiooptions.IOStreams
	flags  *genericclioptions.ConfigFlags
	output string
}

// NewCommand returns the command `kubectl listener`. It writes to the streams, in colour only if the output is a
// terminal.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	e := &environment{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
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

		PersistentPreRunE: func(*cobra.Command, []string) error { return e.validate() },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	e.flags.AddFlags(root.PersistentFlags())
	e.complete(root, "namespace", e.namespaces)
	root.AddCommand(newWhyCommand(e), newDoctorCommand(e), newGetCommand(e), newReleaseCommand(e), newConnectCommand(e),
		newMigrateCommand(e))
	return root
}

func (e *environment) addOutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&e.output, "output", "o", "", "Format of the output: json or yaml. Defaults to text for people.")
	e.complete(cmd, "output", func(context.Context) []string { return []string{outputJSON, outputYAML} })
}

// validate returns an error for a format that does not exist.
func (e *environment) validate() error {
	if !slices.Contains([]string{"", outputJSON, outputYAML}, e.output) {
		return fmt.Errorf("--output is %q, and must be json or yaml", e.output)
	}
	return nil
}

// scheme returns a scheme with the types that commands read.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(listenersv1alpha1.AddToScheme(s))
	utilruntime.Must(operatorv1alpha1.AddToScheme(s))
	utilruntime.Must(backends.All().AddToScheme(s))
	return s
}

// Limits of the client's requests in a second. The defaults of client-go would make doctor wait on clusters with many
// namespaces.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 300
)

// client returns a client of the cluster that the kubeconfig and the flags name.
func (e *environment) client() (client.WithWatch, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

// namespace returns the namespace that the kubeconfig and the flags name.
func (e *environment) namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}
