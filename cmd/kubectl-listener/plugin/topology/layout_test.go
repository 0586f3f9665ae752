package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
)

// graphOf returns a graph of Listeners, some of which share Pods, have several addresses or none, no Pod, or problems.
func graphOf(listeners int) *graph {
	g := &graph{nodes: map[string]*subject{"": {kind: "Node"}}}
	says := func(i int) check.Finding {
		if i%7 == 0 {
			return check.Finding{Kind: "Service", Namespace: "shop", Name: "web", State: check.Failed, Message: "is not that of the Listener, and nobody knows whose it is instead"}
		}
		return check.Finding{State: check.OK}
	}
	for i := range listeners {
		l := &subject{kind: "Listener", key: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("listener-", i)}, says: says(i), text: fmt.Sprint("listener-", i)}
		for a := range i % 4 {
			l.addresses = append(l.addresses, listenersv1alpha1.IngressAddress{Address: fmt.Sprintf("192.0.2.%d", a), Ports: map[string]int32{"web": 80}})
		}
		g.listeners = append(g.listeners, l)
		if i%5 == 0 {
			continue
		}
		name := fmt.Sprint("node-", i%3)
		if i%11 == 0 {
			name = ""
		} else {
			g.nodes[name] = &subject{kind: "Node", key: types.NamespacedName{Name: name}}
		}
		p := &subject{kind: "Pod", key: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("pod-", i)}, says: says(i + 3), node: name}
		p.listeners = []string{l.key.Name, g.listeners[i/3].key.Name}
		g.pods = append(g.pods, p)
	}
	return g
}

func TestBoxesDoNotOverlap(t *testing.T) {
	for _, listeners := range []int{0, 1, 3, 40, 200} {
		p := graphOf(listeners).lay("", false)
		for i, a := range p.Boxes {
			if a.X < 0 || a.Y < 0 || a.X+a.W > p.Width || a.Y+a.H > p.Height {
				t.Errorf("%d Listeners: %s is outside of the picture", listeners, a.ID)
			}
			for _, b := range p.Boxes[:i] {
				inside := b.Kind == "Node" && a.Kind == "Pod" && a.Y > b.Y && a.Y+a.H < b.Y+b.H
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H && !inside {
					t.Errorf("%d Listeners: %s and %s overlap", listeners, a.ID, b.ID)
				}
			}
		}
	}
}

func TestSearchShowsWhatBelongsToAMatch(t *testing.T) {
	g := graphOf(40)
	for query, want := range map[string]string{
		"":                      "; shown",
		"listener-39":           "shown: 1 Listener, 1 Pod",
		"LISTENER-39  listener": "shown: 1 Listener, 1 Pod",
		"listener-39 nothing":   "shown: 0 Listeners, 0 Pods",
	} {
		got := g.lay(query, false).Summary
		if strings.Contains(got, want) != (query != "") {
			t.Errorf("%q: %s", query, got)
		}
	}
	shown := map[string]bool{}
	for _, b := range g.lay("", true).Boxes {
		shown[b.ID] = true
	}
	if !shown["Pod/shop/pod-1"] || !shown["Listener/shop/listener-0"] || shown["Pod/shop/pod-6"] {
		t.Error("what is wrong has to be shown with what it is linked to, and nothing else")
	}
}

// What is cut off is at the end, and details have it.
func TestLinesBreakBetweenWords(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "broker 30092": {"broker 30092"}, "broker 30092, controller 30093": {"broker 30092, controller", "30093"},
		"no load balancer has assigned an address to Service web": {"no load balancer has", "assigned an address …"},
		"listener-operator.dev/advertised-address":                {"listener-operator.dev/", "advertised-address"},
		"abcdeghkmnopqsuvxyzabcdeghk":                             {"abcdeghkmnopqsuvxyz", "abcdeghk"},
	} {
		if got := wrap(text, 20, 2); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A Pod refers to its Listener for what that says, and the message contains the reason.
func TestBoxesDoNotRepeatEachOther(t *testing.T) {
	g := graphOf(2)
	service := check.Finding{Kind: "Service", Namespace: "shop", Name: "listener-1"}.Failed("WaitingForLoadBalancer", "no load balancer has assigned an address", "Ask.")
	g.listeners[1].says, g.pods[0].says = service, service
	lines := map[string]string{}
	for _, b := range g.lay("", false).Boxes {
		for _, l := range b.Lines {
			lines[b.ID] += l.Text + "|"
		}
	}
	if got, want := lines["Listener/shop/listener-1"], "|Service listener-1: no load balancer|has assigned an address|"; !strings.HasSuffix(got, want) {
		t.Errorf("the Listener says %q, want %q", got, want)
	}
	if got := lines["Pod/shop/pod-1"]; !strings.HasSuffix(got, "|see Listener listener-1|") {
		t.Errorf("the Pod says %q", got)
	}
}

func BenchmarkLayOfThousandListeners(b *testing.B) {
	g := graphOf(1000)
	for b.Loop() {
		g.lay("", false)
	}
}
