//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// patience is how long a story waits for one thing, on a machine that may be busy.
const patience = 2 * time.Minute

// story is one test or benchmark with a namespace of its own.
type story struct {
	testing.TB
	ctx       context.Context
	namespace string
}

// tell begins a story: it makes a namespace in which Pods must fit the restricted profile, and shows what is in it when
// the story fails. The namespace goes with the story.
func tell(t testing.TB) *story {
	t.Helper()
	s := &story{TB: t, ctx: t.Context()}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "story-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	s.create(space)
	s.namespace = space.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			s.show(ctx)
		}
		if err := api.Delete(ctx, space); err != nil {
			t.Errorf("deleting the namespace: %v", err)
		}
		if err := awaitGone(ctx, &corev1.Namespace{}, client.ObjectKeyFromObject(space)); err != nil {
			t.Errorf("something holds up the namespace: %v", err)
		}
	})
	return s
}

// show prints the namespace for whoever has to find out why a story failed.
func (s *story) show(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods,persistentvolumeclaims,listeners,podlisteners,services", "-o", "wide"},
		{"get", "listeners,podlisteners", "-o", "yaml"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		cmd := exec.CommandContext(ctx, testbed.Kubectl(), append([]string{"--kubeconfig", testbed.Kubeconfig(), "-n", s.namespace}, args...)...)
		output, _ := cmd.CombinedOutput()
		s.Logf("kubectl %s:\n%s", strings.Join(args, " "), output)
	}
	for _, selector := range []string{"app.kubernetes.io/component=operator", "app.kubernetes.io/component=node-agent"} {
		cmd := exec.CommandContext(ctx, testbed.Kubectl(), "--kubeconfig", testbed.Kubeconfig(), "-n", operatorSpace,
			"logs", "--prefix", "--tail=40", "-l", selector)
		output, _ := cmd.CombinedOutput()
		s.Logf("logs of %s:\n%s", selector, output)
	}
}

func (s *story) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// within is a context that ends when patience does.
func (s *story) within() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *story) create(o client.Object) {
	s.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.namespace)
	}
	if err := api.Create(s.ctx, o); err != nil {
		s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func (s *story) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := api.Delete(s.ctx, o, options...); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

func (s *story) get(o client.Object, key client.ObjectKey) {
	s.Helper()
	if err := api.Get(s.ctx, key, o); err != nil {
		s.Fatalf("reading %T %s: %v", o, key, err)
	}
}

// patch changes an object by a merge patch of what change does to it.
func (s *story) patch(o client.Object, change func()) {
	s.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	if err := api.Patch(s.ctx, o, client.MergeFrom(before)); err != nil {
		s.Fatalf("changing %T %s: %v", o, o.GetName(), err)
	}
}

// class makes a ListenerClass that goes with the story, and returns its name.
func (s *story) class(spec listenersv1alpha1.ListenerClassSpec) *listenersv1alpha1.ListenerClass {
	s.Helper()
	class := &listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}, Spec: spec}
	s.create(class)
	s.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	return class
}

func pinned() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort, PinnedNodePorts: true}
}

func unpinned() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeNodePort}
}

func loadBalanced() listenersv1alpha1.ListenerClassSpec {
	return listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("e2e.example/by-hand"),
	}
}

// byClass and byName are the annotations of a claim.
func byClass(class string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: class}
}
func byName(name string) map[string]string {
	return map[string]string{names.AnnotationListenerName: name}
}

// claimSpec is the claim that product operators make.
func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(names.Driver),
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
	}
}

