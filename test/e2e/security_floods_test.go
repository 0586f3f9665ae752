//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// measurements is how often each wait of the other tenant is measured. What counts is the mean of the middle half:
	// the kubelet looks at times for what it waits for, so that medians jump between two or three values, and with a
	// failed request for a claim it sometimes waits for half a minute.
	measurements = 8
	// maxDelay is how many times as long the other tenant may wait during a flood, as far as the operator and the node
	// agents are the reason. A flood also slows down Kubernetes and the machine, which the attacker shares.
	maxDelay = 2
	// What waits for neither the operator nor a node agent: a Pod, and an object for a controller of Kubernetes.
	plainPod   = "Pod without a Listener"
	deployment = "Deployment"
	// starts is how often the operator is started again, which is only measured where it has to read what a flood left.
	// Another Pod that the scheduler has to bind, beside those that the flood left, is started in the same way.
	starts     = 3
	start      = "Listener while the operator starts"
	plainStart = "start of another Pod"
	// slow is a wait for a Pod that is explained by events.
	slow = 10 * time.Second
)

// flood is what a tenant does to stop others. It has begun when start returns, and continues until ctx is done.
type flood struct {
	name  string
	start func(ctx context.Context, s *scenario)
	// remains states that the operator finds what it left after a start.
	remains bool
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
	maps.Copy(without, victim.waitsForStarts(class.Name))
	t.Logf("without a flood: %v", without)
	for _, f := range []flood{
		{name: "selectors of NetworkPolicies", start: floodOfSelectors},
		{name: "connections with large headers", start: floodOfConnections},
		{name: "requests for certificates with many names", start: floodOfCertificates},
		{name: "lists of commas for injection", start: floodOfCommas},
		{name: "large Pods that never run", start: floodOfWaitingPods, remains: true},
		{name: "Pods with many ports", start: floodOfPorts, remains: true},
		{name: "Pods with labels of another operator", start: floodOfLabels, remains: true},
		{name: "inline volumes on one node", start: floodOfInlineVolumes, remains: true},
		{name: "Pods with many volumes that finish", start: floodOfFinishingPods},
		{name: "finished Pods with many volumes", start: floodOfFinishedPods, remains: true},
	} {
		t.Run(f.name, func(t *testing.T) {
			attacker := newScenario(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f.start(ctx, attacker)
			during := victim.within(t).waits(class.Name)
			if f.remains {
				maps.Copy(during, victim.within(t).waitsForStarts(class.Name))
			}
			t.Logf("during it: %v", during)
			for what, waited := range during {
				control := plainPod
				switch what {
				case plainPod, deployment, plainStart: // what Kubernetes costs, whoever uses it
					continue
				case "Listener":
					control = deployment
				case start:
					control = plainStart
				}
				slower := max(1, float64(during[control])/float64(without[control]))
				if delay := float64(waited) / float64(without[what]) / slower; delay > maxDelay {
					t.Errorf("the other tenant waits %s for a %s, and %s without the flood: %.1f times as long beside the %.1f times of a %s",
						waited, what, without[what], delay, slower, control)
				}
			}
			for _, component := range []string{"operator", "node-agent"} {
				attacker.checkMemory(component)
			}
		})
	}
}

// checkMemory fails the test if a Pod of a component has restarted, or needed more than half of its memory.
func (s *scenario) checkMemory(component string) {
	s.Helper()
	pods, err := podsOf(s.ctx, component)
	s.must(err)
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if c.RestartCount > 0 {
				s.Errorf("Pod %s has restarted: %+v", pods[i].Name, c.LastTerminationState.Terminated)
			}
		}
		limit := pods[i].Spec.Containers[0].Resources.Limits.Memory().Value() >> 10
		peak, err := testbed.NodeCommand(s.ctx, nodeNumber(pods[i].Spec.NodeName), "sh", "-c",
			"grep VmHWM /proc/$(pgrep -o -f ^/"+component+")/status | tr -dc 0-9").Output()
		s.must(err)
		used, err := strconv.ParseInt(string(peak), 10, 64)
		s.must(err)
		s.Logf("Pod %s on %s needs at most %d KiB of %d", pods[i].Name, pods[i].Spec.NodeName, used, limit)
		if used > limit/2 {
			s.Errorf("Pod %s needs more than half of its memory", pods[i].Name)
		}
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
		if time.Since(start) > slow {
			s.Logf("a %s took %s", what, time.Since(start))
			s.kubectl("get", "events", "--output", "custom-columns=FIRST:.firstTimestamp,LAST:.lastTimestamp,TIME:.eventTime,OBJECT:.involvedObject.name,"+
				"REASON:.reason,MESSAGE:.message")
		}
	}
	onFirstNode := func(p *corev1.Pod) *corev1.Pod {
		// By the scheduler: a kubelet that gets a Pod before its claim exists tries again ten seconds later.
		p.Spec.NodeSelector = onNode(testbed.NodeName(testbed.Nodes()[0]))
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
			emptyDeployment(name),
		}
		measure("Listener", func() {
			s.create(made[0])
			s.awaitCondition(made[0].GetName(), listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted)
		})
		measure("Pod", func() { s.create(made[1]); s.awaitReady(name) })
		measure("Pod with a certificate", func() { s.create(made[2]); s.awaitReady("tls-" + name) })
		measure(plainPod, func() { s.create(made[3]); s.awaitReady("plain-" + name) })
		measure(deployment, func() {
			s.create(made[4])
			mustAwait(s, &appsv1.Deployment{}, s.key(name), func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration > 0 })
		})
		for _, o := range made {
			s.removeAndAwait(o)
		}
	}
	means := map[string]time.Duration{}
	for what, durations := range all {
		s.Logf("%s: %v", what, durations)
		means[what] = middle(durations)
	}
	return means
}

