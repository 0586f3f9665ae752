// Package command has what the commands of `kubectl listener` share: the flags, the client, the objects that arguments
// name, their completion, and the output.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// ErrProblem is the error of a command that was carried out, and has printed what is wrong. It needs no further
// message.
var ErrProblem = errors.New("something is wrong")

// formats are the values of the flag --output. Without it, the output is text for people.
var formats = []string{"json", "yaml"}

// Environment is what all commands share.
type Environment struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// Output is the value of the flag --output.
	Output string
	// from is the value of the flag --from.
	from string
}

// NewEnvironment returns the environment of the commands below root, to which it adds the flags that all of them have.
func NewEnvironment(streams genericiooptions.IOStreams, root *cobra.Command) *Environment {
	e := &Environment{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
	e.flags.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("namespace", e.CompleteNames(0, kindNamespace)) // the flag exists
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if e.Output != "" && !slices.Contains(formats, e.Output) {
			return fmt.Errorf("--output is %q, and must be json or yaml", e.Output)
		}
		return nil
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	return e
}

// AddOutputFlag adds the flag --output.
func (e *Environment) AddOutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&e.Output, "output", "o", "", "Format of the output: json or yaml. Defaults to text for people.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// AddFromFlag adds the flag --from.
func (e *Environment) AddFromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.from, "from", "", "Directory or archive that kubectl listener gather wrote, to read instead of the cluster.")
}

// Config returns the configuration of clients of the cluster that the kubeconfig and the flags name.
func (e *Environment) Config() (*rest.Config, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 300 // the defaults would make doctor wait on clusters with many namespaces
	return config, nil
}

// Client returns a client of that cluster.
func (e *Environment) Client() (client.WithWatch, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

// newScheme returns a scheme with the types that commands read.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), listenersv1alpha1.AddToScheme(scheme),
		operatorv1alpha1.AddToScheme(scheme), backends.All().AddToScheme(scheme)))
	return scheme
}

// Examination returns an examination of that cluster, or of what was gathered.
func (e *Environment) Examination() (*check.Examination, error) {
	if e.from != "" {
		c, index, err := source.Open(e.from, newScheme())
		return &check.Examination{Client: c, Report: check.Report{Gathered: index.Time.UTC()}}, err
	}
	c, err := e.Client()
	return &check.Examination{Client: c}, err
}

// Examine returns the function of a command that examines the cluster, and prints the report. text writes it as text.
func (e *Environment) Examine(
	text func(io.Writer, *check.Report), examine func(ctx context.Context, x *check.Examination, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		x, err := e.Examination()
		if err != nil {
			return err
		}
		if err := examine(cmd.Context(), x, args); err != nil {
			return err
		}
		return e.Print(x, &x.Report, func() {
			if !x.Gathered.IsZero() {
				fmt.Fprintf(e.Out, "As gathered at %s:\n\n", x.Gathered.Format(time.RFC3339))
			}
			text(e.Out, &x.Report)
		})
	}
}

// Namespace returns the namespace that the kubeconfig and the flags name.
func (e *Environment) Namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}
