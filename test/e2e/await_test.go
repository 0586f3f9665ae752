//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// await watches an object until it meets the condition, and returns it.
func await[T client.Object](ctx context.Context, o T, key client.ObjectKey, condition func(T) bool) (T, error) {
	last := "it does not exist"
	for {
		found, err := watchUntil(ctx, o, selectObject(key), func(kind watch.EventType, seen T) bool {
			if kind == watch.Deleted {
				last = "it was deleted"
				return false
			}
			raw, _ := json.Marshal(seen)
			last = string(raw)
			return condition(seen)
		})
		if errors.Is(err, errWatchEnded) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return o, fmt.Errorf("waiting for %T %s: %w; last seen: %s", o, key, err, last)
		}
		return found, nil
	}
}

// awaitDeleted waits until an object does not exist.
func awaitDeleted[T client.Object](ctx context.Context, o T, key client.ObjectKey) error {
	for {
		list, err := listFor(o)
		if err != nil {
			return err
		}
		if err := api.List(ctx, list, selectObject(key)); err != nil {
			return fmt.Errorf("waiting for the deletion of %T %s: %w", o, key, err)
		}
		if meta.LenList(list) == 0 {
			return nil
		}
		// The watch starts at the list's version, so that a deletion in between is not missed.
		options := selectObject(key)
		options.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
		var finalizers []string
		_ = meta.EachListItem(list, func(left runtime.Object) error {
			finalizers = left.(T).GetFinalizers()
			return nil
		})
		_, err = watchUntil(ctx, o, options, func(kind watch.EventType, _ T) bool { return kind == watch.Deleted })
		if err != nil && !errors.Is(err, errWatchEnded) {
			return fmt.Errorf("waiting for the deletion of %T %s, which had the finalizers %q: %w", o, key, finalizers, err)
		}
	}
}

// errWatchEnded means that the API server closed a watch, which it may do at any time.
var errWatchEnded = errors.New("the watch ended")

// selectObject returns the options that select a single object.
func selectObject(key client.ObjectKey) *client.ListOptions {
	return &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)}
}

// watchUntil watches objects, and calls done for each event until it returns true. Unless the options have a resource
// version, the first events are about the existing objects.
func watchUntil[T client.Object](ctx context.Context, o T, options *client.ListOptions, done func(watch.EventType, T) bool) (T, error) {
	list, err := listFor(o)
	if err != nil {
		return o, err
	}
	changes, err := api.Watch(ctx, list, options)
	if err != nil {
		return o, err
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return o, ctx.Err()
		case change, open := <-changes.ResultChan():
			if !open {
				return o, errors.Join(errWatchEnded, ctx.Err())
			}
			if seen, ok := change.Object.(T); ok && done(change.Type, seen) {
				return seen, nil
			}
		}
	}
}

// listFor returns an empty list of an object's kind.
func listFor(o client.Object) (client.ObjectList, error) {
	gvk, err := api.GroupVersionKindFor(o)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	if _, ok := o.(*unstructured.Unstructured); ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := api.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}

func mustAwait[T client.Object](s *scenario, o T, key client.ObjectKey, condition func(T) bool) T {
	s.Helper()
	found, err := await(s.timeoutContext(), o, key, condition)
	s.must(err)
	return found
}

func mustAwaitDeleted[T client.Object](s *scenario, o T, key client.ObjectKey) {
	s.Helper()
	s.must(awaitDeleted(s.timeoutContext(), o, key))
}

// removeAndAwait deletes an object, and waits until it does not exist.
func (s *scenario) removeAndAwait(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	s.remove(o, options...)
	mustAwaitDeleted(s, o, client.ObjectKeyFromObject(o))
}

// awaitReady waits until a Pod is ready, and is none of those before.
func (s *scenario) awaitReady(name string, before ...*corev1.Pod) *corev1.Pod {
	s.Helper()
	return mustAwait(s, &corev1.Pod{}, s.key(name), func(p *corev1.Pod) bool {
		for _, b := range before {
			if p.UID == b.UID {
				return false
			}
		}
		return isReady(p)
	})
}

