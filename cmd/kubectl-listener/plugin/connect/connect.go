// Package connect has the command `kubectl listener connect`, which tries each address of a Pod or a Listener.
package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/ca"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
)

const DefaultTimeout = 5 * time.Second

const maxConnections = 16

func NewCommand(e *command.Environment) *cobra.Command {
	var how Options
	var useTLS bool
	var caFile string
	kinds := append([]command.Kind{command.KindPod, command.KindListener}, command.Workloads()...)
	cmd := &cobra.Command{
		Use:   "connect (POD | [KIND/]NAME)",
		Short: "Try each address of a Pod, a Listener or a workload from where you are",
		Long: `Try each address of a Pod, a Listener or a workload from where you are.

The command opens a TCP connection to each address with each port, and closes it at once. It sends nothing, so it does
not test whether the right program responds. It does not try other protocols. KIND is pod, listener, or a kind of
workload such as statefulset, whose Pods are all tried. Without a kind, NAME is the first of these that exists, in this
order.

With --tls, the command begins a TLS session, and verifies the server's certificate as a client has to: it must be for
the address, valid now, and signed by an authority of the namespace, or of the file that --ca-file names. The command
has no certificate of its own, so a server that requires one then ends the connection.

Run the command where the clients are: an address that you can reach from here may be out of reach elsewhere.`,
		Example: `  # Can I reach this broker?
  kubectl listener connect kafka-0

  # Can I reach each of them?
  kubectl listener connect sts/kafka

  # All addresses of a Listener, with a shorter timeout
  kubectl listener connect listener/kafka-bootstrap --timeout 1s

  # Which certificate does a client see, and is it for the address?
  kubectl listener connect kafka-0 --tls`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.CompleteNames(1, kinds...),
		RunE: e.Examine(command.WriteChecks, func(ctx context.Context, x *check.Examination, args []string) error {
			if how.Timeout <= 0 {
				return fmt.Errorf("--timeout is %s, and must be positive", how.Timeout)
			}
			o, err := e.Find(ctx, x.Client, args, kinds...)
			if err != nil {
				return err
			}
			if useTLS || caFile != "" {
				if how.Trusted, err = trusted(ctx, x.Client, o.GetNamespace(), caFile); err != nil {
					return err
				}
			}
			Try(ctx, x, o, how)
			return nil
		}),
	}
	e.AddOutputFlag(cmd)
	cmd.Flags().DurationVar(&how.Timeout, "timeout", DefaultTimeout, "How long to wait for each connection.")
	cmd.Flags().BoolVar(&useTLS, "tls", false, "Begin a TLS session, and verify the certificate for each address.")
	cmd.Flags().StringVar(&caFile, "ca-file", "",
		"File with the authorities to trust, in PEM. Defaults to the authorities of the namespace. Implies --tls.")
	return cmd
}

type Options struct {
	Timeout time.Duration
	// Trusted are the authorities whose certificates are accepted. Nil means that there is no TLS.
	Trusted *x509.CertPool
}

// Try connects to each address of a Pod, a Listener or a workload, and reports the results.
func Try(ctx context.Context, x *check.Examination, o client.Object, how Options) {
	w := walk.New(x)
	var endpoints []endpoint
	for _, target := range targets(ctx, w, o) {
		own := endpointsOf(ctx, w, target)
		if len(own) == 0 {
			x.Add(x.About(target).Failed("", "has no address", "Find out why: "+w.Command("why", target)))
		}
		for _, e := range own {
			if !slices.ContainsFunc(endpoints, e.same) {
				endpoints = append(endpoints, e)
			}
		}
	}
	dialled, errs := make([]check.Finding, len(endpoints)), make([]error, len(endpoints))
	dial := func(i int) { dialled[i], errs[i] = endpoints[i].dial(ctx, how) }
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), maxConnections, len(endpoints), dial) // dial ends with ctx
	paths := map[client.Object]string{}
	for i, f := range dialled {
		if errs[i] != nil {
			f.Remedy = endpoints[i].remedy(ctx, w, errs[i], paths)
		}
		x.Add(f)
	}
}

func targets(ctx context.Context, w *walk.Walk, o client.Object) (all []client.Object) {
	switch o.(type) {
	case *corev1.Pod, *listenersv1alpha1.Listener:
		return []client.Object{o}
	}
	pods, _ := w.PodsOfWorkload(ctx, o)
	for i := range pods {
		all = append(all, &pods[i])
	}
	if len(all) == 0 {
		w.Add(w.About(o).Failed("", "has no Pod", "Find out why: "+w.Command("why", o)))
	}
	return all
}

