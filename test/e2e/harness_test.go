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
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// timeout is how long a scenario waits for one change. It allows for a machine that has other work.
const timeout = 2 * time.Minute

// scenario is a test or benchmark with its own namespace.
type scenario struct {
	testing.TB
	ctx       context.Context
	namespace string
}

// endedNamespaces are those of scenarios that have ended.
var endedNamespaces sync.Map

// newScenario creates a scenario and its namespace, which enforces the restricted Pod security standard. At the end of
// the test it deletes the namespace, and if the test has failed it first logs what is in it. The Pods and claims are
// gone then; Kubernetes deletes a namespace after some seconds, for which awaitEndedNamespaces waits.
func newScenario(t testing.TB) *scenario {
	t.Helper()
	s := &scenario{TB: t, ctx: t.Context()}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "scenario-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	s.create(namespace)
	s.namespace = namespace.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if t.Failed() {
			s.dump(ctx)
		}
		if err := s.deletePods(ctx); err != nil {
			t.Errorf("deleting the Pods: %v", err)
		}
		if err := client.IgnoreNotFound(api.Delete(ctx, namespace)); err != nil {
			t.Errorf("deleting the namespace: %v", err)
		}
		endedNamespaces.Store(namespace.Name, t.Name())
	})
	return s
}

// deletePods deletes all Pods and claims of the scenario, and waits until they are gone.
func (s *scenario) deletePods(ctx context.Context) error {
	for _, o := range []client.Object{&appsv1.StatefulSet{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		if err := api.DeleteAllOf(ctx, o, client.InNamespace(s.namespace)); err != nil {
			return err
		}
	}
	return eventually(ctx, func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
			if err := api.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
				return err
			}
			if meta.LenList(list) > 0 {
				raw, _ := json.Marshal(list)
				return fmt.Errorf("these are left: %s", raw)
			}
		}
		return nil
	})
}

// awaitEndedNamespaces waits until the namespaces of all scenarios are deleted.
func awaitEndedNamespaces(ctx context.Context) error {
	var errs []error
	endedNamespaces.Range(func(name, test any) bool {
		if err := awaitDeleted(ctx, &corev1.Namespace{}, client.ObjectKey{Name: name.(string)}); err != nil {
			errs = append(errs, fmt.Errorf("the namespace of %s is not deleted: %w", test, err))
		}
		return true
	})
	return errors.Join(errs...)
}

// dump logs the objects of the namespace, and the logs of the operator and its agents.
func (s *scenario) dump(ctx context.Context) {
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
		cmd := exec.CommandContext(ctx, testbed.Kubectl(), "--kubeconfig", testbed.Kubeconfig(), "-n", operatorNamespace,
			"logs", "--prefix", "--tail=40", "-l", selector)
		output, _ := cmd.CombinedOutput()
		s.Logf("logs of %s:\n%s", selector, output)
	}
}

func (s *scenario) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: name}
}

// timeoutContext returns a context with the timeout.
func (s *scenario) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	s.Cleanup(cancel)
	return ctx
}

