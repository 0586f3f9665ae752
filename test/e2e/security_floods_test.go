//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
	"github.com/listener-operator/listener-operator/test/cluster"
)

var withFloods = flag.Bool("floods", false, "measure what floods of a tenant cost another one, as make test-floods does")

const (
	// measurements is how often each wait of the other tenant is measured, which has the median.
	measurements = 5
	// maxDelay is how many times as long the other tenant may wait during a flood, as far as the operator and the node
	// agents are the reason. A flood also slows down Kubernetes and the machine, which the attacker shares.
	maxDelay = 2
	// control is what waits for neither the operator nor a node agent.
	control = "Pod without a Listener"
)

// flood is what a tenant does to stop others. It has begun when start returns, and continues until ctx is done.
type flood struct {
	name  string
	start func(ctx context.Context, s *scenario)
}

// Another tenant waits at most twice as long for a Listener, for a Pod with a listener volume, and for one with a
// certificate. The Pods of both are on the same node.
func TestFloodsOfATenantDelayNobody(t *testing.T) {
	if !*withFloods {
		t.Skip("needs the flag -floods, because other tests would delay it")
	}
	victim := newScenario(t)
	class := victim.createClass(unpinned())
	victim.waits(class.Name) // the first Pod of a namespace waits for its ServiceAccount, and for its authority
	without := victim.waits(class.Name)
	t.Logf("without a flood: %v", without)
	for _, f := range []flood{
		{"selectors of NetworkPolicies", floodOfSelectors},
		{"connections with large headers", floodOfConnections},
		{"requests for certificates with many names", floodOfCertificates},
		{"finished Pods with many volumes", floodOfFinishedPods},
	} {
		t.Run(f.name, func(t *testing.T) {
			attacker := newScenario(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f.start(ctx, attacker)
			during := victim.within(t).waits(class.Name)
			t.Logf("during it: %v", during)
			slower := max(1, float64(during[control])/float64(without[control]))
			for what, waited := range during {
				if delay := float64(waited) / float64(without[what]) / slower; delay > maxDelay {
					t.Errorf("the other tenant waits %s for a %s, and %s without the flood: %.1f times as long beside the %.1f times of a %s",
						waited, what, without[what], delay, slower, control)
				}
			}
			for _, component := range []string{"operator", "node-agent"} {
				pods, err := podsOf(t.Context(), component)
				attacker.must(err)
				for i := range pods {
					for _, c := range pods[i].Status.ContainerStatuses {
						if c.RestartCount > 0 {
							t.Errorf("Pod %s has restarted: %+v", pods[i].Name, c.LastTerminationState.Terminated)
						}
					}
				}
			}
		})
	}
}

// waits returns how long a tenant waits for a Listener to be accepted, and for Pods to be ready.
func (s *scenario) waits(class string) map[string]time.Duration {
	s.Helper()
	all := map[string][]time.Duration{}
	measure := func(what string, do func()) {
		start := time.Now()
		do()
		all[what] = append(all[what], time.Since(start).Round(time.Millisecond))
	}
	onFirstNode := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.NodeName = testbed.NodeName(testbed.Nodes()[0])
		return p
	}
	for i := range measurements {
		name := fmt.Sprintf("web-%d", i)
		made := []client.Object{
			&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "only-" + name}, Spec: listenersv1alpha1.ListenerSpec{
				ClassName: &class, Ports: []listenersv1alpha1.ListenerPort{port("http", 8080, corev1.ProtocolTCP)},
			}},
			onFirstNode(pod(name, byClass(class))),
			onFirstNode(s.withCertificate("tls-"+name, class)),
			onFirstNode(podWith("plain-" + name)),
		}
		measure("Listener", func() {
			s.create(made[0])
			s.awaitCondition(made[0].GetName(), listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted)
		})
		measure("Pod", func() { s.create(made[1]); s.awaitReady(name) })
		measure("Pod with a certificate", func() { s.create(made[2]); s.awaitReady("tls-" + name) })
		measure(control, func() { s.create(made[3]); s.awaitReady("plain-" + name) })
		for _, o := range made {
			s.remove(o)
			s.must(awaitDeleted(s.timeoutContext(), o, client.ObjectKeyFromObject(o)))
		}
	}
	medians := map[string]time.Duration{}
	for what, durations := range all {
		slices.Sort(durations)
		medians[what] = durations[len(durations)/2]
	}
	return medians
}

// each calls a function for numbers below n, several at a time.
func each(n int, do func(i int)) {
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}

