package walk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/api/reasons"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/columns"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/tenancy"
)

func (w *Walk) class(ctx context.Context, listener *listenersv1alpha1.Listener) *listenersv1alpha1.ListenerClass {
	f, class := check.Finding{Kind: "ListenerClass", Name: listener.Class()}, &listenersv1alpha1.ListenerClass{}
	if f.Name == "" { // the operator says so
		return nil
	}
	switch w.Read(ctx, f, class) {
	case check.Forbidden:
		return nil
	case check.Missing:
		w.Add(w.noClass(ctx, f.FailedBy(listenersv1alpha1.ReasonClassNotFound, "does not exist"), listener))
		return nil
	}
	var problem string
	w.Request("reading a namespace", func() (err error) {
		problem, err = tenancy.Check(ctx, w.Client, class, listener.Namespace)
		return err
	})
	switch {
	case problem != "" && listener.Status != nil && listener.Status.KeptClassName == f.Name:
		w.Add(f.Warning(listenersv1alpha1.ReasonNamespaceNotAllowed, problem+", and the Listener keeps it"))
	case problem != "":
		r := reasons.Of(listenersv1alpha1.ReasonNamespaceNotAllowed)
		w.Add(f.Failed(r.Name, problem, r.Remedy))
	default:
		w.Add(unlessDeleted(w.classFinding(f, class), class))
	}
	return class
}

// noClass completes the finding that the class of a Listener does not exist.
func (w *Walk) noClass(ctx context.Context, f check.Finding, listener *listenersv1alpha1.Listener) check.Finding {
	if claim.OwnsListener(listener) {
		return w.mistakenClass(ctx, f, types.NamespacedName{Namespace: listener.Namespace, Name: listener.Class()})
	}
	return w.DidYouMean(ctx, f, types.NamespacedName{Name: listener.Class()}, &listenersv1alpha1.ListenerClassList{})
}

// mistakenClass completes the finding that what a claim or an inline volume of a namespace names is no class.
func (w *Walk) mistakenClass(ctx context.Context, f check.Finding, key types.NamespacedName) check.Finding {
	shared := &listenersv1alpha1.Listener{}
	if w.Get(ctx, key, shared) == check.Present && !claim.OwnsListener(shared) {
		f.Message += fmt.Sprintf(", and Listener %s does", key)
		f.Remedy = fmt.Sprintf("To use this Listener, give the volume or the claim %s in place of %s.",
			names.AnnotationListenerName, names.AnnotationListenerClass)
		return f
	}
	return w.DidYouMean(ctx, f, types.NamespacedName{Name: key.Name}, &listenersv1alpha1.ListenerClassList{})
}

// mistakenListener completes the finding that what a claim or an inline volume names is no Listener.
func (w *Walk) mistakenListener(ctx context.Context, f check.Finding, key types.NamespacedName) check.Finding {
	if w.Get(ctx, types.NamespacedName{Name: key.Name}, &listenersv1alpha1.ListenerClass{}) == check.Present {
		f.Message += fmt.Sprintf(", and ListenerClass %s does", key.Name)
		f.Remedy = fmt.Sprintf("For a Listener of this class, give the volume or the claim %s in place of %s.",
			names.AnnotationListenerClass, names.AnnotationListenerName)
		return f
	}
	return w.DidYouMean(ctx, f, key, &listenersv1alpha1.ListenerList{})
}

func (w *Walk) classFinding(f check.Finding, class *listenersv1alpha1.ListenerClass) check.Finding {
	if ignored := slices.Concat(exposure.IgnoredSettings(class), exposure.UnknownOverrides(class)); len(ignored) > 0 {
		return f.Warning(listenersv1alpha1.ReasonSettingsIgnored, strings.Join(ignored, "; "))
	}
	text := "serviceType " + string(class.Spec.ServiceType)
	if backend := w.Backends.Of(class); !backend.PlainService {
		text += ", exposed by " + backend.Name
	}
	if pinning := class.Pinning(); pinning != nil {
		text += ", pinning " + string(pinning.Policy)
	}
	return f.OK("%s", text)
}

// Classes follows all classes: that there are some, and that the cluster can serve them.
func (w *Walk) Classes(ctx context.Context) {
	var classes listenersv1alpha1.ListenerClassList
	f := check.Finding{Kind: "ListenerClass"}
	if w.ReadAll(ctx, f, &classes) == check.Present && len(classes.Items) == 0 {
		w.Add(f.Warning("", "there are none, so nobody can use listener volumes; docs/choosing-a-class.md has "+
			"examples"))
	}
	for class := range check.Each(classes.Items) {
		f = check.Finding{Kind: f.Kind, Name: class.Name}
		described := w.classFinding(f, class)
		for _, kind := range w.Backends.Of(class).KindsFor(class) {
			if _, served := Served(w.Client, kind); !served {
				described = f.Failed(listenersv1alpha1.ReasonNotServed,
					fmt.Sprintf("needs %ss, and the cluster does not serve %s", kind.Kind, kind.GroupVersion()),
					"Change or delete the class: docs/choosing-a-class.md has others.")
			}
		}
		w.Add(described)
	}
}

