// Package connect has the command `kubectl listener connect`, which tries each address of a Pod or a Listener.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// DefaultTimeout is how long one connection may take.
const DefaultTimeout = 5 * time.Second

// maxConnections is how many addresses are tried at a time.
const maxConnections = 16

// NewCommand returns the command.
func NewCommand(e *command.Environment) *cobra.Command {
	var timeout time.Duration
	kinds := []command.Kind{command.KindPod, command.KindListener}
	cmd := &cobra.Command{
		Use:   "connect (POD | [KIND/]NAME)",
		Short: "Try each address of a Pod or a Listener from where you are",
		Long: `Try each address of a Pod or a Listener from where you are.

The command opens a TCP connection to each address with each port, and closes it at once. It sends nothing, so it does
not show that the right program responds. Ports of other protocols are not tried. KIND is pod or listener. Without a
kind, NAME is a Pod, or else a Listener.

Run it where the clients are: an address that works there need not work elsewhere.`,
		Example: `  # Can I reach this broker?
  kubectl listener connect kafka-0

  # All addresses of a Listener, with a shorter timeout
  kubectl listener connect listener/kafka-bootstrap --timeout 1s`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout is %s, and must be positive", timeout)
			}
			c, err := e.Client()
			if err != nil {
				return err
			}
			o, err := e.Find(cmd.Context(), c, args, kinds...)
			if err != nil {
				return err
			}
			r, err := Try(cmd.Context(), c, o, timeout)
			if err != nil {
				return err
			}
			return e.Print(r, command.WriteChecks)
		},
	}
	e.AddOutputFlag(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", DefaultTimeout, "How long to wait for each connection.")
	return cmd
}

// Try connects to each address of a Pod or a Listener. Each connection may take the timeout.
func Try(ctx context.Context, reader client.Reader, o client.Object, timeout time.Duration) (*check.Report, error) {
	endpoints, err := endpointsOf(ctx, &check.Examination{Reader: reader}, o)
	if err != nil {
		return nil, err
	}
	r := &check.Report{}
	if len(endpoints) == 0 {
		r.Add(check.Finding{Kind: kindName(o), Namespace: o.GetNamespace(), Name: o.GetName()}.Failed("", "has no address",
			"Find out why: kubectl listener why "+o.GetName()))
	}
	r.Findings = append(r.Findings, dialAll(ctx, endpoints, timeout)...)
	return r, nil
}

// endpoint is an address with one port.
type endpoint struct {
	host, port string
	number     int32
	protocol   corev1.Protocol
}

// endpointsOf returns the addresses of a Pod or a Listener with their ports, in the order of preference.
func endpointsOf(ctx context.Context, x *check.Examination, o client.Object) ([]endpoint, error) {
	if listener, ok := o.(*listenersv1alpha1.Listener); ok {
		if listener.Status == nil {
			return nil, nil
		}
		return appendEndpoints(nil, listener.Status.IngressAddresses, listener), nil
	}
	pod := &listenersv1alpha1.PodListeners{}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: listenersv1alpha1.PodListenersName(o.GetUID())}
	if x.Get(ctx, key, pod) == check.Forbidden {
		return nil, cmp.Or(x.Err, fmt.Errorf("you may not read PodListeners %s", key))
	}
	var endpoints []endpoint
	for _, volume := range slices.Sorted(maps.Keys(pod.Spec.Listeners)) {
		entry := pod.Spec.Listeners[volume]
		listener := &listenersv1alpha1.Listener{}
		x.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: entry.ListenerName}, listener)
		endpoints = appendEndpoints(endpoints, entry.IngressAddresses, listener)
	}
	return endpoints, x.Err
}

// appendEndpoints appends the addresses that the list does not have yet. The Listener has the protocols of its ports.
func appendEndpoints(list []endpoint, addresses []listenersv1alpha1.IngressAddress, listener *listenersv1alpha1.Listener) []endpoint {
	protocols := map[string]corev1.Protocol{}
	for _, p := range listener.Spec.Ports {
		protocols[p.Name] = ptr.Deref(p.Protocol, corev1.ProtocolTCP)
	}
	for _, a := range addresses {
		for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
			e := endpoint{host: a.Address, port: name, number: a.Ports[name], protocol: protocols[name]}
			if !slices.Contains(list, e) {
				list = append(list, e)
			}
		}
	}
	return list
}

// dialAll tries endpoints, and returns a finding for each.
func dialAll(ctx context.Context, endpoints []endpoint, timeout time.Duration) []check.Finding {
	findings := make([]check.Finding, len(endpoints))
	slots := make(chan struct{}, maxConnections)
	var group sync.WaitGroup
	for i, e := range endpoints {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			findings[i] = e.dial(ctx, timeout)
		})
	}
	group.Wait()
	return findings
}

// dial connects to an endpoint.
func (e endpoint) dial(ctx context.Context, timeout time.Duration) check.Finding {
	address := net.JoinHostPort(e.host, strconv.Itoa(int(e.number)))
	f := check.Finding{Kind: "Address", Name: address}
	if e.protocol != corev1.ProtocolTCP && e.protocol != "" {
		return f.Warning("", fmt.Sprintf("port %s is not tried: its protocol is %s", e.port, e.protocol))
	}
	started := time.Now()
	connection, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return f.Failed("", fmt.Sprintf("port %s: %v", e.port, err), remedyForDial(err))
	}
	_ = connection.Close()
	return f.OK("port %s: connected in %s", e.port, time.Since(started).Round(time.Millisecond))
}

// remedyForDial returns what to do about an error of a connection.
func remedyForDial(err error) string {
	var dns *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &dns):
		return "The name cannot be resolved where you are. Use its DNS there, or ask for a class with preferredAddressType: IP."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The machine responds, and nothing listens there. See whether the Pod is ready, and its program listens on all addresses: kubectl listener why"
	case errors.As(err, &network) && network.Timeout():
		return "Nothing responds. A firewall may drop the packets, or the address is not routed to where you are: docs/choosing-a-class.md"
	default:
		return "See whether the address is routed to where you are: docs/choosing-a-class.md"
	}
}

// kindName returns the kind of an object that find returned.
func kindName(o client.Object) string {
	if _, ok := o.(*corev1.Pod); ok {
		return command.KindPod.Kind
	}
	return command.KindListener.Kind
}