// podSpec is the test server with the named listener volumes, which are mounted but not defined yet.
func podSpec(volumes ...string) corev1.PodSpec {
	server := corev1.Container{
		Name:  "server",
		Image: serverImage,
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
			{Name: "echo", ContainerPort: 9090, Protocol: corev1.ProtocolUDP},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
			PeriodSeconds: 1,
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, volume := range volumes {
		server.VolumeMounts = append(server.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/listeners/" + volume})
	}
	return corev1.PodSpec{
		Containers:                    []corev1.Container{server},
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// pod is the test server with ephemeral listener volumes, each with its claim's annotations.
func pod(name string, volumes map[string]map[string]string) *corev1.Pod {
	spec := podSpec()
	for volume, annotations := range volumes {
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: volume, MountPath: "/listeners/" + volume})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Annotations: annotations, Labels: map[string]string{"app": name}},
				Spec:       claimSpec(),
			}},
		}})
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
}

// podWith is the test server with one volume, "listener".
func podWith(name string, source corev1.VolumeSource) *corev1.Pod {
	p := pod(name, nil)
	p.Spec.Volumes = []corev1.Volume{{Name: "listener", VolumeSource: source}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "listener", MountPath: "/listeners/listener"}}
	return p
}

// statefulSet is the test server with a claim of these annotations for each replica.
func statefulSet(name string, replicas int32, annotations map[string]string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("listener")},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "listener", Annotations: annotations, Labels: labels},
				Spec:       claimSpec(),
			}},
		},
	}
}

// await returns an object as soon as it fulfils the condition. It watches.
func await[T client.Object](ctx context.Context, o T, key client.ObjectKey, condition func(T) bool) (T, error) {
	last := "it does not exist"
	found, err := watchUntil(ctx, o, only(key), func(kind watch.EventType, seen T) bool {
		if kind == watch.Deleted {
			last = "it was deleted"
			return false
		}
		raw, _ := json.Marshal(seen)
		last = string(raw)
		return condition(seen)
	})
	if err != nil {
		return o, fmt.Errorf("waiting for %T %s: %w; last seen: %s", o, key, err, last)
	}
	return found, nil
}

// awaitGone returns as soon as an object does not exist.
func awaitGone[T client.Object](ctx context.Context, o T, key client.ObjectKey) error {
	for {
		list, err := listFor(o)
		if err != nil {
			return err
		}
		if err := api.List(ctx, list, only(key)); err != nil {
			return fmt.Errorf("waiting for %T %s to go: %w", o, key, err)
		}
		if meta.LenList(list) == 0 {
			return nil
		}
		// From the list's version on, so that a deletion in between is not missed.
		options := only(key)
		options.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
		var finalizers []string
		_ = meta.EachListItem(list, func(left runtime.Object) error {
			finalizers = left.(T).GetFinalizers()
			return nil
		})
		_, err = watchUntil(ctx, o, options, func(kind watch.EventType, _ T) bool { return kind == watch.Deleted })
		if err != nil && !errors.Is(err, errWatchEnded) {
			return fmt.Errorf("waiting for %T %s to go, which had the finalizers %q: %w", o, key, finalizers, err)
		}
	}
}

// errWatchEnded means that the API server ended a watch, as it may at any time.
var errWatchEnded = errors.New("the watch ended")

// only selects a single object.
func only(key client.ObjectKey) *client.ListOptions {
	return &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)}
}

// watchUntil feeds the changes of an object, at first its state unless options say from which version on, to done until
// that returns true.
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
	list, err := api.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}

func mustAwait[T client.Object](s *story, o T, name string, condition func(T) bool) T {
	s.Helper()
	found, err := await(s.within(), o, s.key(name), condition)
	if err != nil {
		s.Fatal(err)
	}
	return found
}

func mustAwaitGone[T client.Object](s *story, o T, key client.ObjectKey) {
	s.Helper()
	if err := awaitGone(s.within(), o, key); err != nil {
		s.Fatal(err)
	}
}

// running waits for a Pod that is ready and, if it replaces one, has another uid.
func (s *story) running(name string, before ...*corev1.Pod) *corev1.Pod {
	s.Helper()
	return mustAwait(s, &corev1.Pod{}, name, func(p *corev1.Pod) bool {
		for _, b := range before {
			if p.UID == b.UID {
				return false
			}
		}
		return isReady(p)
	})
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// bootstrap makes the Listener "bootstrap" of a class, for claims that name it.
func (s *story) bootstrap(class string) {
	s.Helper()
	s.create(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap"},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName: &class, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}},
		},
	})
}