// remedy returns what to do about an error of a connection. paths are the remedies for silence, by objects.
func (e *endpoint) remedy(ctx context.Context, w *walk.Walk, err error, paths map[client.Object]string) string {
	var dns *net.DNSError
	var network net.Error
	switch {
	case e.target != "": // what is in front of the cluster has to respond
		return fmt.Sprintf("The class advertises this address, and the operator does not know what is there. Make "+
			"sure that it forwards to %s, and that you can reach it from here: docs/advertise.md", e.target)
	case errors.As(err, &dns):
		return cmp.Or(e.remedyForName(ctx, w),
			"Your DNS server does not know the name. Use one that does, or ask for a class with "+
				"preferredAddressType: IP.")
	case errors.Is(err, syscall.ECONNREFUSED):
		return e.remedyForRefusal(ctx, w)
	}
	if _, ok := paths[e.object]; !ok {
		paths[e.object] = e.remedyForSilence(ctx, w)
	}
	otherwise := "See whether there is a route to the address from here: docs/choosing-a-class.md"
	if errors.As(err, &network) && network.Timeout() {
		otherwise = "Nothing responds. A firewall may drop the packets, or there is no route to the address from " +
			"here: docs/choosing-a-class.md"
	}
	return cmp.Or(paths[e.object], otherwise)
}

// remedyForSilence returns what to do if nothing responds: what is wrong on the path of the address, or "".
func (e *endpoint) remedyForSilence(ctx context.Context, w *walk.Walk) string {
	path := w.Apart()
	path.Examine(ctx, e.object)
	w.Err = cmp.Or(w.Err, path.Err)
	path.Conclude()
	f := path.Problem
	for i := range path.Findings {
		if warning := &path.Findings[i]; f == nil && warning.State == check.Warning &&
			slices.Contains([]string{"NetworkPolicy", "Listener", "ListenerClass"}, warning.Kind) {
			f = warning
		}
	}
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s. See why: %s", f.Object(), f.Text(), w.Command("why", e.object))
}

// remedyForRefusal returns what to do if a machine says that nothing listens at an endpoint: Kubernetes may send
// clients to no Pod, or the program in a Pod that is ready may listen elsewhere.
func (e *endpoint) remedyForRefusal(ctx context.Context, w *walk.Walk) string {
	const refusal = "The machine responds, but nothing listens on the port. "
	pods, _ := w.PodsOfListener(ctx, e.listener)
	if pod, ok := e.object.(*corev1.Pod); ok {
		pods = []corev1.Pod{*pod}
	}
	notReady := func(pod corev1.Pod) bool { return !claim.PodReady(&pod) }
	service := w.ServiceOf(ctx, e.listener.Namespace, e.listener.Name)
	if len(pods) == 0 || service == nil || slices.ContainsFunc(pods, notReady) {
		return refusal + "See whether its Pods are ready: " + w.Command("why", e.object)
	}
	port := ""
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; p.Name == e.port {
			port = " on port " + p.TargetPort.String()
		}
	}
	return fmt.Sprintf("%sPod %s is ready, so see whether its program listens%s, on all addresses and not only on "+
		"127.0.0.1: kubectl logs %s --namespace %s. If it does, see whether kube-proxy or its replacement runs on "+
		"the nodes, and serves this address: docs/classes.md#which-address-of-a-node", refusal, pods[0].Name, port,
		pods[0].Name, pods[0].Namespace)
}

// remedyForName returns what to do if the name of a Listener cannot be resolved, if it leads to Pods, or "".
func (e *endpoint) remedyForName(ctx context.Context, w *walk.Walk) string {
	service := w.ServiceOf(ctx, e.listener.Namespace, e.listener.Name)
	if service == nil || !exposure.IsHeadless(service) {
		return ""
	}
	pod := "Pod that is ready"
	if service.Spec.PublishNotReadyAddresses {
		pod = "Pod"
	}
	return fmt.Sprintf("The name leads to Pods, and exists only while a %s mounts Listener %s: %s. If there is one, "+
		"make sure that your DNS server knows the name: docs/pod-addresses.md",
		pod, client.ObjectKeyFromObject(e.listener), w.Command("why", e.object))
}

// endpoint is an address of a Listener with the number of a port, and that port. target is where to forward connections
// to if the class advertises the address, and otherwise empty.
type endpoint struct {
	address, port string
	target        string
	protocol      corev1.Protocol
	listener      *listenersv1alpha1.Listener
	object        client.Object
}

func (e *endpoint) same(other endpoint) bool {
	return other.address == e.address && other.port == e.port && other.protocol == e.protocol
}

