package topology

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/index"
)

type graph struct {
	namespace string // or "" for all
	listeners []*subject
	pods      []*subject          // with listener volumes
	nodes     map[string]*subject // those with replicas, and "" for Pods that are not on a node yet
	// notes are what the user has to know about the whole picture.
	notes []string
	byID  map[string]*subject
	// outdated is closed when the server has another graph.
	outdated chan struct{}
}

func (g *graph) title() string {
	if g.namespace == "" {
		return "Listeners of all namespaces"
	}
	return "Listeners of namespace " + command.Printable(g.namespace)
}

type subject struct {
	object client.Object // nil for what the user may not read
	kind   string
	key    types.NamespacedName
	report *check.Report
	// says is the problem of the report, or else what is known about the object itself.
	says check.Finding
	text string

	// Of a Listener: exposure is how it is exposed, and exposed what is known about the objects that expose it.
	class, exposure string
	exposed         check.Finding
	addresses       []listenersv1alpha1.IngressAddress

	// Of a Pod: volumes are its listener volumes, and listeners the names of their Listeners. node may be "".
	volumes   map[string]listenersv1alpha1.PodListener
	listeners []string
	node      string
}

func (s *subject) id() string { return s.kind + "/" + s.key.String() }

// observe returns what a client shows of a namespace, or of all if that is "".
func observe(ctx context.Context, c client.Client, list backends.List, namespace string) (*graph, error) {
	g := &graph{namespace: namespace, nodes: map[string]*subject{"": {kind: "Node"}}, byID: map[string]*subject{},
		outdated: make(chan struct{})}
	var listeners listenersv1alpha1.ListenerList
	switch err := c.List(ctx, &listeners, client.InNamespace(namespace)); {
	case meta.IsNoMatchError(err):
		return nil, command.ErrNotServed
	case err != nil:
		return nil, fmt.Errorf("listing Listeners: %w", err)
	}
	w := walk.New(&check.Examination{Client: c, Backends: list})
	for i := range listeners.Items {
		g.listeners = append(g.listeners, newListener(ctx, w, &listeners.Items[i]))
	}
	var pods corev1.PodList
	if w.List(ctx, &pods, client.InNamespace(namespace)) == check.Forbidden {
		g.addUnreadable(ctx, w)
	}
	for o := range check.Each(pods.Items) {
		if p := newPod(ctx, w, o); len(p.listeners) > 0 && !claim.PodFinished(o) {
			p.examine(ctx, w)
			g.addPod(p)
		}
	}
	for _, s := range g.subjects() {
		g.byID[s.id()] = s
		s.text = strings.ToLower(strings.Join([]string{s.text, s.key.Namespace, s.key.Name, s.says.Object(),
			s.says.Text()}, "\n"))
	}
	return g, w.Err
}

func (s *subject) examine(ctx context.Context, w *walk.Walk) {
	x := w.Apart()
	x.Examine(ctx, s.object)
	x.Conclude()
	s.report = &x.Report
	switch {
	case x.Err != nil:
		s.says = check.Finding{Kind: s.kind, Namespace: s.key.Namespace, Name: s.key.Name, State: check.Unknown,
			Message: x.Err.Error()}
	case x.Problem != nil:
		s.says = *x.Problem
	default:
		s.says = worst(x.Findings, func(kind string) bool { return slices.Contains(own[s.kind], kind) })
	}
}

// own are the kinds of the objects whose warnings concern an object, too.
var own = map[string][]string{"Pod": {"Pod", "PersistentVolumeClaim", "Volume"}, "Listener": {"Listener", "Endpoints"}}

func newListener(ctx context.Context, w *walk.Walk, l *listenersv1alpha1.Listener) *subject {
	result := &subject{object: l, kind: "Listener", key: client.ObjectKeyFromObject(l), class: l.Class()}
	if l.Status != nil {
		result.addresses = l.Status.IngressAddresses
	}
	result.examine(ctx, w)
	result.exposed = worst(result.report.Findings, func(kind string) bool {
		return !slices.Contains([]string{"Listener", "Endpoints", "PersistentVolume", "Pod", "PodListeners",
			"NetworkPolicy", "Node", "Volume"}, kind)
	})
	result.exposure = "?"
	var class listenersv1alpha1.ListenerClass
	if w.Client.Get(ctx, types.NamespacedName{Name: l.Class()}, &class) == nil {
		result.exposure = string(class.Spec.ServiceType)
		if backend := w.Backends.Of(&class); !backend.PlainService {
			result.exposure = backend.Name
		}
	}
	result.text = result.class + "\n" + result.exposure
	for _, a := range result.addresses {
		result.text += "\n" + a.Address
	}
	return result
}