// assign gives a Service an address, as a load balancer would.
func (s *story) assign(service *corev1.Service, address string) {
	s.Helper()
	before := service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	if err := api.Status().Patch(s.ctx, service, client.MergeFrom(before)); err != nil {
		s.Fatalf("assigning an address: %v", err)
	}
}

// listener waits for a Listener with the number of addresses.
func (s *story) listener(name string, addresses int) *listenersv1alpha1.Listener {
	s.Helper()
	return mustAwait(s, &listenersv1alpha1.Listener{}, name, func(l *listenersv1alpha1.Listener) bool {
		return l.Status != nil && l.Status.IngressAddresses != nil && len(l.Status.IngressAddresses) == addresses
	})
}

// condition waits for a Listener's condition of this status and reason, and returns its message.
func (s *story) condition(name, kind string, status metav1.ConditionStatus, reason string) string {
	s.Helper()
	l := mustAwait(s, &listenersv1alpha1.Listener{}, name, func(l *listenersv1alpha1.Listener) bool {
		if l.Status == nil {
			return false
		}
		c := meta.FindStatusCondition(l.Status.Conditions, kind)
		return c != nil && c.Status == status && c.Reason == reason
	})
	return meta.FindStatusCondition(l.Status.Conditions, kind).Message
}

// event waits for an event on an object of this reason, and with these words, and returns its note.
func (s *story) event(kind, name, reason string, words ...string) string {
	s.Helper()
	ctx := s.within()
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
	s.Fatalf("no event %s on %s %s that says %q", reason, kind, name, words)
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

// outside is an HTTP client outside of the cluster.
var outside = &http.Client{
	Timeout: 3 * time.Second,
	Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return testbed.ClientDial(ctx, network, address)
		},
	},
}

// ask sends a request from outside to an address of a Listener, once.
func ask(ctx context.Context, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	return askBy(ctx, outside, a, path)
}

func askBy(ctx context.Context, by *http.Client, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	target := net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports["http"])))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+path, nil)
	if err != nil {
		return "", err
	}
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, body)
	}
	return string(body), err
}

// answers waits until an address answers from outside with the name of the wanted Pod. kube-proxy follows a Service
// with a delay that no watch shows.
func (s *story) answers(a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	var got string
	err := eventually(s.within(), func(ctx context.Context) error {
		var err error
		if got, err = ask(ctx, a, "/whoami"); err == nil && got != want {
			err = fmt.Errorf("%q answered, want %q", got, want)
		}
		return err
	})
	if err != nil {
		s.Fatalf("from outside, %s: %v", a.Address, err)
	}
}

// eventually tries until there is no error, for what can be asked but not watched, and returns the last error.
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

// files returns what the server reads in its volumes, asked through an address from outside.
func (s *story) files(a listenersv1alpha1.IngressAddress) map[string]string {
	s.Helper()
	body, err := ask(s.within(), a, "/files")
	if err != nil {
		s.Fatalf("asking for the files: %v", err)
	}
	var files map[string]string
	if err := json.Unmarshal([]byte(body), &files); err != nil {
		s.Fatalf("reading the files: %v", err)
	}
	return files
}

// wantFiles is what a volume with these addresses has to hold.
func wantFiles(volume string, addresses ...listenersv1alpha1.IngressAddress) map[string]string {
	files := map[string]string{}
	for i, a := range addresses {
		dirs := []string{volume + "/addresses/" + a.Address}
		if i == 0 {
			dirs = append(dirs, volume+"/default-address")
		}
		for _, dir := range dirs {
			files[dir+"/address"] = a.Address
			for name, port := range a.Ports {
				files[dir+"/ports/"+name] = strconv.Itoa(int(port))
			}
		}
	}
	return files
}
