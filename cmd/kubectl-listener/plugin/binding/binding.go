// Package binding has the command `kubectl listener binding`, which prints how applications reach a Listener or a Pod,
// as a Secret of the Service Binding specification (https://servicebinding.io, version 1.1).
package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/ca"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/names"
)

// labelType is the label that says what a Listener or a Pod serves, if the user does not.
const labelType = "app.kubernetes.io/name"

// validType matches types of services. They are the scheme of the URI, too (RFC 3986).
var validType = regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,62}$`)

type bindingOptions struct {
	*command.Environment
	serviceType, port string
}

func NewCommand(e *command.Environment) *cobra.Command {
	o := &bindingOptions{Environment: e}
	kinds := []command.Kind{command.KindListener, command.KindPod}
	cmd := &cobra.Command{
		Use:   "binding ([KIND/]NAME)",
		Short: "Print a Secret by which applications reach a Listener or a Pod",
		Long: `Print a Secret by which applications reach a Listener or a Pod, in the shape of the Service Binding specification.

The applications may be in other namespaces or clusters, or outside. KIND is listener or pod. Without a kind, NAME is
the first of these that exists. The Secret has the entries type, host, port and uri, and, if the Pods serve certificates
of the operator, as ca.crt the authorities of the namespace. It has neither users nor passwords: add them yourself.