// emptyDeployment returns a Deployment without replicas, of Pods without a Listener.
func emptyDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
	}}
}

// middle returns the mean of the middle half, of three durations the median.
func middle(durations []time.Duration) (mean time.Duration) {
	slices.Sort(durations)
	outer := (len(durations) + 1) / 4
	half := durations[outer : len(durations)-outer]
	for _, d := range half {
		mean += d / time.Duration(len(half))
	}
	return mean.Round(time.Millisecond)
}

// waitsForStarts returns how long a tenant waits for a Listener from when an operator that was stopped is wanted again,
// and for another Pod in its place.
func (s *scenario) waitsForStarts(class string) map[string]time.Duration {
	s.Helper()
	other := emptyDeployment("other")
	s.create(other)
	all := map[string][]time.Duration{}
	for i := range starts {
		s.scaleOperator(0)
		listener := s.createListener(fmt.Sprintf("started-%d", i), class, port("http", 8080, corev1.ProtocolTCP))
		wanted := time.Now()
		s.scaleOperator(1)
		s.awaitCondition(listener.Name, listenersv1alpha1.ListenerAccepted, metav1.ConditionTrue, listenersv1alpha1.ReasonAccepted)
		all[start] = append(all[start], time.Since(wanted))
		s.remove(listener)

		wanted = time.Now()
		s.patch(other, func() { other.Spec.Replicas = ptr.To[int32](1) })
		mustAwait(s, other, client.ObjectKeyFromObject(other), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 1 })
		all[plainStart] = append(all[plainStart], time.Since(wanted))
		s.patch(other, func() { other.Spec.Replicas = ptr.To[int32](0) })
		mustAwait(s, other, client.ObjectKeyFromObject(other), func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 })
	}
	s.remove(other)
	s.Logf("starts: %v", all)
	return map[string]time.Duration{start: middle(all[start]), plainStart: middle(all[plainStart])}
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

// floodOfCommas asks for volumes in as many containers as an annotation can separate, without creating a Pod.
func floodOfCommas(ctx context.Context, s *scenario) {
	const clients, size = 64, 250 << 10
	s.enableInjection()
	s.optIn()
	p := podWith("commas")
	p.Namespace = s.namespace
	p.Annotations = map[string]string{names.AnnotationInject: "any", names.AnnotationInjectContainers: strings.Repeat(",", size)}
	for range clients {
		go wait.UntilWithContext(ctx, func(ctx context.Context) { _ = api.Create(ctx, p.DeepCopy(), client.DryRunAll) }, 0)
	}
}

// inlineVolumes returns as many inline volumes as the API server takes of a Pod of a class.
func (s *scenario) inlineVolumes() (volumes []corev1.Volume) {
	class := s.createClass(unpinned())
	for i := range listenersv1alpha1.MaxVolumes {
		volumes = append(volumes, objects.InlineVolume(fmt.Sprintf("inline-%d", i), byClass(class.Name)))
	}
	return volumes
}

