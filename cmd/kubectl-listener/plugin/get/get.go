// Package get has the command `kubectl listener get`, which lists and watches addresses.
package get

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/message"
)

// getOptions are the flags of get.
type getOptions struct {
	*command.Environment
	allNamespaces bool
	watch         bool
	// selector selects Listeners by their labels. It is empty for all.
	selector string
	// endpoints is the name of the port whose endpoints are the output, or "".
	endpoints string
}

// selection selects Listeners.
type selection struct {
	// names are those of the Listeners, or empty for all.
	names  []string
	labels labels.Selector
}

func (s selection) has(l *listenersv1alpha1.Listener) bool {
	return (len(s.names) == 0 || slices.Contains(s.names, l.Name)) && s.labels.Matches(labels.Set(l.Labels))
}

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	o := &getOptions{Environment: e}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "List every address of every replica",
		Long: `List every address of every replica.

Each line is one address with one port. Below a Listener are the Pods that mount it, each with the addresses that lead
to that Pod, as its files have them. A Listener without Pods has the addresses that are reserved for it. NAME is the
name of a Listener. Without names, all Listeners of the namespace are listed.

With --endpoints, the output is the list of servers that clients want: host:port of one port of all these Listeners,
separated by commas.`,
		Example: `  # The addresses of all brokers
  kubectl listener get --namespace shop

  # All namespaces, and whatever changes from now on
  kubectl listener get --all-namespaces --watch

  # The list of servers for clients that must know every replica, here of a StatefulSet with the label app=redis
  kubectl listener get --selector app=redis --endpoints client`,
		ValidArgsFunction: e.CompleteNames(0, command.KindListener),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	e.AddOutputFlag(cmd)
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "List the Listeners with these labels, such as app=redis. A Listener has the labels of its claim.")
	cmd.Flags().StringVar(&o.endpoints, "endpoints", "", "Write host:port of the port with this name, of all Listeners, separated by commas.")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the Listeners of all namespaces.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After the list, write what changes, until the command is interrupted.")
	cmd.MarkFlagsMutuallyExclusive("endpoints", "output")
	cmd.MarkFlagsMutuallyExclusive("endpoints", "watch")
	return cmd
}

func (o *getOptions) run(ctx context.Context, names []string) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	var options []client.ListOption
	if !o.allNamespaces {
		namespace, err := o.Namespace()
		if err != nil {
			return err
		}
		options = append(options, client.InNamespace(namespace))
	}
	which, err := o.selection(names)
	if err != nil {
		return err
	}
	if o.watch {
		return (&watcher{getOptions: o, client: c, options: options, selection: which}).run(ctx)
	}
	found, _, err := observeAddresses(ctx, c, options)
	if err != nil {
		return err
	}
	listeners := found.selected(which)
	for _, name := range names {
		if !slices.ContainsFunc(listeners, func(l listenerAddresses) bool { return l.Name == name }) {
			return fmt.Errorf("there is no Listener %q", name)
		}
	}
	if o.endpoints != "" {
		return o.writeEndpoints(listeners)
	}
	if len(listeners) == 0 && o.Output == "" {
		fmt.Fprintln(o.ErrOut, "There are no Listeners.")
		return nil
	}
	return o.Encode(struct {
		Listeners []listenerAddresses `json:"listeners"`
	}{listeners}, func() { o.writeRows(o.Out, rowsOf(listeners), true) })
}

// selection is what names and the flag --selector select. It is an error to give both.
func (o *getOptions) selection(names []string) (selection, error) {
	if len(names) > 0 && o.selector != "" {
		return selection{}, errors.New("name Listeners, or select them by labels with --selector, but not both")
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return selection{}, fmt.Errorf("--selector is %q: %w", o.selector, err)
	}
	return selection{names: names, labels: selector}, nil
}

// listenerAddresses is a Listener with its addresses. Its JSON is part of the output.
type listenerAddresses struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Class     string `json:"class,omitempty"`
	// Reason is why the Listener is in its state.
	Reason string `json:"reason,omitempty"`
	// Addresses are those of the Listener as a whole.
	Addresses []listenersv1alpha1.IngressAddress `json:"addresses"`
	// Replicas are the Pods that mount the Listener.
	Replicas []replica `json:"replicas"`
}

// replica is a volume of a Pod with the addresses that lead to the Pod.
type replica struct {
	Pod       string                             `json:"pod"`
	Node      string                             `json:"node,omitempty"`
	Volume    string                             `json:"volume"`
	Scope     listenersv1alpha1.ListenerScope    `json:"scope"`
	Addresses []listenersv1alpha1.IngressAddress `json:"addresses"`
}

// observedAddresses are the objects that have addresses.
type observedAddresses struct {
	listeners map[client.ObjectKey]*listenersv1alpha1.Listener
	pods      map[client.ObjectKey]*listenersv1alpha1.PodListeners
}

// versions are the resource versions of the lists, from which to watch.
type versions struct{ listeners, pods string }

// observeAddresses reads all objects that have addresses.
func observeAddresses(ctx context.Context, c client.Reader, options []client.ListOption) (*observedAddresses, versions, error) {
	var listeners listenersv1alpha1.ListenerList
	var pods listenersv1alpha1.PodListenersList
	if err := c.List(ctx, &listeners, options...); err != nil {
		return nil, versions{}, fmt.Errorf("listing Listeners: %w", err)
	}
	if err := c.List(ctx, &pods, options...); err != nil {
		return nil, versions{}, fmt.Errorf("listing PodListeners: %w", err)
	}
	o := &observedAddresses{
		listeners: map[client.ObjectKey]*listenersv1alpha1.Listener{}, pods: map[client.ObjectKey]*listenersv1alpha1.PodListeners{},
	}
	for i := range listeners.Items {
		o.listeners[client.ObjectKeyFromObject(&listeners.Items[i])] = &listeners.Items[i]
	}
	for i := range pods.Items {
		o.pods[client.ObjectKeyFromObject(&pods.Items[i])] = &pods.Items[i]
	}
	return o, versions{listeners.ResourceVersion, pods.ResourceVersion}, nil
}

