// Package command has what the commands of `kubectl listener` share: the flags, the client, the objects that arguments
// name, their completion, and the output.
package command

import (
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// ErrProblem is the error of a command that was carried out, and has printed what is wrong. It needs no further
// message.
var ErrProblem = errors.New("something is wrong")

// Formats of the flag --output. The empty string is text for people.
const (
	outputJSON = "json"
	outputYAML = "yaml"
)

// Environment is what all commands share.
type Environment struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// Output is the value of the flag --output.
	Output string
}

// NewEnvironment returns the environment of a command that writes to the streams.
func NewEnvironment(streams genericiooptions.IOStreams) *Environment {
	return &Environment{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
}

// AddFlags adds the flags that all commands have.
func (e *Environment) AddFlags(root *cobra.Command) {
	e.flags.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("namespace", e.CompleteNames(0, kindNamespace)) // the flag exists
}

// AddOutputFlag adds the flag --output.
func (e *Environment) AddOutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&e.Output, "output", "o", "", "Format of the output: json or yaml. Defaults to text for people.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputJSON, outputYAML}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error for a format that does not exist.
func (e *Environment) Validate() error {
	if !slices.Contains([]string{"", outputJSON, outputYAML}, e.Output) {
		return fmt.Errorf("--output is %q, and must be json or yaml", e.Output)
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

// Config returns the configuration of clients of the cluster that the kubeconfig and the flags name.
func (e *Environment) Config() (*rest.Config, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	return config, nil
}

// Examination returns an examination of that cluster.
func (e *Environment) Examination() (*check.Examination, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &check.Examination{Client: c}, nil
}

// Namespace returns the namespace that the kubeconfig and the flags name.
func (e *Environment) Namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}
