package walk

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure/advertise"
	"github.com/listener-operator/listener-operator/internal/names"
)

func listenerFinding(listener *listenersv1alpha1.Listener) check.Finding {
	f := check.Finding{Kind: "Listener", Namespace: listener.Namespace, Name: listener.Name}
	accepted, ready := conditionOf(listener, listenersv1alpha1.ListenerAccepted), readyOf(listener)
	switch notReady := f.FailedBy(ready.Reason, ready.Message).Since(ready.LastTransitionTime); {
	case listener.DeletionTimestamp != nil:
		return f.FailedBy(listenersv1alpha1.ReasonListenerTerminating, deletion(listener)+
			"; its Service and its address go with it").Since(*listener.DeletionTimestamp)
	case listener.Status == nil || listener.Status.ObservedGeneration < listener.Generation || accepted.Type == "" ||
		ready.Type == "":
		return f.LeftToOperator("", "the operator has not looked at it since it was changed").
			Since(listener.CreationTimestamp)
	case accepted.Status != metav1.ConditionTrue:
		return f.FailedBy(accepted.Reason, accepted.Message+waiting(listener.Status.WaitingFor))
	case ready.Status != metav1.ConditionTrue && len(reasons.Of(ready.Reason).Causes) > 0:
		return notReady.Symptom()
	case ready.Status != metav1.ConditionTrue:
		return notReady
	case reasons.Of(ready.Reason).Severity == reasons.Error:
		return f.FailedBy(ready.Reason, ready.Message) // the operator has waited
	}
	return readyFinding(f, listener, accepted, ready)
}

func conditionOf(listener *listenersv1alpha1.Listener, kind string) metav1.Condition {
	return check.Condition(ptr.Deref(listener.Status, listenersv1alpha1.ListenerStatus{}).Conditions, kind)
}

func readyOf(listener *listenersv1alpha1.Listener) metav1.Condition {
	return conditionOf(listener, listenersv1alpha1.ListenerReady)
}

// waiting returns what a Listener waits for as the end of a message, or "".
func waiting(w *listenersv1alpha1.WaitingFor) string {
	if w == nil {
		return ""
	}
	text := "; it has waited since " + w.Since.UTC().Format(time.RFC3339) + " for " + columns.WaitingFor(w)
	if w.Holder != "" {
		text += " of Listener " + w.Holder
	}
	return text
}

// readyFinding is about a Listener that is ready. What users alone can correct is wrong although it is exposed.
func readyFinding(f check.Finding, listener *listenersv1alpha1.Listener, accepted,
	ready metav1.Condition) check.Finding {
	switch why := reasons.Of(accepted.Reason); {
	case why.Severity == reasons.Error && why.Actor == reasons.User:
		return f.FailedBy(accepted.Reason, accepted.Message)
	case ready.Reason != listenersv1alpha1.ReasonAddressesAssigned:
		return f.Warning(ready.Reason, ready.Message)
	case accepted.Reason != listenersv1alpha1.ReasonAccepted:
		return f.Warning(accepted.Reason, accepted.Message)
	}
	return f.OK("%s", columns.Address(listener.Status.IngressAddresses))
}

// okUnless returns that an object is as it should be, unless the Listener says that it waits for it.
func okUnless(f check.Finding, listener *listenersv1alpha1.Listener, format string, args ...any) check.Finding {
	ready := readyOf(listener)
	if ready.Status == metav1.ConditionFalse && slices.Contains(reasons.Of(ready.Reason).Causes, f.Kind) {
		return f.FailedBy(ready.Reason, ready.Message).Since(ready.LastTransitionTime)
	}
	return f.OK(format, args...)
}

// advertised names the addresses that are advertised for a Listener. Nothing shows whether they lead anywhere, unless
// external-dns reads where.
func (w *Walk) advertised(listener *listenersv1alpha1.Listener) {
	if c := conditionOf(listener, listenersv1alpha1.ListenerDNSReady); c.Type != "" {
		f := check.Finding{Kind: names.KindDNSEndpoint.Kind, Namespace: listener.Namespace, Name: listener.Name}
		if c.Status == metav1.ConditionTrue {
			w.Add(f.OK("external-dns has read where %s leads", columns.Address(listener.Status.IngressAddresses)))
		} else {
			w.Add(f.FailedBy(c.Reason, c.Message).Since(c.LastTransitionTime))
		}
		return
	}
	for _, f := range advertise.Forwards(listener) {
		var targets []string
		for _, t := range f.Targets {
			targets = append(targets, t.String())
		}
		w.Add(check.Finding{Kind: "Address", Name: f.HostPort()}.Warning("", fmt.Sprintf("is advertised for port %s: "+
			"what is there, which the operator does not know, has to forward to %s", f.Name, columns.Names(targets))))
	}
}

// PodsOfListener returns the Pods that mount a Listener, and whether the user may list Pods.
func (w *Walk) PodsOfListener(ctx context.Context, l *listenersv1alpha1.Listener) ([]corev1.Pod, check.Presence) {
	var pods corev1.PodList
	found := w.List(ctx, &pods, client.InNamespace(l.Namespace), client.HasLabels{names.PodMountLabel(l.UID)})
	return pods.Items, found
}
