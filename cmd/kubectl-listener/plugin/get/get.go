// Package get has the command `kubectl listener get`, which lists and watches addresses.
package get

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/source"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/records"
)

// zone is the value of the flag --output for records of a DNS zone.
const zone = "zone"

type getOptions struct {
	*command.Environment
	names         []string
	allNamespaces bool
	watch         bool
	selector      string
	// endpoints is the name of the port whose endpoints are the output, or "".
	endpoints string
	began     bool
}

func NewCommand(e *command.Environment) *cobra.Command {
	o := &getOptions{Environment: e}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "List every address of every replica",
		Long: `List every address of every replica.

Each line is one address with one port. Each Pod that mounts a Listener has the addresses that lead to this Pod, the
same as in its files. A Listener without Pods has the addresses that are reserved for it. NAME is the name of a
Listener. Without names, the command lists all Listeners of the namespace.

With --output json or yaml, "advertised" is what to configure in front of the cluster if the class of a Listener
advertises other addresses: docs/advertise.md

With --output zone, the command prints the records of a DNS zone (RFC 1035) for the Listeners whose classes publish a
name in place of the addresses: docs/names.md

With --endpoints, the command prints a list of servers as clients expect it: host:port of one port of all these
Listeners, separated by commas.`,
		Example: `  # The addresses of all brokers
  kubectl listener get --namespace shop

  # All namespaces, and then each change
  kubectl listener get --all-namespaces --watch

  # The servers for clients that must know every replica, here of a StatefulSet with the label app=redis
  kubectl listener get --selector app=redis --endpoints client

  # The records of all names, for a zone file that begins with its own SOA and NS records
  kubectl listener get --all-namespaces --output zone`,
		ValidArgsFunction: e.CompleteNames(0, command.KindListener),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.names = args
			return o.run(cmd.Context())
		},
	}
	e.AddOutputFlag(cmd, zone)
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"List the Listeners with these labels, such as app=redis. A Listener has the labels of its claim.")
	cmd.Flags().StringVar(&o.endpoints, "endpoints", "",
		"Print host:port of the port with this name, of all Listeners, separated by commas.")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the Listeners of all namespaces.")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false,
		"After the list, print each change until you interrupt the command.")
	cmd.MarkFlagsMutuallyExclusive("endpoints", "output")
	cmd.MarkFlagsMutuallyExclusive("endpoints", "watch")
	return cmd
}

func (o *getOptions) selection() (*client.ListOptions, error) {
	if len(o.names) > 0 && o.selector != "" {
		return nil, errors.New("name Listeners or use --selector, but not both")
	}
	if o.watch && o.Output == zone {
		return nil, errors.New("--output zone cannot be combined with --watch: print the records again later")
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector is %q: %w", o.selector, err)
	}
	if o.allNamespaces {
		return &client.ListOptions{LabelSelector: selector}, nil
	}
	namespace, err := o.Namespace()
	return &client.ListOptions{Namespace: namespace, LabelSelector: selector}, err
}

func (o *getOptions) run(ctx context.Context) error {
	which, err := o.selection()
	if err != nil {
		return err
	}
	c, err := o.Client()
	if err != nil {
		return err
	}
	if o.watch {
		return o.follow(ctx, source.Watch(ctx, c, which.Namespace), which)
	}
	listeners, err := o.observe(ctx, c, which)
	if err != nil {
		return err
	}
	for _, name := range o.names {
		if !slices.ContainsFunc(listeners, func(l listenerAddresses) bool { return l.Name == name }) {
			return fmt.Errorf("there is no Listener %q", name)
		}
	}
	switch {
	case o.endpoints != "":
		return o.writeEndpoints(listeners)
	case o.Output == zone:
		return o.writeZone(ctx, c, &client.ListOptions{Namespace: which.Namespace}, listeners)
	}
	if len(listeners) == 0 && o.Output == "" {
		fmt.Fprintln(o.ErrOut, "There are no Listeners.")
		return nil
	}
	return o.Encode(struct {
		Listeners []listenerAddresses `json:"listeners"`
	}{listeners}, func() { o.writeRows(rowsOf(listeners)) })
}

// listenerAddresses is a Listener with its addresses. Its JSON is part of the output.
type listenerAddresses struct {
	Namespace  string                             `json:"namespace"`
	Name       string                             `json:"name"`
	Class      string                             `json:"class,omitempty"`
	Reason     string                             `json:"reason,omitempty"`
	WaitingFor *listenersv1alpha1.WaitingFor      `json:"waitingFor,omitempty"`
	Addresses  []listenersv1alpha1.IngressAddress `json:"addresses"`
	// Advertised is where to forward what clients send to Addresses, if the class advertises these.
	Advertised []advertise.Forward `json:"advertised"`
	Replicas   []replica           `json:"replicas"`

	object *listenersv1alpha1.Listener
}