func (s *scenario) create(o client.Object) {
	s.Helper()
	if o.GetNamespace() == "" {
		o.SetNamespace(s.namespace)
	}
	if err := api.Create(s.ctx, o); err != nil {
		s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scenario) remove(o client.Object, options ...client.DeleteOption) {
	s.Helper()
	if err := api.Delete(s.ctx, o, options...); err != nil {
		s.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

func (s *scenario) get(o client.Object, key client.ObjectKey) {
	s.Helper()
	if err := api.Get(s.ctx, key, o); err != nil {
		s.Fatalf("reading %T %s: %v", o, key, err)
	}
}

// patch changes an object by a merge patch of what change does to it.
func (s *scenario) patch(o client.Object, change func()) {
	s.Helper()
	before := o.DeepCopyObject().(client.Object)
	change()
	if err := api.Patch(s.ctx, o, client.MergeFrom(before)); err != nil {
		s.Fatalf("changing %T %s: %v", o, o.GetName(), err)
	}
}

// createClass creates a ListenerClass, named like the scenario's namespace, and deletes it at the end of the test.
func (s *scenario) createClass(spec listenersv1alpha1.ListenerClassSpec) *listenersv1alpha1.ListenerClass {
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

// byClass returns the annotations of a claim that names a class.
func byClass(class string) map[string]string {
	return map[string]string{names.AnnotationListenerClass: class}
}

// byName returns the annotations of a claim that names a Listener.
func byName(name string) map[string]string {
	return map[string]string{names.AnnotationListenerName: name}
}

// claimSpec returns the spec of the claims that product operators create.
func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To(names.Driver),
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
	}
}

// podSpec returns the spec of a Pod that runs the test server and mounts these volumes, which the caller has to define.
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

// pod returns a Pod that runs the test server. volumes are its ephemeral listener volumes, with the annotations of
// their claims.
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

// podWith returns a Pod that runs the test server, with one volume, "listener".
func podWith(name string, source corev1.VolumeSource) *corev1.Pod {
	p := pod(name, nil)
	p.Spec.Volumes = []corev1.Volume{{Name: "listener", VolumeSource: source}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "listener", MountPath: "/listeners/listener"}}
	return p
}

// statefulSet returns a StatefulSet that runs the test server, and has a claim with these annotations for each replica.
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

// notOn returns the affinity of Pods that do not run on a node.
func notOn(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
			}},
		}}},
	}}
}

// await watches an object until it meets the condition, and returns it.
func await[T client.Object](ctx context.Context, o T, key client.ObjectKey, condition func(T) bool) (T, error) {
	last := "it does not exist"
	found, err := watchUntil(ctx, o, selectObject(key), func(kind watch.EventType, seen T) bool {
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
	list, err := api.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}

func mustAwait[T client.Object](s *scenario, o T, name string, condition func(T) bool) T {
	s.Helper()
	found, err := await(s.timeoutContext(), o, s.key(name), condition)
	if err != nil {
		s.Fatal(err)
	}
	return found
}

func mustAwaitDeleted[T client.Object](s *scenario, o T, key client.ObjectKey) {
	s.Helper()
	if err := awaitDeleted(s.timeoutContext(), o, key); err != nil {
		s.Fatal(err)
	}
}

// awaitReady waits until a Pod is ready, and is none of those before.
func (s *scenario) awaitReady(name string, before ...*corev1.Pod) *corev1.Pod {
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

// createBootstrapListener creates a Listener named "bootstrap", for claims that name it.
func (s *scenario) createBootstrapListener(class string) {
	s.Helper()
	s.create(&listenersv1alpha1.Listener{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap"},
		Spec: listenersv1alpha1.ListenerSpec{
			ClassName: &class, Ports: []listenersv1alpha1.ListenerPort{{Name: "http", Port: 8080, Protocol: ptr.To(corev1.ProtocolTCP)}},
		},
	})
}

// assignAddress sets the address of a Service as a load balancer's controller does.
func (s *scenario) assignAddress(service *corev1.Service, address string) {
	s.Helper()
	before := service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	if err := api.Status().Patch(s.ctx, service, client.MergeFrom(before)); err != nil {
		s.Fatalf("assigning an address: %v", err)
	}
}

// awaitListener waits until a Listener has this number of addresses.
func (s *scenario) awaitListener(name string, addresses int) *listenersv1alpha1.Listener {
	s.Helper()
	return mustAwait(s, &listenersv1alpha1.Listener{}, name, func(l *listenersv1alpha1.Listener) bool {
		return l.Status != nil && l.Status.IngressAddresses != nil && len(l.Status.IngressAddresses) == addresses
	})
}

// awaitCondition waits until a Listener's condition has this status and reason, and returns its message.
func (s *scenario) awaitCondition(name, kind string, status metav1.ConditionStatus, reason string) string {
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

// externalClient is an HTTP client outside of the cluster.
var externalClient = &http.Client{
	Timeout: 3 * time.Second,
	Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return testbed.ClientDial(ctx, network, address)
		},
	},
}

// request sends one request from outside of the cluster to an address of a Listener, and returns the body.
func request(ctx context.Context, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	return requestWith(ctx, externalClient, a, path)
}

func requestWith(ctx context.Context, by *http.Client, a listenersv1alpha1.IngressAddress, path string) (string, error) {
	target := net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports["http"])))
	return fetch(ctx, by, "http://"+target+path)
}

