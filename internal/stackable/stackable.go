// Package stackable recognizes Stackable's listener operator by its Pods, which the operator watches anyway, and not by
// the names of its objects: its Helm release and its namespace may have any. Pods show what runs, so an object that was
// left behind without Pods, such as a Deployment with no replicas, does not count.
//
// It must never take a Pod of this operator for one of Stackable's, nor one that a tenant has made to look like one.
package stackable

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// Labels of the Pods, in all versions of the Helm chart, and in the manifests that the bundle for OLM deploys.
const (
	labelName = "app.kubernetes.io/name"
	labelRole = "app.kubernetes.io/role"
	appName   = "listener-operator"
)

// socketDirectory is the directory of the driver's socket in that of the kubelet.
const socketDirectory = "/plugins/" + names.Driver

// overdue is how long the deletion of a Pod may take beyond its grace period. A Pod that exists for longer is on a node
// that is down, and would exist until the node is back.
const overdue = time.Minute

// Field is the name of the index of Pods that Resembles passes. Their only value is "true".
const Field = "pod.stackable"

func Index(o client.Object) []string {
	if Resembles(o.(*corev1.Pod)) {
		return []string{"true"}
	}
	return nil
}

// Resembles reports whether a Pod may belong to Stackable's listener operator, by what never changes in it, and what
// the cache keeps: it is a node driver, or it has the labels of a Pod with the controller, which Running then checks.
func Resembles(pod *corev1.Pod) bool { return isNodeDriver(pod) || hasLabels(pod) }

// isNodeDriver reports whether a Pod has the directory of the driver's socket, which takes permission to use
// directories of nodes. It must have a controller other than a node, whose kubelet can create static Pods with any
// volume, and other than this operator's DaemonSet.
func isNodeDriver(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "Node" || names.IsNodeAgent(pod) {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, isSocketDirectory)
}

// Pods passes Pods that Resembles passes, also before an update.
func Pods() predicate.Predicate {
	resembles := predicate.NewPredicateFuncs(func(o client.Object) bool { return Resembles(o.(*corev1.Pod)) })
	resembles.UpdateFunc = func(e event.UpdateEvent) bool {
		return Resembles(e.ObjectOld.(*corev1.Pod)) || Resembles(e.ObjectNew.(*corev1.Pod))
	}
	return resembles
}

func isSocketDirectory(volume corev1.Volume) bool {
	return volume.HostPath != nil && strings.HasSuffix(path.Clean(volume.HostPath.Path), socketDirectory)
}

// hasLabels reports whether a Pod has the labels of one with the controller. Versions before 25.7 have the second role.
func hasLabels(pod *corev1.Pod) bool {
	role := pod.Labels[labelRole]
	return pod.Labels[labelName] == appName && (role == "provisioner" || role == "controller")
}

// Keep copies what this package reads of a Pod that Resembles passes, but its metadata other than labels and owner.
func Keep(kept, pod *corev1.Pod) {
	for _, key := range []string{labelName, labelRole, appsv1.DefaultDeploymentUniqueLabelKey} {
		if value, ok := pod.Labels[key]; ok {
			metav1.SetMetaDataLabel(&kept.ObjectMeta, key, value)
		}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	kept.Spec.ServiceAccountName = pod.Spec.ServiceAccountName
	if i := slices.IndexFunc(pod.Spec.Volumes, isSocketDirectory); i >= 0 {
		volume := corev1.Volume{Name: pod.Spec.Volumes[i].Name}
		volume.HostPath = &corev1.HostPathVolumeSource{Path: pod.Spec.Volumes[i].HostPath.Path}
		kept.Spec.Volumes = []corev1.Volume{volume}
	}
}

// Workload is what an administrator has to remove to get rid of Pods: a Deployment, a DaemonSet, or another controller.
type Workload struct{ Kind, Namespace, Name string }

func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

type Installation struct {
	// Workloads are what runs its Pods, sorted by kind, namespace and name. Empty if it does not run.
	Workloads []Workload
	// KubeletDir is the root directory of the kubelet for which its node driver is configured. Empty if it is unknown.
	KubeletDir string
	// Recheck is the time after which this may change without an event, or 0.
	Recheck time.Duration
}

func (i Installation) Names() []string {
	all := make([]string, 0, len(i.Workloads))
	for _, w := range i.Workloads {
		all = append(all, w.String())
	}
	return all
}

// Finder finds what runs of Stackable's listener operator. It must not be used concurrently; the zero value is usable.
type Finder struct {
	reviews map[types.NamespacedName]review
}

// review is whether a ServiceAccount may write the status of all Listeners, and since when that is known.
type review struct {
	allowed bool
	at      time.Time
}

// Everybody can create Pods that resemble Stackable's, so their reviews must not delay the start of this operator.
const (
	reviewed    = time.Minute // is how long a review is used
	maxAccounts = 8           // of a namespace are reviewed, those of the oldest Pods
)

// Running returns what of Stackable's listener operator runs. The client reads from a cache with the index Field.
func (f *Finder) Running(ctx context.Context, c client.Client, now time.Time) (Installation, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingFields{Field: "true"}); err != nil {
		return Installation{}, fmt.Errorf("listing pods that may be those of another operator: %w", err)
	}
	return f.Among(ctx, c, pods.Items, now)
}