// selected returns the selected Listeners, sorted by namespace and name.
func (o *observedAddresses) selected(which selection) []listenerAddresses {
	selected := []listenerAddresses{}
	for key, l := range o.listeners {
		if !which.has(l) {
			continue
		}
		a := listenerAddresses{
			Namespace: l.Namespace, Name: l.Name, Class: l.Class(), Addresses: []listenersv1alpha1.IngressAddress{}, Replicas: o.replicas(key),
		}
		if l.Status != nil {
			a.Reason = l.Status.Summary.Reason
			a.Addresses = append(a.Addresses, l.Status.IngressAddresses...)
		}
		selected = append(selected, a)
	}
	slices.SortFunc(selected, func(a, b listenerAddresses) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return selected
}

// replicas returns the Pods that mount a Listener, sorted by name and volume.
func (o *observedAddresses) replicas(listener client.ObjectKey) []replica {
	replicas := []replica{}
	for key, pod := range o.pods {
		if key.Namespace != listener.Namespace || !slices.Contains(index.PodListenersListeners(pod), listener.Name) {
			continue
		}
		for volume, entry := range pod.Spec.Listeners {
			if entry.ListenerName != listener.Name {
				continue
			}
			r := replica{Pod: key.Name, Node: pod.Spec.NodeName, Volume: volume, Scope: entry.Scope, Addresses: []listenersv1alpha1.IngressAddress{}}
			if len(pod.OwnerReferences) > 0 {
				r.Pod = pod.OwnerReferences[0].Name
			}
			r.Addresses = append(r.Addresses, entry.IngressAddresses...)
			replicas = append(replicas, r)
		}
	}
	slices.SortFunc(replicas, func(a, b replica) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Volume, b.Volume)) })
	return replicas
}

// writeEndpoints writes host:port of a port of all Listeners. A Listener that has no address with this port is named on
// the error output. If none has one, that is an error, because a client can do nothing with an empty list.
func (o *getOptions) writeEndpoints(listeners []listenerAddresses) error {
	var endpoints []string
	for i := range listeners {
		l := &listeners[i]
		has := false
		for _, a := range l.Addresses {
			port, ok := a.Ports[o.endpoints]
			if !ok {
				continue
			}
			has = true
			if endpoint := net.JoinHostPort(a.Address, strconv.Itoa(int(port))); !slices.Contains(endpoints, endpoint) {
				endpoints = append(endpoints, endpoint)
			}
		}
		if !has {
			fmt.Fprintf(o.ErrOut, "Listener %s/%s is left out: it has no address with a port %q (%s).\n", l.Namespace, l.Name, o.endpoints, cmp.Or(command.Printable(l.Reason), "no reason is known"))
		}
	}
	if len(endpoints) == 0 {
		return fmt.Errorf("none of %d Listeners has an address with a port %q", len(listeners), o.endpoints)
	}
	for i := range endpoints {
		endpoints[i] = command.Printable(endpoints[i])
	}
	fmt.Fprintln(o.Out, strings.Join(endpoints, ","))
	return nil
}

// row is a line of the table.
type row struct{ namespace, listener, class, pod, node, port, address, reason string }

// none stands for a value that does not exist, as in the tables of kubectl.
const none = "<none>"

// rowsOf returns the lines of Listeners: a line for each address with each port.
func rowsOf(listeners []listenerAddresses) []row {
	var rows []row
	for i := range listeners {
		l := &listeners[i]
		common := row{namespace: l.Namespace, listener: l.Name, class: cmp.Or(l.Class, none), pod: none, node: none, reason: cmp.Or(l.Reason, none)}
		if len(l.Replicas) == 0 {
			rows = append(rows, common.with(l.Addresses)...)
		}
		for _, r := range l.Replicas {
			common.pod, common.node = r.Pod, cmp.Or(r.Node, none)
			rows = append(rows, common.with(r.Addresses)...)
		}
	}
	return rows
}

// with returns a line for each address with each port, or one that says that there is no address yet.
func (r row) with(addresses []listenersv1alpha1.IngressAddress) []row {
	if len(addresses) == 0 {
		r.port, r.address = none, "<pending>"
		return []row{r}
	}
	var rows []row
	for _, a := range addresses {
		for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
			r.port, r.address = name, net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports[name])))
			rows = append(rows, r)
		}
	}
	return rows
}

// maxCell is the length of the longest value in a table: that of a DNS name with a port.
const maxCell = 260

// writeRows writes lines as a table.
func (o *getOptions) writeRows(out io.Writer, rows []row, header bool) {
	table := printers.GetNewTabWriter(out)
	if header {
		rows = append([]row{{"NAMESPACE", "LISTENER", "CLASS", "POD", "NODE", "PORT", "ADDRESS", "REASON"}}, rows...)
	}
	for _, r := range rows {
		cells := []string{r.namespace, r.listener, r.class, r.pod, r.node, r.port, r.address, r.reason}
		if !o.allNamespaces {
			cells = cells[1:]
		}
		for i := range cells {
			cells[i] = message.Printable(cells[i], maxCell)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush()
}
