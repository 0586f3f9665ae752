// Package command has what the commands of `kubectl listener` share: the flags, the client, the objects that arguments
// name, their completion, and the output.
package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/lookup"
)

// ErrProblem is the error of a command that has printed what is wrong.
var ErrProblem = errors.New("something is wrong")

// ErrNotServed is the error of a command that needs Listeners.
var ErrNotServed = errors.New("the cluster does not serve Listeners: see whether the listener operator is installed: " +
	"kubectl listener doctor")

// formats are the values of the flag --output. Without it, the output is text for people.
var formats = []string{"json", "yaml"}

type Environment struct {
	genericiooptions.IOStreams
	Backends backends.List
	flags    *genericclioptions.ConfigFlags
	Output   string
	from     string
}

// NewEnvironment returns the environment of the commands below root, to which it adds the flags that all of them have.
func NewEnvironment(streams genericiooptions.IOStreams, list backends.List, root *cobra.Command) *Environment {
	e := &Environment{IOStreams: streams, Backends: list, flags: genericclioptions.NewConfigFlags(true)}
	e.flags.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("namespace", e.CompleteNames(0, kindNamespace)) // the flag exists
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	return e
}

// AddOutputFlag adds the flag --output, for which a command may have further formats.
func (e *Environment) AddOutputFlag(cmd *cobra.Command, further ...string) {
	all := append(slices.Clone(formats), further...)
	cmd.Flags().StringVarP(&e.Output, "output", "o", "",
		"Format of the output: "+strings.Join(all, " or ")+". Defaults to text for people.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if e.Output != "" && !slices.Contains(all, e.Output) {
			return fmt.Errorf("--output is %q, and must be %s", e.Output, strings.Join(all, " or "))
		}
		return nil
	}
}

func (e *Environment) AddFromFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.from, "from", "",
		"Directory or archive that kubectl listener gather wrote, to read instead of the cluster.")
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

func (e *Environment) Client() (client.WithWatch, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: e.newScheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

func (e *Environment) newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		listenersv1alpha1.AddToScheme(scheme), operatorv1alpha1.AddToScheme(scheme), e.Backends.AddToScheme(scheme)))
	return scheme
}

func (e *Environment) Examination() (*check.Examination, error) {
	if e.from != "" {
		c, index, err := source.Open(e.from, e.newScheme())
		report := check.Report{Gathered: index.Time.UTC()}
		return &check.Examination{Client: c, Backends: e.Backends, Report: report}, err
	}
	c, err := e.Client()
	return &check.Examination{Client: c, Backends: e.Backends}, err
}

// Examine returns the function of a command that examines the cluster, and prints the report. text writes it as text.
// The error is ErrProblem if something is wrong.
func (e *Environment) Examine(
	text func(io.Writer, *check.Report), examine func(ctx context.Context, x *check.Examination, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		x, err := e.Examination()
		if err != nil {
			return err
		}
		if err := examine(cmd.Context(), x, args); err != nil || x.Err != nil {
			return cmp.Or(err, x.Err)
		}
		x.Conclude()
		err = e.Encode(&x.Report, func() {
			if !x.Gathered.IsZero() {
				fmt.Fprintf(e.Out, "As gathered at %s:\n\n", x.Gathered.Format(time.RFC3339))
			}
			text(e.Out, &x.Report)
		})
		if err == nil && x.Problem != nil {
			return ErrProblem
		}
		return err
	}
}

func (e *Environment) Namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

type Kind = schema.GroupVersionKind

var (
	KindPod       = corev1.SchemeGroupVersion.WithKind("Pod")
	KindClaim     = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	KindListener  = listenersv1alpha1.GroupVersion.WithKind("Listener")
	kindNamespace = corev1.SchemeGroupVersion.WithKind("Namespace")
)

func Workloads() []Kind {
	apps := appsv1.SchemeGroupVersion.WithKind
	return []Kind{apps("StatefulSet"), apps("Deployment"), apps("DaemonSet"), apps("ReplicaSet"),
		batchv1.SchemeGroupVersion.WithKind("Job")}
}