func (w *Walk) Ranges(ctx context.Context) {
	var classes listenersv1alpha1.ListenerClassList
	var listeners listenersv1alpha1.ListenerList
	var services corev1.ServiceList
	if !w.All(ctx, &classes, &listeners, &services) {
		return
	}
	nodePorts, sharedPorts := sets.New[int32](), sets.New[int32]()
	for service := range check.Each(services.Items) {
		nodePorts = nodePorts.Union(exposure.AllocatedNodePorts(service))
	}
	waiting := map[[2]string]int{} // by class and reason
	for l := range check.Each(listeners.Items) {
		if l.Status != nil {
			nodePorts.Insert(slices.Collect(maps.Values(l.Status.NodePorts))...)
			sharedPorts.Insert(slices.Collect(maps.Values(l.Status.SharedPorts))...)
			waiting[[2]string{l.Class(), l.Status.Summary.Reason}]++
		}
	}
	var findings []check.Finding
	follow := func(class, numbers, field, reason string, taken sets.Set[int32]) {
		if r, err := utilnet.ParsePortRange(numbers); numbers != "" && err == nil {
			f := check.Finding{Kind: "ListenerClass", Name: class}
			findings = append(findings, rangeFinding(f, *r, field, reason, taken, waiting[[2]string{class, reason}]))
		}
	}
	for class := range check.Each(classes.Items) {
		follow(class.Name, class.NodePortRange(), "nodePorts.range", listenersv1alpha1.ReasonNodePortsExhausted,
			nodePorts)
		follow(class.Name, class.SharedPortRange(), "loadBalancer.sharing.portRange",
			listenersv1alpha1.ReasonSharedPortsExhausted, sharedPorts)
	}
	w.AddAll(findings, "Ranges of ports", "%d have ports left")
}

// rangeFinding returns whether ports are left in a range of a class, which is wrong only if Listeners wait for one.
func rangeFinding(f check.Finding, numbers utilnet.PortRange, field, reason string, taken sets.Set[int32],
	waiting int) check.Finding {
	left := numbers.Size
	for number := range taken {
		if numbers.Contains(int(number)) {
			left--
		}
	}
	text := fmt.Sprintf("%d of %d ports are left in spec.%s (%d-%d)", left, numbers.Size, field, numbers.Base,
		numbers.Base+numbers.Size-1)
	switch {
	case waiting > 0:
		return f.FailedBy(reason, fmt.Sprintf("%s; Listeners that wait for one: %d", text, waiting))
	case left == 0:
		return f.Warning(reason, text)
	}
	return f.OK("%s", text)
}

// UnusedDays is after how many days without a Pod a Listener is reported, unless the user says otherwise.
const UnusedDays = 7

// Unused follows the Listeners that no Pod has mounted for so many days, and that hold what others could have.
func (w *Walk) Unused(ctx context.Context, days uint16) {
	var classes listenersv1alpha1.ListenerClassList
	var listeners listenersv1alpha1.ListenerList
	if !w.All(ctx, &classes, &listeners) {
		return
	}
	unused := slices.DeleteFunc(slices.Clone(listeners.Items), func(l listenersv1alpha1.Listener) bool {
		status := ptr.Deref(l.Status, listenersv1alpha1.ListenerStatus{})
		return status.ServiceName == nil || status.UnusedSince == nil ||
			status.UnusedSince.AddDate(0, 0, int(days)).After(w.Now())
	})
	slices.SortFunc(unused, func(a, b listenersv1alpha1.Listener) int { // the oldest first
		return cmp.Or(a.Status.UnusedSince.Compare(b.Status.UnusedSince.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	byClass := map[string][]string{}
	for l := range check.Each(unused) {
		byClass[l.Class()] = append(byClass[l.Class()],
			fmt.Sprintf("%s/%s since %s", l.Namespace, l.Name, l.Status.UnusedSince.UTC().Format(time.DateOnly)))
	}
	var findings []check.Finding
	for class := range check.Each(classes.Items) {
		holds, f := w.Backends.Of(class).ScarceOf(class), check.Finding{Kind: "ListenerClass", Name: class.Name}
		switch all := byClass[class.Name]; {
		case holds == "":
		case len(all) == 0:
			findings = append(findings, f.OK("no Listener holds an unused %s", holds))
		default:
			findings = append(findings, f.Warning("", fmt.Sprintf("%d Listeners hold a %s, and no Pod has mounted "+
				"them for %d days: %s; if nobody needs them, delete their claims or Pods, or the Listeners that have "+
				"neither", len(all), holds, days, columns.Names(all))))
		}
	}
	w.AddAll(findings, "Unused addresses", "%d classes have none")
}