// Among returns what of Stackable's listener operator runs, if all Pods that Resembles passes are among these.
func (f *Finder) Among(ctx context.Context, c client.Client, pods []corev1.Pod, now time.Time) (Installation, error) {
	var found Installation
	pods = slices.SortedStableFunc(slices.Values(pods), func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	accounts := map[string]sets.Set[string]{} // by namespace
	for i := range pods {
		pod := &pods[i]
		if !Resembles(pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if pod.DeletionTimestamp != nil {
			remaining := pod.DeletionTimestamp.Add(overdue).Sub(now)
			if remaining <= 0 {
				continue
			}
			found.Recheck = max(found.Recheck, remaining)
		}
		r, err := f.belongs(ctx, c, pod, accounts, now)
		if err != nil {
			return Installation{}, err
		}
		if !r.allowed {
			found.Recheck = max(found.Recheck, r.at.Add(reviewed).Sub(now))
			continue
		}
		found.Workloads = append(found.Workloads, workload(pod))
		if n := slices.IndexFunc(pod.Spec.Volumes, isSocketDirectory); n >= 0 && found.KubeletDir == "" {
			found.KubeletDir = strings.TrimSuffix(path.Clean(pod.Spec.Volumes[n].HostPath.Path), socketDirectory)
		}
	}
	maps.DeleteFunc(f.reviews, func(_ types.NamespacedName, r review) bool { return now.Sub(r.at) >= reviewed })
	slices.SortFunc(found.Workloads, func(a, b Workload) int { return strings.Compare(a.String(), b.String()) })
	found.Workloads = slices.Compact(found.Workloads)
	return found, nil
}

// belongs returns whether a Pod that Resembles passes is one of Stackable's listener operator: it is a node driver, or
// a review says so. accounts are those of the Pods before, by namespace.
func (f *Finder) belongs(
	ctx context.Context, c client.Client, pod *corev1.Pod, accounts map[string]sets.Set[string], now time.Time,
) (review, error) {
	if isNodeDriver(pod) {
		return review{allowed: true}, nil
	}
	own := accounts[pod.Namespace]
	if own == nil {
		own = sets.New[string]()
		accounts[pod.Namespace] = own
	}
	if len(own) == maxAccounts && !own.Has(pod.Spec.ServiceAccountName) {
		return review{}, nil
	}
	own.Insert(pod.Spec.ServiceAccountName)
	return f.review(ctx, c, pod, now)
}

// review returns whether the ServiceAccount of a Pod that has nothing but the labels may write the status of all
// Listeners. Otherwise the Pod does not count: everybody can set labels, so a tenant could stop this operator by a Pod,
// and a Pod without this permission writes nothing that matters.
func (f *Finder) review(ctx context.Context, c client.Client, pod *corev1.Pod, now time.Time) (review, error) {
	account := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
	if r, known := f.reviews[account]; known && now.Sub(r.at) < reviewed {
		return r, nil
	}
	accounts := "system:serviceaccounts"
	request := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		Groups: []string{accounts, accounts + ":" + account.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: listenersv1alpha1.GroupVersion.Group, Resource: "listeners", Subresource: "status",
		},
	}}
	if err := c.Create(ctx, request); err != nil {
		return review{}, fmt.Errorf("reviewing the permissions of ServiceAccount %s: %w", account, err)
	}
	if f.reviews == nil {
		f.reviews = map[types.NamespacedName]review{}
	}
	r := review{allowed: request.Status.Allowed, at: now}
	f.reviews[account] = r
	return r, nil
}