type replica struct {
	Pod       string                             `json:"pod"`
	Node      string                             `json:"node,omitempty"`
	Volume    string                             `json:"volume"`
	Scope     listenersv1alpha1.ListenerScope    `json:"scope"`
	Addresses []listenersv1alpha1.IngressAddress `json:"addresses"`
}

// observe reads the selected Listeners with their Pods, sorted by namespace and name.
func (o *getOptions) observe(ctx context.Context, c client.Reader,
	which *client.ListOptions) ([]listenerAddresses, error) {
	var list listenersv1alpha1.ListenerList
	if err := c.List(ctx, &list, which); err != nil {
		return nil, fmt.Errorf("listing Listeners: %w", err)
	}
	var pods listenersv1alpha1.PodListenersList
	if err := c.List(ctx, &pods, client.InNamespace(which.Namespace)); err != nil {
		return nil, fmt.Errorf("listing PodListeners: %w", err)
	}
	replicas := replicasOf(pods.Items)
	listeners := []listenerAddresses{}
	for l := range check.Each(list.Items) {
		if len(o.names) > 0 && !slices.Contains(o.names, l.Name) {
			continue
		}
		status := ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{})
		listeners = append(listeners, listenerAddresses{
			Namespace: l.Namespace, Name: l.Name, Class: l.Class(), Reason: status.Summary.Reason,
			WaitingFor: status.WaitingFor,
			Addresses:  append([]listenersv1alpha1.IngressAddress{}, status.IngressAddresses...),
			Advertised: advertise.Forwards(l),
			Replicas:   append([]replica{}, replicas[client.ObjectKeyFromObject(l)]...),
			object:     l,
		})
	}
	slices.SortFunc(listeners, func(a, b listenerAddresses) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return listeners, nil
}

// replicasOf returns the Pods that mount each Listener, sorted by name and volume.
func replicasOf(pods []listenersv1alpha1.PodListeners) map[client.ObjectKey][]replica {
	replicas := map[client.ObjectKey][]replica{}
	for pod := range check.Each(pods) {
		name := pod.Name
		if len(pod.OwnerReferences) > 0 {
			name = pod.OwnerReferences[0].Name
		}
		for volume, entry := range pod.Spec.Listeners {
			listener := client.ObjectKey{Namespace: pod.Namespace, Name: entry.ListenerName}
			replicas[listener] = append(replicas[listener], replica{
				Pod: name, Node: pod.Spec.NodeName, Volume: volume, Scope: entry.Scope,
				Addresses: append([]listenersv1alpha1.IngressAddress{}, entry.IngressAddresses...),
			})
		}
	}
	for _, ofListener := range replicas {
		slices.SortFunc(ofListener, func(a, b replica) int {
			return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Volume, b.Volume))
		})
	}
	return replicas
}

// writeEndpoints writes host:port of a port of all Listeners. A Listener that has no address with this port is named on
// the error output. If none has one, that is an error, because a client can do nothing with an empty list.
func (o *getOptions) writeEndpoints(listeners []listenerAddresses) error {
	var endpoints []string
	for l := range check.Each(listeners) {
		has := false
		for _, a := range l.Addresses {
			_, ok := a.Ports[o.endpoints]
			has = has || ok
			if endpoint := command.Printable(a.HostPort(o.endpoints)); ok && !slices.Contains(endpoints, endpoint) {
				endpoints = append(endpoints, endpoint)
			}
		}
		if !has {
			fmt.Fprintf(o.ErrOut, "Listener %s/%s is left out: it has no address with a port %q (%s).\n", l.Namespace,
				l.Name, o.endpoints, cmp.Or(command.Printable(l.Reason), "no reason is known"))
		}
	}
	if len(endpoints) == 0 {
		return fmt.Errorf("none of %d Listeners has an address with a port %q", len(listeners), o.endpoints)
	}
	fmt.Fprintln(o.Out, strings.Join(endpoints, ","))
	return nil
}