// floodOfSelectors has NetworkPolicies with large selectors beside Listeners whose clients are restricted, and goes on
// changing them.
func floodOfSelectors(ctx context.Context, s *scenario) {
	const listeners, pods, policies, values = 8, 20, 60, 20000
	class := s.createClass(unpinned())
	var volumes []corev1.Volume
	for i := range listeners {
		name := fmt.Sprintf("restricted-%d", i)
		s.create(&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: listenersv1alpha1.ListenerSpec{
			ClassName: &class.Name, AllowedClients: []listenersv1alpha1.CIDR{"10.0.0.0/8"}, Ports: []listenersv1alpha1.ListenerPort{port("http", 8080, corev1.ProtocolTCP)},
			ObjectOverrides: []runtime.RawExtension{{Raw: fmt.Appendf(nil,
				`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q, "namespace": %q}, "spec": {"externalTrafficPolicy": "Local"}}`, name, s.namespace)}},
		}})
		volumes = append(volumes, objects.EphemeralVolume(name, byName(name)))
	}
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("many-%d", i), volumes...)
		p.Spec.NodeName = testbed.NodeName(testbed.Nodes()[1+i%2])
		s.create(p)
	})
	selected := make([]string, values)
	for i := range selected {
		selected[i] = fmt.Sprintf("v%d", i)
	}
	all := make([]*networkingv1.NetworkPolicy, policies)
	each(policies, func(i int) {
		all[i] = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", i)}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: selected}}},
		}}
		s.create(all[i])
	})
	changes := 0
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		changes++
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata": {"annotations": {"changes": "%d"}}}`, changes))
		_ = api.Patch(ctx, all[changes%policies], patch)
	}, 100*time.Millisecond)
}

// floodOfConnections sends large headers to the operator and to an agent, slowly enough to keep all connections.
func floodOfConnections(ctx context.Context, s *scenario) {
	agents, err := podsOf(ctx, "node-agent")
	s.must(err)
	operators, err := podsOf(ctx, "operator")
	s.must(err)
	targets := map[string]int{operators[0].Status.PodIP + ":8081": 400, operators[0].Status.PodIP + ":8443": 400}
	for i := range agents {
		if agents[i].Spec.NodeName == testbed.NodeName(testbed.Nodes()[0]) {
			targets[agents[i].Status.PodIP+":8081"] = 150
		}
	}
	header := "GET /metrics HTTP/1.1\r\nHost: x\r\nLarge: " + strings.Repeat("x", 900<<10)
	for target, connections := range targets {
		for range connections {
			go wait.UntilWithContext(ctx, func(ctx context.Context) {
				raw, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", target)
				if err != nil {
					return
				}
				defer raw.Close()
				defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
				connection := raw
				if strings.HasSuffix(target, ":8443") {
					connection = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // an attacker does not verify
				}
				if _, err := io.WriteString(connection, header); err == nil {
					_, _ = io.Copy(io.Discard, connection) // until the server closes it
				}
			}, time.Second)
		}
	}
}

// floodOfCertificates has Pods request certificates for as many names of volumes as a request may have.
func floodOfCertificates(_ context.Context, s *scenario) {
	const pods, volumes, volumeNames = 4, 5, 64000
	list := strings.Builder{}
	for i := range volumeNames {
		fmt.Fprintf(&list, "%x,", i)
	}
	annotation := list.String()[:250<<10]
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("named-%d", i))
		for v := range volumes {
			requesting := s.certificateVolume()
			requesting.Name = fmt.Sprintf("tls-%d", v)
			requesting.Projected.Sources = requesting.Projected.Sources[:1]
			requesting.Projected.Sources[0].PodCertificate.UserAnnotations = map[string]string{names.AnnotationCertificateVolumes: annotation}
			p.Spec.Volumes = append(p.Spec.Volumes, requesting)
		}
		p.Spec.NodeName = testbed.NodeName(testbed.Nodes()[1+i%2])
		s.create(p)
	})
}

// floodOfFinishedPods leaves Pods that have finished, each with as many volumes as it may have of one claim, and Pods
// that wait for ever, because they have more.
func floodOfFinishedPods(_ context.Context, s *scenario) {
	const finished, waiting, tooMany, ports = 61, 20, 200, 64
	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &s.createClass(unpinned()).Name}}
	for i := range ports {
		listener.Spec.Ports = append(listener.Spec.Ports, port(fmt.Sprintf("a-port-%d", i), int32(1000+i), corev1.ProtocolTCP)) //nolint:gosec // a handful
	}
	s.create(listener)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: byName("large")}, Spec: objects.ClaimSpec("")}
	s.create(claim)
	each(finished+waiting, func(i int) {
		p, volumes := podWith(fmt.Sprintf("finished-%d", i)), listenersv1alpha1.MaxVolumes
		if i >= finished {
			volumes = tooMany
		}
		for v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, objects.ClaimVolume(fmt.Sprintf("a-volume-%d", v), claim.Name))
		}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = cluster.BusyboxImage, []string{"true"}
		p.Spec.Containers[0].Ports, p.Spec.Containers[0].ReadinessProbe = nil, nil
		p.Spec.Containers[0].SecurityContext.RunAsUser = ptr.To[int64](65534)
		p.Spec.RestartPolicy, p.Spec.NodeName = corev1.RestartPolicyNever, testbed.NodeName(testbed.Nodes()[0])
		s.create(p)
	})
	s.must(eventually(s.timeoutContext(), func(ctx context.Context) error {
		var all corev1.PodList
		if err := api.List(ctx, &all, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		phases := map[corev1.PodPhase]int{}
		for i := range all.Items {
			phases[all.Items[i].Status.Phase]++
		}
		if phases[corev1.PodSucceeded] < finished {
			return fmt.Errorf("%v", phases)
		}
		return nil
	}))
}