// fetch sends one request, and returns the body of the response. Any status but 200 is an error.
func fetch(ctx context.Context, by *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := by.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, content)
	}
	return string(content), err
}

// awaitAnswer waits until an address answers a request from outside of the cluster with the name of the expected Pod.
// kube-proxy follows a Service with a delay that no watch shows.
func (s *scenario) awaitAnswer(a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	var got string
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		var err error
		if got, err = request(ctx, a, "/whoami"); err == nil && got != want {
			err = fmt.Errorf("%q answered, want %q", got, want)
		}
		return err
	})
	if err != nil {
		s.Fatalf("from outside, %s: %v", a.Address, err)
	}
}

// awaitNoAnswer waits until an address answers no more, for the same reason.
func (s *scenario) awaitNoAnswer(a listenersv1alpha1.IngressAddress) {
	s.Helper()
	if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		if name, err := request(ctx, a, "/whoami"); err == nil {
			return fmt.Errorf("%s still answers there", name)
		}
		return nil
	}); err != nil {
		s.Errorf("from outside, %s: %v", a.Address, err)
	}
}

// awaitAnswerOverUDP is awaitAnswer for the port "echo".
func (s *scenario) awaitAnswerOverUDP(a listenersv1alpha1.IngressAddress, want string) {
	s.Helper()
	target := net.JoinHostPort(a.Address, strconv.Itoa(int(a.Ports["echo"])))
	err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		conn, err := testbed.ClientDial(ctx, "udp", target)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("who are you")); err != nil {
			return err
		}
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		if err == nil && string(answer[:n]) != want {
			err = fmt.Errorf("%q answered, want %q", answer[:n], want)
		}
		return err
	})
	if err != nil {
		s.Fatalf("from outside, over UDP, %s: %v", target, err)
	}
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

// readFiles requests the files that the test server reads in its volumes, through an address from outside of the
// cluster.
func (s *scenario) readFiles(a listenersv1alpha1.IngressAddress) map[string]string {
	s.Helper()
	body, err := request(s.timeoutContext(), a, "/files")
	if err != nil {
		s.Fatalf("requesting the files: %v", err)
	}
	var files map[string]string
	if err := json.Unmarshal([]byte(body), &files); err != nil {
		s.Fatalf("parsing the files: %v", err)
	}
	return files
}

// awaitFilesAt waits until the test server, which is reached through an address from outside of the cluster, reads
// exactly these addresses in its volume "listener".
func (s *scenario) awaitFilesAt(through listenersv1alpha1.IngressAddress, want ...listenersv1alpha1.IngressAddress) {
	s.Helper()
	if err := eventually(s.timeoutContext(), func(ctx context.Context) error {
		raw, err := request(ctx, through, "/files")
		if err != nil {
			return err
		}
		return checkFiles(raw, want...)
	}); err != nil {
		s.Fatal(err)
	}
}

// checkFiles returns an error unless the files that the test server has read are those of exactly these addresses in
// its volume "listener".
func checkFiles(raw string, want ...listenersv1alpha1.IngressAddress) error {
	var files map[string]string
	if err := json.Unmarshal([]byte(raw), &files); err != nil {
		return fmt.Errorf("parsing the files: %w", err)
	}
	if diff := cmp.Diff(wantFiles("listener", want...), files); diff != "" {
		return fmt.Errorf("files (-want +got):\n%s", diff)
	}
	return nil
}

// wantFiles returns the expected files of a volume with these addresses.
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