// endpointsOf returns the addresses of a Pod or a Listener with their ports, in the order of preference.
func endpointsOf(ctx context.Context, w *walk.Walk, o client.Object) []endpoint {
	if listener, ok := o.(*listenersv1alpha1.Listener); ok {
		return appendEndpoints(nil, ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).IngressAddresses,
			listener, o)
	}
	pod, found := w.PodListeners(ctx, o)
	if found == check.Forbidden {
		w.Err = cmp.Or(w.Err, fmt.Errorf("you may not read PodListeners %s/%s", o.GetNamespace(),
			listenersv1alpha1.PodListenersName(o.GetUID())))
	}
	var endpoints []endpoint
	for _, volume := range slices.Sorted(maps.Keys(pod.Spec.Listeners)) {
		entry := pod.Spec.Listeners[volume]
		listener := &listenersv1alpha1.Listener{}
		w.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: entry.ListenerName}, listener)
		endpoints = appendEndpoints(endpoints, entry.IngressAddresses, listener, o)
	}
	if w.Err != nil {
		return nil
	}
	return endpoints
}

func appendEndpoints(
	list []endpoint, addresses []listenersv1alpha1.IngressAddress, listener *listenersv1alpha1.Listener,
	o client.Object,
) []endpoint {
	targets := map[[2]string]string{}
	for _, f := range advertise.Forwards(listener) {
		targets[[2]string{f.HostPort(), f.Name}] = f.Targets[0].String()
	}
	for _, a := range addresses {
		for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
			address := a.HostPort(name)
			list = append(list, endpoint{address, name, targets[[2]string{address, name}], listener.PortProtocol(name),
				listener, o})
		}
	}
	return list
}

func (e *endpoint) dial(ctx context.Context, how Options) (check.Finding, error) {
	f := check.Finding{Kind: "Address", Name: e.address}
	if e.protocol != corev1.ProtocolTCP {
		return f.Warning("", fmt.Sprintf("port %s: the command does not try %s", e.port, e.protocol)), nil
	}
	started := time.Now()
	connection, err := (&net.Dialer{Timeout: how.Timeout}).DialContext(ctx, "tcp", e.address)
	if err != nil {
		return f.Failed("", fmt.Sprintf("port %s: %v", e.port, err), ""), err
	}
	defer func() { _ = connection.Close() }()
	if how.Trusted != nil {
		return e.handshake(ctx, f, connection, how), nil
	}
	return f.OK("port %s: connected in %s", e.port, time.Since(started).Round(time.Millisecond)), nil
}

func trusted(ctx context.Context, c client.Client, namespace, file string) (*x509.CertPool, error) {
	var certificates []byte
	if file != "" {
		var err error
		if certificates, err = os.ReadFile(file); err != nil { //nolint:gosec // the user names the file
			return nil, fmt.Errorf("reading --ca-file: %w", err)
		}
	} else {
		published, err := ca.Certificates(ctx, c, namespace)
		if err != nil {
			return nil, fmt.Errorf("%w; or use --ca-file for the authority of the servers", err)
		}
		certificates = []byte(published)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificates) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}

func (e *endpoint) handshake(ctx context.Context, f check.Finding, connection net.Conn, how Options) check.Finding {
	host, _, _ := net.SplitHostPort(e.address)
	ctx, cancel := context.WithTimeout(ctx, how.Timeout)
	defer cancel()
	started := time.Now()
	session := tls.Client(connection, &tls.Config{RootCAs: how.Trusted, ServerName: host, MinVersion: tls.VersionTLS12})
	if err := session.HandshakeContext(ctx); err != nil {
		message, remedy := remedyForHandshake(err)
		return f.Failed("", fmt.Sprintf("port %s: %s", e.port, message), remedy)
	}
	server := session.ConnectionState().PeerCertificates[0]
	return f.OK("port %s: verified in %s: %s, issued by %s, valid until %s", e.port,
		time.Since(started).Round(time.Millisecond),
		server.Subject, server.Issuer, server.NotAfter.UTC().Format(time.RFC3339))
}

// remedyForHandshake returns what is wrong with a TLS session, and what to do about it.
func remedyForHandshake(err error) (message, remedy string) {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &hostname):
		all := hostname.Certificate.DNSNames
		for _, ip := range hostname.Certificate.IPAddresses {
			all = append(all, ip.String())
		}
		return "the certificate is not for this address, but for " + cmp.Or(strings.Join(all, ", "), "none"),
			"If the program does not read its certificate again when the file changes, restart the Pod: docs/tls.md"
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of %s is signed by %s, which is not trusted", unknown.Cert.Subject,
				unknown.Cert.Issuer),
			"See whether the operator has issued this certificate. If another authority has, use --ca-file: docs/tls.md"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate is valid from %s until %s",
				invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339)),
			"The program has to read its certificate again when the file changes: docs/tls.md. If the certificate is " +
				"new, compare the clocks."
	case errors.As(err, &record):
		return "the server does not begin with TLS",
			"Enable TLS at this port in the configuration of the program: docs/tls.md"
	}
	return err.Error(), "See the log of the program."
}
