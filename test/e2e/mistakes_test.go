//go:build e2e

package e2e

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// What keeps a claim from being provisioned is an event of the Pod, too.
func TestMistakesShowOnThePod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.create(pod("missing", byClass(s.namespace)))
	t.Logf("event: %s", s.awaitEvent("Pod", "missing", listenersv1alpha1.ReasonClassNotFound, s.namespace))
	s.create(pod("misspelled", map[string]string{"listener.stackable.tech/listener-class": s.namespace}))
	t.Logf("event: %s", s.awaitEvent("Pod", "misspelled", listenersv1alpha1.ReasonInvalidClaim, "did you mean", names.AnnotationListenerClass))
	s.create(pod("elsewhere", byName("shop/web")))
	t.Logf("event: %s", s.awaitEvent("Pod", "elsewhere", listenersv1alpha1.ReasonInvalidName, "name alone"))
}

// The scheduler only names a node affinity conflict.
func TestAPodThatCannotReachTheNodeOfItsVolumeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	set := statefulSet("db", 1, byClass(class.Name))
	s.create(set)
	node := s.awaitReady("db-0").Spec.NodeName
	s.get(set, s.key("db"))
	s.patch(set, func() { set.Spec.Template.Spec.Affinity = notOn(node) })
	t.Logf("event: %s", s.awaitEvent("Pod", "db-0", listenersv1alpha1.ReasonPinnedToNode, node, "listener-db-0", names.AnnotationRelease))
}

// They are another kind of selector of a bound claim, and a Listener that is deleted under its Pods.
func TestSilentMistakesAreReported(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(statefulSet("web", 1, byClass(class.Name)))
	s.awaitReady("web-0")
	pvc := mustGet(s, &corev1.PersistentVolumeClaim{}, s.key("listener-web-0"))
	s.patch(pvc, func() {
		delete(pvc.Annotations, names.AnnotationListenerClass)
		pvc.Annotations[names.AnnotationListenerName] = "other"
	})
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "listener-web-0", listenersv1alpha1.ReasonSelectorChanged, class.Name))

	shared := s.createListener("shared", class.Name, listenersv1alpha1.ListenerPort{Name: "http", Port: 8080})
	s.create(pod("client", byName("shared")))
	s.awaitReady("client")
	s.remove(shared)
	t.Logf("event: %s", s.awaitEvent("Pod", "client", listenersv1alpha1.ReasonListenerNotFound, "shared"))
}

// An event on the claim says what is missing, and creating it suffices.
func TestAMissingClassIsUsedOnceItIsCreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	s.create(pod("web", byClass(s.namespace)))
	t.Logf("event: %s", s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonClassNotFound))
	created := time.Now()
	s.createClass(unpinned())
	s.awaitReachable("web")
	t.Logf("reached %s after the class was created", time.Since(created).Round(time.Millisecond))
}

// A claim names the Listener, which has no class at first.
func TestAMissingListenerIsUsedOnceItIsCreated(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	s.create(pod("web", byName("late")))
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonListenerNotFound)
	late := &listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec:       listenersv1alpha1.ListenerSpec{Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080}}},
	}
	s.create(late)
	s.awaitEvent("PersistentVolumeClaim", "web-listener", listenersv1alpha1.ReasonClassNotSet)
	s.awaitCondition("late", listenersv1alpha1.ListenerAccepted, metav1.ConditionFalse, listenersv1alpha1.ReasonClassNotSet)
	s.patch(late, func() { late.Spec.ClassName = &class.Name })
	s.awaitReachable("web")
}

// Each of these Pods waits, and an event on its claim says why.
func TestAnInvalidClaimIsReported(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(unpinned())
	both := byClass(class.Name)
	maps.Copy(both, byName("other"))
	noPorts := pod("no-ports", byClass(class.Name))
	noPorts.Spec.Containers[0].Ports = nil
	foreign := &listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Name: "conflict-listener"}}
	s.create(foreign)
	for _, tc := range []struct {
		pod    *corev1.Pod
		reason string
	}{
		{pod("neither", nil), listenersv1alpha1.ReasonInvalidClaim},
		{pod("both", both), listenersv1alpha1.ReasonInvalidClaim},
		{noPorts, listenersv1alpha1.ReasonNoPorts},
		{pod("conflict", byClass(class.Name)), listenersv1alpha1.ReasonForeignListener},
	} {
		s.create(tc.pod)
		t.Logf("%s: %s", tc.pod.Name, s.awaitEvent("PersistentVolumeClaim", tc.pod.Name+"-listener", tc.reason))
	}
	after := mustGet(s, &listenersv1alpha1.Listener{}, client.ObjectKeyFromObject(foreign))
	if after.Generation != 1 || len(after.OwnerReferences) != 0 {
		t.Errorf("the user's Listener was changed: %+v", after)
	}
}