func newPod(ctx context.Context, w *walk.Walk, p *corev1.Pod) *subject {
	published, _ := w.PodListeners(ctx, p)
	result := &subject{object: p, kind: "Pod", key: client.ObjectKeyFromObject(p), volumes: published.Spec.Listeners,
		node: p.Spec.NodeName}
	for volume := range check.Each(p.Spec.Volumes) {
		name := result.volumes[volume.Name].ListenerName
		if name == "" {
			request, pvc := claim.Request{}, &corev1.PersistentVolumeClaim{}
			key := types.NamespacedName{Namespace: p.Namespace, Name: claim.NameOf(p, volume)}
			switch {
			case claim.IsInline(volume):
				request = claim.OfInline(p, volume)
			case key.Name == "" || w.Get(ctx, key, pvc) != check.Present || !walk.RequestsListener(pvc):
				continue
			default:
				request = claim.OfClaim(pvc, nil)
			}
			selector, _ := claim.ParseSelector(request.Annotations)
			name = selector.ListenerName(request.Name)
		}
		if !slices.Contains(result.listeners, name) {
			result.listeners = append(result.listeners, name)
		}
	}
	return result
}

func (g *graph) addUnreadable(ctx context.Context, w *walk.Walk) {
	var published listenersv1alpha1.PodListenersList
	w.List(ctx, &published, client.InNamespace(g.namespace))
	for o := range check.Each(published.Items) {
		if len(o.OwnerReferences) == 0 {
			continue
		}
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.OwnerReferences[0].Name}
		p := &subject{kind: "Pod", key: key, volumes: o.Spec.Listeners, node: o.Spec.NodeName}
		p.says = check.Finding{Kind: p.kind, Namespace: p.key.Namespace, Name: p.key.Name}.Unreadable()
		p.report = &check.Report{Findings: []check.Finding{p.says}}
		p.listeners = slices.Compact(slices.Sorted(slices.Values(index.PodListenersListeners(o))))
		g.addPod(p)
	}
}

func (g *graph) addPod(p *subject) {
	g.pods = append(g.pods, p)
	if p.node == "" {
		return
	}
	n := g.nodes[p.node]
	if n == nil {
		n = &subject{kind: "Node", key: types.NamespacedName{Name: p.node}, report: &check.Report{}}
		g.nodes[p.node] = n
	}
	for _, f := range p.report.Findings {
		if f.Kind == n.kind && f.Name == p.node {
			n.report.Add(f)
		}
	}
	if len(n.report.Findings) == 0 {
		n.report.Add(check.Finding{Kind: n.kind, Name: p.node}.Unreadable())
	}
	n.report.Conclude()
	n.says = worst(n.report.Findings, func(string) bool { return true })
}

// worst returns the first of the findings that matter most, among the findings about these kinds.
func worst(findings []check.Finding, ofKind func(string) bool) check.Finding {
	order := []check.State{check.Failed, check.Unknown, check.Warning, check.OK}
	result := check.Finding{State: check.OK}
	for _, f := range slices.Backward(findings) {
		if ofKind(f.Kind) && slices.Index(order, f.State) <= slices.Index(order, result.State) {
			result = f
		}
	}
	return result
}

func (g *graph) problems() int {
	r := &check.Report{}
	for _, s := range g.subjects() {
		if s.says.State == check.Failed {
			r.Add(s.says)
		}
	}
	return len(r.Findings)
}

func (g *graph) subjects() []*subject {
	all := slices.Concat(g.listeners, g.pods)
	for _, name := range slices.Sorted(maps.Keys(g.nodes))[1:] { // "" is no node
		all = append(all, g.nodes[name])
	}
	return all
}

// filesOf returns the paths and contents of the files of a volume with these addresses: docs/contract.md.
func filesOf(addresses []listenersv1alpha1.IngressAddress) [][2]string {
	all := [][2]string{}
	for i, a := range addresses {
		directory := "addresses/" + command.Printable(a.Address)
		if i == 0 {
			directory = "default-address"
		}
		all = append(all, [2]string{directory + "/address", command.Printable(a.Address)})
		for _, port := range slices.Sorted(maps.Keys(a.Ports)) {
			all = append(all, [2]string{directory + "/ports/" + command.Printable(port),
				strconv.Itoa(int(a.Ports[port]))})
		}
	}
	return all
}