// writeZone writes the records of Listeners, one in a line.
func (o *getOptions) writeZone(ctx context.Context, c client.Reader, which *client.ListOptions,
	listeners []listenerAddresses) error {
	var list listenersv1alpha1.ListenerClassList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("listing ListenerClasses, which say how names are published: %w", err)
	}
	classes := map[string]*listenersv1alpha1.ListenerClass{}
	for class := range check.Each(list.Items) {
		classes[class.Name] = class
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services, which); err != nil {
		return fmt.Errorf("listing Services, which say what Pods the names are made from: %w", err)
	}
	byKey := map[client.ObjectKey]*corev1.Service{}
	for service := range check.Each(services.Items) {
		byKey[client.ObjectKeyFromObject(service)] = service
	}
	written := false
	for l := range check.Each(listeners) {
		named := &exposure.Listener{Listener: l.object, Service: byKey[names.ServiceKey(l.object)],
			Class: cmp.Or(classes[l.Class], &listenersv1alpha1.ListenerClass{})}
		for _, record := range records.Of(named) {
			for _, target := range record.Targets {
				if record.Type == "CNAME" || record.Type == "SRV" {
					target += "."
				}
				fmt.Fprintf(o.Out, "%s.\t%d\tIN\t%s\t%s\n", command.Printable(record.Name), record.TTL, record.Type,
					command.Printable(target))
				written = true
			}
		}
	}
	if !written {
		return fmt.Errorf("none of %d Listeners has records: their classes have no spec.hostname with records "+
			"DNSEndpoint or None, or they have no address yet", len(listeners))
	}
	return nil
}

// header has the columns of the table, and row the values of a line.
var header = row{"NAMESPACE", "LISTENER", "CLASS", "POD", "NODE", "PORT", "ADDRESS", "REASON"}

type row [8]string

func (r row) place() [4]string { return [4]string{r[0], r[1], r[3], r[columnPort]} }

const (
	columnPort, columnAddress = 5, 6
	// none stands for a value that does not exist, as in the tables of kubectl.
	none = "<none>"
)

// rowsOf returns a line for each address with each port of Listeners, or one line if there is no address yet.
func rowsOf(listeners []listenerAddresses) []row {
	var rows []row
	for l := range check.Each(listeners) {
		replicas := l.Replicas
		if len(replicas) == 0 {
			replicas = []replica{{Pod: none, Addresses: l.Addresses}}
		}
		for _, r := range replicas {
			line := row{l.Namespace, l.Name, cmp.Or(l.Class, none), r.Pod, cmp.Or(r.Node, none), none, "<pending>",
				cmp.Or(l.Reason, none)}
			if len(r.Addresses) == 0 {
				rows = append(rows, line)
			}
			for _, a := range r.Addresses {
				for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
					line[columnPort], line[columnAddress] = name, a.HostPort(name)
					rows = append(rows, line)
				}
			}
		}
	}
	return rows
}

func (o *getOptions) writeRows(rows []row) {
	table := printers.GetNewTabWriter(o.Out)
	if !o.began {
		o.began = true
		rows = append([]row{header}, rows...)
	}
	for _, r := range rows {
		cells := r[:]
		if !o.allNamespaces {
			cells = cells[1:]
		}
		for i := range cells {
			cells[i] = command.Printable(cells[i])
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush()
}

// follow writes what there is, and then what changes, until the context ends, which is no error.
func (o *getOptions) follow(ctx context.Context, objects *source.Source, which *client.ListOptions) error {
	var written []listenerAddresses
	for {
		listed, err := o.observe(ctx, objects, which)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = o.write(written, listed)
		}
		if err != nil {
			return err
		}
		written = listed
		select {
		case <-ctx.Done():
		case <-objects.Changed:
		}
	}
}

// write writes what differs from what the user has seen: new and removed lines, or each Listener as a document.
func (o *getOptions) write(before, now []listenerAddresses) error {
	if o.Output == "" {
		o.writeChanges(rowsOf(before), rowsOf(now))
		return nil
	}
	for i := range now {
		if slices.ContainsFunc(before, func(l listenerAddresses) bool { return reflect.DeepEqual(l, now[i]) }) {
			continue
		}
		if err := o.Encode(now[i], nil); err != nil {
			return err
		}
	}
	return nil
}

func (o *getOptions) writeChanges(before, now []row) {
	changes := slices.DeleteFunc(slices.Clone(now), func(r row) bool { return slices.Contains(before, r) })
	for _, r := range before {
		if !slices.ContainsFunc(now, func(other row) bool { return other.place() == r.place() }) {
			r[columnAddress] = "<removed>"
			changes = append(changes, r)
		}
	}
	if len(changes) > 0 {
		o.writeRows(changes)
	}
}