// Find returns the object that the arguments name: KIND/NAME, KIND NAME, or NAME alone, which is the first object of
// that name among the kinds. The object is of a kind of the list.
func (e *Environment) Find(ctx context.Context, c client.Client, args []string, kinds ...Kind) (client.Object, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	if e.from != "" { // workloads are not gathered
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return slices.Contains(Workloads(), k) })
	}
	given, name, found := strings.Cut(strings.Join(args, "/"), "/")
	if !found {
		name = given
	} else if kinds, err = e.only(c, given, kinds); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		empty, err := c.Scheme().New(k)
		if err != nil {
			return nil, err
		}
		o, err := lookup.Get(ctx, c, types.NamespacedName{Namespace: namespace, Name: name}, empty.(client.Object))
		switch {
		case meta.IsNoMatchError(err):
			return nil, ErrNotServed
		case err != nil || o != nil:
			return o, err
		}
	}
	if e.from != "" {
		return nil, fmt.Errorf("no %s %q of namespace %s was gathered", join(kinds), name, namespace)
	}
	return nil, fmt.Errorf("namespace %s has no %s %q", namespace, join(kinds), name)
}

// only returns the kind of the list that an argument names, as kubectl accepts it. Kinds of other groups may have it,
// too.
func (e *Environment) only(c client.Client, given string, kinds []Kind) ([]Kind, error) {
	i := slices.IndexFunc(kinds, func(k Kind) bool {
		return strings.EqualFold(strings.TrimSuffix(given, "s"), check.Argument(k.Kind))
	})
	if i < 0 {
		mapper, err := c.RESTMapper(), error(nil)
		if e.from == "" { // only this one knows short names
			if mapper, err = e.flags.ToRESTMapper(); err != nil {
				return nil, err
			}
		}
		resource, group := schema.ParseResourceArg(given)
		found, err := mapper.KindFor(ptr.Deref(resource, group.WithVersion("")))
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("finding the kind %q: %w", given, err)
		}
		i = slices.IndexFunc(kinds, func(k Kind) bool { return k.GroupKind() == found.GroupKind() })
	}
	if i < 0 {
		return nil, fmt.Errorf("this command is not for the kind %q, but for: %s", given, join(kinds))
	}
	return kinds[i : i+1], nil
}

func join(kinds []Kind) string {
	arguments := make([]string, 0, len(kinds))
	for _, k := range kinds {
		arguments = append(arguments, check.Argument(k.Kind))
	}
	return strings.Join(arguments, ", ")
}

// CompleteNames completes at most limit arguments, or any number if that is 0, by the names of objects of these kinds,
// with the kind before the name if there are several, unless the user has begun with a name. Errors have no place.
func (e *Environment) CompleteNames(limit int, kinds ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (completions []string, _ cobra.ShellCompDirective) {
		namespace, err := e.Namespace()
		x, connectErr := e.Examination()
		if err != nil || connectErr != nil || limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, k := range kinds {
			objects := lookup.MetadataList(k)
			x.List(cmd.Context(), objects, client.InNamespace(namespace))
			for i := range objects.Items {
				name := objects.Items[i].Name
				switch qualified := check.Argument(k.Kind) + "/" + name; {
				case len(kinds) > 1 && strings.HasPrefix(qualified, begin):
					completions = append(completions, qualified)
				case strings.HasPrefix(name, begin) && !slices.Contains(completions, name):
					completions = append(completions, name)
				}
			}
		}
		return completions, cobra.ShellCompDirectiveNoFileComp
	}
}

// Encode writes a value in the format of --output. text writes it as text.
func (e *Environment) Encode(value any, text func()) error {
	if e.Output == "" {
		text()
		return nil
	}
	format := "%s\n"
	content, err := json.MarshalIndent(value, "", "  ")
	if e.Output == "yaml" {
		format = "---\n%s"
		content, err = yaml.Marshal(value)
	}
	if err == nil {
		_, err = fmt.Fprintf(e.Out, format, content)
	}
	return err
}