// checkNotRestarted fails the test unless a Pod is ready and neither it nor its container was replaced.
func (s *scenario) checkNotRestarted(p *corev1.Pod) {
	s.Helper()
	if now := s.awaitReady(p.Name); now.UID != p.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		s.Errorf("Pod %s was restarted", p.Name)
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isRolledOut reports whether a DaemonSet runs its current template on all of its nodes.
func isRolledOut(d *appsv1.DaemonSet) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled &&
		d.Status.NumberReady == d.Status.DesiredNumberScheduled
}

// awaitListener waits until a Listener has this number of addresses.
func (s *scenario) awaitListener(name string, addresses int) *listenersv1alpha1.Listener {
	s.Helper()
	return mustAwait(s, &listenersv1alpha1.Listener{}, s.key(name), func(l *listenersv1alpha1.Listener) bool {
		return l.Status != nil && l.Status.IngressAddresses != nil && len(l.Status.IngressAddresses) == addresses
	})
}

// awaitCondition waits until a Listener's condition has this status and reason, and these words in its message, and
// returns the message.
func (s *scenario) awaitCondition(name, kind string, status metav1.ConditionStatus, reason string, words ...string) (message string) {
	s.Helper()
	mustAwait(s, &listenersv1alpha1.Listener{}, s.key(name), func(l *listenersv1alpha1.Listener) bool {
		if l.Status == nil {
			return false
		}
		c := meta.FindStatusCondition(l.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || !containsAll(c.Message, words) {
			return false
		}
		message = c.Message
		return true
	})
	return message
}

// awaitEvent waits for an event on an object with this reason and these words in its note, and returns the note.
func (s *scenario) awaitEvent(kind, name, reason string, words ...string) string {
	s.Helper()
	ctx := s.timeoutContext()
	changes, err := api.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(s.namespace))
	if err != nil {
		s.Fatalf("watching events: %v", err)
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		e, ok := change.Object.(*eventsv1.Event)
		if ok && e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason && containsAll(e.Note, words) {
			return e.Note
		}
	}
	s.Fatalf("no event %s on %s %s with the words %q", reason, kind, name, words)
	return ""
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// eventually polls until try returns no error, for what cannot be watched. If ctx is done before, it returns the last
// error.
func eventually(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

// eventually polls until try returns no error, and ends the scenario with the last error after its timeout.
func (s *scenario) eventually(try func(context.Context) error) {
	s.Helper()
	s.must(eventually(s.timeoutContext(), try))
}

// awaitPodListener waits until a Pod's PodListeners object has an address for one of its volumes, and returns the
// entry.
func (s *scenario) awaitPodListener(p *corev1.Pod, volume string) listenersv1alpha1.PodListener {
	s.Helper()
	return s.awaitEntry(p, volume, func(entry listenersv1alpha1.PodListener) bool { return len(entry.IngressAddresses) > 0 })
}

// awaitEntry waits until a Pod's PodListeners object has an entry for one of its volumes that meets the condition.
func (s *scenario) awaitEntry(p *corev1.Pod, volume string, condition func(listenersv1alpha1.PodListener) bool) listenersv1alpha1.PodListener {
	s.Helper()
	key := s.key(listenersv1alpha1.PodListenersName(p.UID))
	found := mustAwait(s, &listenersv1alpha1.PodListeners{}, key, func(l *listenersv1alpha1.PodListeners) bool {
		return condition(l.Spec.Listeners[volume])
	})
	return found.Spec.Listeners[volume]
}

// awaitReachable waits until a Pod is ready, and a client outside the cluster reaches it at the address that its
// PodListeners object has for its volume "listener".
func (s *scenario) awaitReachable(name string, before ...*corev1.Pod) (*corev1.Pod, listenersv1alpha1.IngressAddress) {
	s.Helper()
	p := s.awaitReady(name, before...)
	own := s.awaitPodListener(p, "listener").IngressAddresses[0]
	s.awaitAnswer(own, name)
	return p, own
}
