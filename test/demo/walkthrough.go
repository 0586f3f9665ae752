package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// walkThrough uses etcd from a client outside the cluster. The client gets the address of one member, reads those of
// the others from etcd, and uses each of them. Then one Pod is replaced, and every member must have kept its address.
func (d *demo) walkThrough(ctx context.Context, pods []corev1.Pod, times *podTimes) error {
	o, err := d.outside(ctx)
	if err != nil {
		return err
	}
	address, err := d.listenerAddress(ctx, "listener-"+pods[0].Name, "client")
	if err != nil {
		return err
	}
	if err := o.checkOutside(ctx, pods); err != nil {
		return err
	}
	d.progress.Printf("the client gets the address of %s, %s, and lists etcd's members", pods[0].Name, address)
	before, err := o.members(ctx, address)
	if err != nil {
		return err
	}
	if err := checkMembers(before, pods); err != nil {
		return err
	}
	entries, err := o.write(ctx, before)
	if err != nil {
		return err
	}
	replaced, err := d.replace(ctx, &pods[0])
	if err != nil {
		return err
	}
	d.progress.Printf("the client lists the members again, at the same address")
	after, err := o.members(ctx, address)
	if err != nil {
		return err
	}
	if err := o.read(ctx, after, entries); err != nil {
		return err
	}
	if err := o.verify(ctx, after); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\n%s\n", table(rows(before, after, pods, replaced, times.start)))
	return checkUnchanged(before, after)
}

// listenerAddress returns the first ingress address of a Listener, with the port of the given name.
func (d *demo) listenerAddress(ctx context.Context, name, port string) (string, error) {
	var listener listenersv1alpha1.Listener
	key := types.NamespacedName{Namespace: etcdNamespace, Name: name}
	if err := d.client.Get(ctx, key, &listener); err != nil {
		return "", fmt.Errorf("reading Listener %s: %w", key, err)
	}
	if listener.Status == nil || len(listener.Status.IngressAddresses) == 0 {
		return "", fmt.Errorf("the status of Listener %s has no address", key)
	}
	first := listener.Status.IngressAddresses[0]
	number, ok := first.Ports[port]
	if !ok {
		return "", fmt.Errorf("the address of Listener %s has no port %q", key, port)
	}
	return net.JoinHostPort(first.Address, strconv.Itoa(int(number))), nil
}

// checkOutside checks that the client is outside the cluster: it can reach no Pod by the Pod's own address.
func (o *outsideClient) checkOutside(ctx context.Context, pods []corev1.Pod) error {
	o.progress.Printf("the client cannot reach Pods by their own addresses")
	for i := range pods {
		if err := o.checkUnreachable(ctx, pods[i].Status.PodIP, etcdPort); err != nil {
			return err
		}
	}
	return nil
}

// entry is a key that the client wrote, and its value.
type entry struct{ key, value string }

// write writes a key through each member, at the member's own address, and returns the keys with their values, which
// differ between calls.
func (o *outsideClient) write(ctx context.Context, through []member) ([]entry, error) {
	o.progress.Printf("the client writes a key through each member")
	var written []entry
	for _, m := range through {
		e := entry{"demo/" + m.Name, fmt.Sprintf("by %s at %s", m.Name, time.Now().Format("15:04:05.000000"))}
		if err := o.put(ctx, m, e.key, e.value); err != nil {
			return nil, err
		}
		written = append(written, e)
	}
	return written, nil
}

// read checks that each member, at its own address, returns each entry.
func (o *outsideClient) read(ctx context.Context, through []member, entries []entry) error {
	o.progress.Printf("the client reads every key through every member")
	for _, m := range through {
		for _, e := range entries {
			value, err := o.get(ctx, m, e.key)
			if err != nil {
				return err
			}
			if value != e.value {
				return fmt.Errorf("%s returns %s = %q, want %q", m.Name, e.key, value, e.value)
			}
		}
	}
	return nil
}

// verify checks that each member has a certificate of its own for its address.
func (o *outsideClient) verify(ctx context.Context, all []member) error {
	o.progress.Printf("the client verifies the certificate of each member for the address that it connects to")
	for _, m := range all {
		c, err := o.certificate(ctx, m)
		if err != nil {
			return err
		}
		if c.Subject.CommonName != m.Name {
			return fmt.Errorf("the certificate at the address of %s is that of %s", m.Name, c.Subject)
		}
		fmt.Fprintf(o.out, "    %s at %s: %s, issued by %s, valid until %s\n", m.Name, m.Address, c.Subject, c.Issuer, c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// replace deletes a Pod of etcd, and returns all Pods when the new one is ready.
func (d *demo) replace(ctx context.Context, pod *corev1.Pod) ([]corev1.Pod, error) {
	d.progress.Printf("deleting Pod %s", pod.Name)
	deleted := time.Now()
	if err := d.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
		return nil, fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
	}
	pods, err := d.awaitEtcd(ctx, pod)
	if err != nil {
		return nil, err
	}
	d.progress.Printf("%s was ready again %.1fs after its deletion", pod.Name, time.Since(deleted).Seconds())
	return pods, nil
}

// checkMembers returns an error unless each Pod runs one of the members, with an address of its own. Both lists are
// sorted by name.
func checkMembers(found []member, pods []corev1.Pod) error {
	if len(found) != len(pods) {
		return fmt.Errorf("etcd has %d members in %d Pods", len(found), len(pods))
	}
	addresses := map[string]string{}
	for i, m := range found {
		if m.Name != pods[i].Name {
			return fmt.Errorf("etcd's member %s is not in a Pod of that name", m.Name)
		}
		if other, taken := addresses[m.Address]; taken {
			return fmt.Errorf("%s and %s both have the address %s", other, m.Name, m.Address)
		}
		addresses[m.Address] = m.Name
	}
	return nil
}

// checkUnchanged returns an error that names the members whose identity or address changed.
func checkUnchanged(before, after []member) error {
	if len(before) != len(after) {
		return fmt.Errorf("etcd had %d members and now has %d", len(before), len(after))
	}
	var errs []error
	for i, m := range before {
		if after[i] != m {
			errs = append(errs, fmt.Errorf("member %x %s at %s is now %x %s at %s", m.ID, m.Name, m.Address, after[i].ID, after[i].Name, after[i].Address))
		}
	}
	return errors.Join(errs...)
}