// The event on the Pod says what is wrong, and nothing is exposed.
func TestAnInlineVolumeWithAMistakeIsRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	class := s.createClass(pinned())
	for name, tc := range map[string]struct {
		attributes map[string]string
		want       string
	}{
		"unknown": {map[string]string{names.AnnotationListenerClass: "external-unstable", "listener-operator.dev/port": "http"}, names.AnnotationPorts},
		"pinned":  {byClass(class.Name), "needs a claim"},
		"random":  {map[string]string{names.AnnotationListenerClass: "external-unstable", names.AttributeKeep: "true"}, "StatefulSet"},
	} {
		s.create(podWith(name, objects.InlineVolume("listener", tc.attributes)))
		t.Logf("%s: %s", name, s.awaitEvent("Pod", name, listenersv1alpha1.ReasonInvalidVolume, tc.want))
		s.checkNotFound(&listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name + "-listener"}})
	}
}

// Whoever corrects what creates the Pod, and runs the commands that are printed, has a Pod that is ready, whatever kind
// of volume it has, and whatever creates it.
func TestWhoeverFollowsTheRemediesHasAPod(t *testing.T) {
	t.Parallel()
	s := newScenario(t)
	run := s.plugin()
	classes := s.createClasses(map[string]listenersv1alpha1.ListenerClassSpec{"right": unpinned(), "waiting": loadBalanced()})
	right, noBalancer := classes["right"], classes["waiting"]
	volumes := map[string]func(name string, attributes map[string]string) corev1.Volume{"inline": objects.InlineVolume, "claim": objects.EphemeralVolume}
	mistakes := map[string]map[string]string{
		"key":      {names.AnnotationListenerClass + "s": right.Name},
		"class":    byClass(right.Name + "x"),
		"both":     {names.AnnotationListenerClass: right.Name, names.AnnotationListenerName: "other"},
		"balancer": byClass(noBalancer.Name),
	}
	for kind, volume := range volumes {
		for mistake, attributes := range mistakes {
			for workload, created := range workloads {
				name := kind + "-" + mistake + "-" + workload
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s := s.within(t)
					correct := created(s, podWith(name, volume("listener", attributes)))
					follow := func(ctx context.Context) error { return s.follow(ctx, run, name, right.Name) }
					s.eventually(func(ctx context.Context) error { // something is said to be wrong
						if err := follow(ctx); err != nil {
							return nil
						}
						return errors.New("no mistake is found")
					})
					correct(volume("listener", byClass(right.Name)))
					s.eventually(follow)
				})
			}
		}
	}
}

// workloads create a Pod, and return what corrects its volume where it is written.
var workloads = map[string]func(*scenario, *corev1.Pod) (correct func(corev1.Volume)){
	"pod": func(s *scenario, p *corev1.Pod) func(corev1.Volume) {
		s.create(p)
		return func(v corev1.Volume) {
			s.removeAndAwait(p)
			s.create(podWith(p.Name, v))
		}
	},
	"deployment": func(s *scenario, p *corev1.Pod) func(corev1.Volume) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec},
		}}
		s.create(d)
		return func(v corev1.Volume) { s.patch(d, func() { d.Spec.Template.Spec.Volumes = []corev1.Volume{v} }) }
	},
	"set": func(s *scenario, p *corev1.Pod) func(corev1.Volume) { // one Pod after the other, as by default
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec},
		}}
		s.create(set)
		return func(v corev1.Volume) { s.patch(set, func() { set.Spec.Template.Spec.Volumes = []corev1.Volume{v} }) }
	},
}

var remedyCommand = regexp.MustCompile(`kubectl (?:delete|annotate|patch) (?:'[^']*'|[^'),.:;]|[,.:;][^\s)])+`)

// follow runs the commands that change something among those that why prints about the Pods with the label app. It
// returns nil when one of them is ready, and the only one.
func (s *scenario) follow(ctx context.Context, run func(...string) (string, int), app, class string) error {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(s.namespace), client.MatchingLabels{"app": app}); err != nil {
		return err
	}
	if len(pods.Items) == 1 && isReady(&pods.Items[0]) {
		return nil
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		said, _ := run("listener", "why", "pod/"+p.Name, "--namespace", s.namespace)
		for _, command := range remedyCommand.FindAllString(strings.ReplaceAll(said, "CLASS", class), -1) {
			var args []string
			for _, argument := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1)[1:] {
				args = append(args, strings.Trim(argument, "'"))
			}
			out, status := run(args...)
			s.Logf("%s: status %d, %s", command, status, out)
		}
		return errors.New(said)
	}
	return errors.New("no Pod")
}