If several addresses have the port, the Secret has the first, which programs in the Pods advertise, and a note says so.
The command creates nothing.`,
		Example: `  # Let an application in the namespace web reach the brokers of this one
  kubectl listener binding kafka-bootstrap --type kafka --port kafka | kubectl apply --namespace web --filename -

  # The address of one replica
  kubectl listener binding pod/redis-0 --type redis --port client`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := e.Examination()
			if err != nil {
				return err
			}
			object, err := e.Find(cmd.Context(), x.Client, args, kinds...)
			if err != nil {
				return err
			}
			secret, notes, err := o.bind(cmd.Context(), x, object)
			if err = cmp.Or(x.Err, err); err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Fprintln(e.ErrOut, command.Printable(note))
			}
			return new(printers.YAMLPrinter).PrintObj(secret, e.Out)
		},
	}
	cmd.Flags().StringVar(&o.serviceType, "type", "",
		"Type of the service, such as kafka or postgresql, and scheme of its URI. Defaults to the label "+labelType+".")
	cmd.Flags().StringVar(&o.port, "port", "", "Name of the port. Defaults to the only one.")
	return cmd
}

type bound struct {
	client.Object
	// what names it in messages, and why is the command that shows more.
	what, why string
	addresses []listenersv1alpha1.IngressAddress
	pods      []corev1.Pod
	notes     []string
}

func (o *bindingOptions) bind(ctx context.Context, x *check.Examination,
	object client.Object) (_ *corev1.Secret, notes []string, _ error) {
	w, f := walk.New(x), x.About(object)
	b := &bound{Object: object, what: f.Object(), why: w.Command("why", object)}
	var err error
	switch object := object.(type) {
	case *corev1.Pod:
		err = b.fromPod(ctx, w, object)
	case *listenersv1alpha1.Listener:
		b.fromListener(ctx, w, object)
	}
	serviceType, typeErr := o.typeOf(b)
	name, candidates, portErr := o.choose(b)
	if err := cmp.Or(err, typeErr, portErr); err != nil {
		return nil, nil, err
	}
	first := candidates[0]
	if len(candidates) > 1 {
		b.notes = append(b.notes, fmt.Sprintf("%s has %d addresses with port %s; the Secret has the first: %s", b.what,
			len(candidates), name, first.HostPort(name)))
	}
	secret := &corev1.Secret{Type: corev1.SecretType("servicebinding.io/" + serviceType), StringData: map[string]string{
		"type": serviceType, "host": first.Address, "port": strconv.Itoa(int(first.Ports[name])), "uri": serviceType +
			"://" + first.HostPort(name),
	}}
	secret.APIVersion, secret.Kind, secret.Name = "v1", "Secret", object.GetName()+"-binding"
	if slices.ContainsFunc(b.pods, func(pod corev1.Pod) bool { return walk.MountsCertificate(&pod) }) {
		authorities, err := ca.Certificates(ctx, x.Client, object.GetNamespace())
		switch {
		case apierrors.IsForbidden(err):
			b.notes = append(b.notes, "ca.crt is left out: "+err.Error())
		case err != nil:
			return nil, nil, err
		default:
			secret.StringData[names.CertificateAuthorityKey] = authorities
		}
	}
	return secret, b.notes, nil
}

func (b *bound) fromListener(ctx context.Context, w *walk.Walk, listener *listenersv1alpha1.Listener) {
	b.addresses = ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).IngressAddresses
	var found check.Presence
	if b.pods, found = w.PodsOfListener(ctx, listener); found == check.Forbidden {
		b.notes = append(b.notes, fmt.Sprintf("You may not list the Pods of %s, so ca.crt is left out. If they serve "+
			"certificates of the operator, add it: kubectl listener ca --namespace %s", b.what, listener.Namespace))
	}
}

// fromPod sets what a Pod with a single listener volume has.
func (b *bound) fromPod(ctx context.Context, w *walk.Walk, pod *corev1.Pod) error {
	b.pods = []corev1.Pod{*pod}
	published, found := w.PodListeners(ctx, pod)
	if found == check.Forbidden {
		return fmt.Errorf("you may not read PodListeners, which have the addresses of %s; ask for the role view in "+
			"the namespace, or name a Listener", b.what)
	}
	listeners := sets.New[string]()
	for _, entry := range published.Spec.Listeners {
		b.addresses = entry.IngressAddresses
		listeners.Insert("listener/" + entry.ListenerName)
	}
	if volumes := len(published.Spec.Listeners); volumes > 1 {
		return fmt.Errorf("%s has %d listener volumes; name the Listener of one of them instead: %s", b.what, volumes,
			strings.Join(sets.List(listeners), ", "))
	}
	return nil
}

func (o *bindingOptions) typeOf(b *bound) (string, error) {
	label := b.GetLabels()[labelType]
	const valid = "a lower-case letter, and then lower-case letters, digits, +, - and ., such as kafka or postgresql"
	switch value := cmp.Or(o.serviceType, label); {
	case value == "":
		return "", fmt.Errorf("%s has no label %s that says what it serves; set --type, such as kafka or postgresql",
			b.what, labelType)
	case validType.MatchString(value):
		return value, nil
	case o.serviceType != "":
		return "", fmt.Errorf("--type is %q, and must be %s", value, valid)
	default:
		return "", fmt.Errorf("the label %s of %s is %q, which is no type; set --type to %s", labelType, b.what, value,
			valid)
	}
}

// choose returns the name of the port, and the addresses that have it, in the order of preference.
func (o *bindingOptions) choose(b *bound) (name string, candidates []listenersv1alpha1.IngressAddress, _ error) {
	ports := sets.New[string]()
	for _, a := range b.addresses {
		ports.Insert(slices.Collect(maps.Keys(a.Ports))...)
	}
	all := sets.List(ports)
	switch {
	case len(b.addresses) == 0:
		return "", nil, errors.New(b.what + " has no address; find out why: " + b.why)
	case len(all) == 0:
		return "", nil, errors.New(b.what + " has no port at its addresses; find out why: " + b.why)
	case o.port == "" && len(all) != 1:
		return "", nil, fmt.Errorf("%s has the ports %s; set --port to one of them", b.what, strings.Join(all, ", "))
	case o.port != "" && !ports.Has(o.port):
		return "", nil, fmt.Errorf("%s has no port %q, but %s; set --port to one of them", b.what, o.port,
			strings.Join(all, ", "))
	}
	name = cmp.Or(o.port, all[0])
	return name, slices.DeleteFunc(slices.Clone(b.addresses),
		func(a listenersv1alpha1.IngressAddress) bool { return a.Ports[name] == 0 }), nil
}