func workload(pod *corev1.Pod) Workload {
	kind, name := "Pod", pod.Name
	if owner := metav1.GetControllerOf(pod); owner != nil {
		kind, name = owner.Kind, owner.Name
	}
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if deployment, ok := strings.CutSuffix(name, "-"+hash); ok && kind == "ReplicaSet" && hash != "" {
		kind, name = "Deployment", deployment
	}
	return Workload{Kind: kind, Namespace: pod.Namespace, Name: name}
}

// externalStable is the class that differs between the presets.
const externalStable = "external-stable"

// presetClasses are the names of the classes of all presets (contract: preset classes).
var presetClasses = []string{"cluster-internal", "external-unstable", externalStable}

// Settings returns the settings of Stackable's listener operator, which may have been removed, as far as classes and
// Listeners show them; the others are empty. resolver is the DNS domain that this operator's resolver has, or empty.
func Settings(classes []listenersv1alpha1.ListenerClass, listeners []listenersv1alpha1.Listener,
	resolver string) operatorv1alpha1.ListenerOperatorSpec {
	listeners = slices.DeleteFunc(slices.Clone(listeners),
		func(l listenersv1alpha1.Listener) bool { return l.Status == nil })
	spec := operatorv1alpha1.ListenerOperatorSpec{Preset: earlierPreset(classes, listeners)}
	domain := earlierClusterDomain(listeners)
	if domain != (&operatorv1alpha1.ListenerOperator{}).ClusterDomain(resolver) {
		spec.ClusterDomain = domain
	}
	return spec
}

// earlierPreset returns the preset of the installation that has exposed the Listeners, or "" if it is unknown. Classes
// may have been deleted with that installation, because a Helm chart contained them; then Listeners name them.
func earlierPreset(classes []listenersv1alpha1.ListenerClass,
	listeners []listenersv1alpha1.Listener) operatorv1alpha1.Preset {
	existing := slices.ContainsFunc(classes, func(c listenersv1alpha1.ListenerClass) bool {
		return slices.Contains(presetClasses, c.Name)
	})
	used := slices.ContainsFunc(listeners, func(l listenersv1alpha1.Listener) bool {
		return slices.Contains(presetClasses, l.Class())
	})
	pinning := slices.ContainsFunc(classes, func(c listenersv1alpha1.ListenerClass) bool {
		return c.Name == externalStable && c.Spec.ServiceType == listenersv1alpha1.ServiceTypeNodePort
	})
	pinned := slices.ContainsFunc(listeners, func(l listenersv1alpha1.Listener) bool {
		return l.Class() == externalStable && len(l.Status.NodePorts) > 0
	})
	switch {
	case len(listeners) > 0 && !existing && !used:
		return operatorv1alpha1.PresetNone
	case pinning, !existing && pinned:
		return operatorv1alpha1.PresetStableNodes
	}
	return ""
}

// earlierClusterDomain returns the DNS domain of the cluster that all host names of Listeners end with, or "".
func earlierClusterDomain(listeners []listenersv1alpha1.Listener) string {
	domains := sets.New[string]()
	for i := range listeners {
		l := &listeners[i]
		for _, a := range l.Status.IngressAddresses {
			if domain, ok := strings.CutPrefix(a.Address, l.Name+"."+l.Namespace+".svc."); ok {
				domains.Insert(domain)
			}
		}
	}
	if len(domains) != 1 {
		return ""
	}
	domain, _ := domains.PopAny()
	return domain
}