// floodOfWaitingPods leaves Pods as large as the API server takes, with as many volumes as possible, that no node fits.
func floodOfWaitingPods(_ context.Context, s *scenario) {
	const pods, volumes = 66, 11000
	inline := s.inlineVolumes()
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("waiting-%d", i), inline...)
		p.Spec.NodeSelector = map[string]string{"no": "node"}
		for v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, objects.InlineVolume(fmt.Sprintf("more-%d", v), inline[0].CSI.VolumeAttributes))
		}
		p.Namespace = s.namespace
		if err := api.Create(s.ctx, p.DeepCopy()); !apierrors.IsInvalid(err) {
			s.Errorf("creating a Pod with %d inline volumes: %v", len(p.Spec.Volumes), err)
		}
		for v := range p.Spec.Volumes[len(inline):] {
			p.Spec.Volumes[len(inline)+v] = objects.ClaimVolume(fmt.Sprintf("more-%d", v), fmt.Sprintf("claim-%d", v))
		}
		s.create(p)
	})
}

// floodOfPorts leaves Pods each of whose volumes could have thousands of ports.
func floodOfPorts(_ context.Context, s *scenario) {
	const pods, ports = 40, 6000
	inline := s.inlineVolumes()
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("ports-%d", i), inline...)
		p.Spec.NodeName = testbed.NodeName(testbed.Nodes()[1+i%2])
		for n := range ports {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Name: fmt.Sprintf("port-%d", n), ContainerPort: int32(10000 + n)}) //nolint:gosec // a few thousand
		}
		s.create(p)
	})
}

// floodOfLabels leaves Pods that look like Stackable's operator.
func floodOfLabels(_ context.Context, s *scenario) {
	const pods = 3000
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("labelled-%d", i))
		p.Labels = map[string]string{"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/role": "controller"}
		p.Spec.NodeSelector = map[string]string{"no": "node"}
		s.create(p)
	})
}

// floodOfInlineVolumes has a node mount as many inline volumes as its Pods may have.
func floodOfInlineVolumes(_ context.Context, s *scenario) {
	const pods = 40
	inline := s.inlineVolumes()
	each(pods, func(i int) {
		p := podWith(fmt.Sprintf("mounted-%d", i), inline...)
		p.Spec.NodeName = testbed.NodeName(testbed.Nodes()[0])
		s.create(p)
	})
}

// floodOfFinishingPods has many Pods of a node start at once, which then finish.
func floodOfFinishingPods(_ context.Context, s *scenario) { s.finishingPods() }

// floodOfFinishedPods leaves these Pods.
func floodOfFinishedPods(_ context.Context, s *scenario) {
	finished := s.finishingPods()
	s.must(eventually(s.ctx, func(ctx context.Context) error {
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

// finishingPods creates Pods that finish, and returns how many. Each mounts one claim in as many volumes as a Pod may
// have. It also creates Pods with more volumes, which wait for ever.
func (s *scenario) finishingPods() int {
	const finished, waiting, tooMany, ports = 61, 20, 200, 64
	listener := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: listenersv1alpha1.ListenerSpec{ClassName: &s.createClass(unpinned()).Name}}
	for i := range ports {
		listener.Spec.Ports = append(listener.Spec.Ports, port(fmt.Sprintf("a-port-%d", i), int32(1000+i), corev1.ProtocolTCP)) //nolint:gosec // a handful
	}
	s.create(listener)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: byName("large")}, Spec: objects.ClaimSpec("")}
	s.create(claim)
	each(finished+waiting, func(i int) {
		count := listenersv1alpha1.MaxVolumes
		if i >= finished {
			count = tooMany
		}
		var volumes []corev1.Volume
		for v := range count {
			volumes = append(volumes, objects.ClaimVolume(fmt.Sprintf("a-volume-%d", v), claim.Name))
		}
		p := podWith(fmt.Sprintf("finished-%d", i), volumes...)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = cluster.BusyboxImage, []string{"true"}
		p.Spec.Containers[0].Ports, p.Spec.Containers[0].ReadinessProbe = nil, nil
		p.Spec.Containers[0].SecurityContext.RunAsUser = ptr.To[int64](65534)
		p.Spec.RestartPolicy, p.Spec.NodeName = corev1.RestartPolicyNever, testbed.NodeName(testbed.Nodes()[0])
		s.create(p)
	})
	return finished
}
