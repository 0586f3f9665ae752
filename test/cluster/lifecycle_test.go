//go:build e2e

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// lifecycleName is the name of the test's cluster. Other clusters may exist.
const lifecycleName = "lifecycle-test"

// timeout is how long the test waits for what takes seconds on an idle machine.
const timeout = 2 * time.Minute

// The cluster is created after an interrupted attempt, runs Pods, loses and replaces nodes, and is deleted completely.
func TestClusterLifecycle(t *testing.T) {
	check.Must(t, Down(t.Context(), lifecycleName, t.Output())) // an earlier run may have been interrupted
	t.Cleanup(func() { expectNothingLeft(t) })
	interruptUp(t)
	options := Options{Name: lifecycleName, Nodes: 2, Progress: t.Output()}
	c, err := Up(t.Context(), options)
	check.Must(t, err)
	client, err := c.client()
	check.Must(t, err)
	s := &scenario{Cluster: c, client: client}
	t.Run("the cluster is ready", s.isReady)
	t.Run("a second Up changes nothing", func(t *testing.T) { s.upAgain(t, options) })
	t.Run("a Pod runs", s.podRuns)
	t.Run("a Pod finds a Service by name", s.findsServiceByName)
	t.Run("the client reaches a node port but no Pod", s.clientIsOutside)
	t.Run("a NetworkPolicy admits some Pods", s.enforcesPolicies)
	t.Run("Pods use images that were loaded and pushed", s.usesImages)
	t.Run("Pods keep running while the kubelet restarts", s.kubeletRestarts)
	t.Run("a node is started after a power cut", s.nodeReboots)
	t.Run("a deleted node is replaced", s.nodeIsReplaced)
}

// interruptUp calls Up and cancels it at the first progress message.
func interruptUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Up(ctx, Options{Name: lifecycleName, Nodes: 1, Progress: writerFunc(func([]byte) { cancel() })})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted Up returned %v", err)
	}
}

// writerFunc is called for every line.
type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

// scenario is the cluster of the subtests, which run in sequence.
type scenario struct {
	*Cluster
	client kubernetes.Interface
}

func (s *scenario) isReady(t *testing.T) {
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	components, err := s.Status()
	check.Must(t, err)
	for _, component := range components {
		if component.PID == 0 {
			t.Errorf("%s of %s does not run, see %s", component.Name, component.Machine, component.Log)
		}
	}
	opened, err := Open(lifecycleName)
	if err != nil || opened.NodeIP(1) != s.NodeIP(1) {
		t.Errorf("opening the cluster: %v", err)
	}
}

func (s *scenario) upAgain(t *testing.T, options Options) {
	before, err := s.Status()
	check.Must(t, err)
	if _, err := Up(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	after, err := s.Status()
	check.Must(t, err)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("processes before: %v, after: %v", before, after)
	}
}

func (s *scenario) podRuns(t *testing.T) {
	s.createPod(t, "web", 1, BusyboxImage, "sh", "-c", "echo hello >/tmp/index.html && exec httpd -f -p 8080 -h /tmp")
	s.createPod(t, "shell", 2, BusyboxImage, "sleep", "1000000")
	_, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:           corev1.ServiceTypeNodePort,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Selector:       map[string]string{"pod": "web"},
			Ports:          []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	check.Must(t, err)
	s.awaitReady(t, "web", 0)
	s.awaitReady(t, "shell", 0)
}

func (s *scenario) findsServiceByName(t *testing.T) {
	eventually(t, "the Pod on node 2 gets the page of the Pod on node 1 through DNS and Service", func() error {
		output, err := s.kubectl(t, "exec", "shell", "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc web 80`)
		if err == nil && !strings.Contains(output, "hello") {
			err = fmt.Errorf("unexpected answer %q", output)
		}
		return err
	})
}

func (s *scenario) clientIsOutside(t *testing.T) {
	service, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), "web", metav1.GetOptions{})
	check.Must(t, err)
	for _, node := range s.Nodes() {
		for _, ip := range []string{s.NodeIP(node), s.NodeIPv6(node)} {
			address := net.JoinHostPort(ip, strconv.Itoa(int(service.Spec.Ports[0].NodePort)))
			eventually(t, "the client gets the page from "+address, func() error {
				return get(t, "http://"+address, s.ClientDial)
			})
		}
	}
	var inside []string
	for _, ip := range s.pod(t, "web").Status.PodIPs {
		web := net.JoinHostPort(ip.IP, "8080")
		if err := get(t, "http://"+web, (&net.Dialer{}).DialContext); err != nil {
			t.Errorf("the host does not reach the Pod: %v", err)
		}
		inside = append(inside, web)
	}
	for _, ip := range service.Spec.ClusterIPs {
		inside = append(inside, net.JoinHostPort(ip, "80"))
	}
	if len(inside) != 4 {
		t.Errorf("Pod and Service have the addresses %q, want two of each family", inside)
	}
	for _, address := range inside {
		if conn, err := s.ClientDial(t.Context(), "tcp", address); err == nil {
			t.Errorf("the client reaches %s", address)
			_ = conn.Close()
		}
	}
	output, err := s.ClientCommand(t.Context(), "ip", "-brief", "address").CombinedOutput()
	if err != nil || !strings.Contains(string(output), s.ClientIP()+"/24") || !strings.Contains(string(output), s.ClientIPv6()+"/64") {
		t.Errorf("the client's addresses are %s, %v", output, err)
	}
}

// enforcesPolicies tries connections between Pods of the same node and of two nodes, over IPv4 and IPv6.
func (s *scenario) enforcesPolicies(t *testing.T) {
	s.createPod(t, "neighbour", 1, BusyboxImage, "sleep", "1000000")
	s.awaitReady(t, "neighbour", 0)
	connect := func(from string, to corev1.PodIP) error {
		command := fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 1 %s 8080`, to.IP)
		_, err := s.kubectl(t, "exec", from, "--", "sh", "-c", command)
		return err
	}
	expect := func(admitted ...string) {
		t.Helper()
		for _, from := range []string{"neighbour", "shell"} {
			for _, to := range s.pod(t, "web").Status.PodIPs {
				want := slices.Contains(admitted, from)
				eventually(t, fmt.Sprintf("whether %s connects to %s is %t", from, to.IP, want), func() error {
					if err := connect(from, to); (err == nil) != want {
						return fmt.Errorf("connecting: %w", err)
					}
					return nil
				})
			}
		}
	}
	expect("neighbour", "shell")
	policies := s.client.NetworkingV1().NetworkPolicies(metav1.NamespaceDefault)
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pod": "web"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	policy, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
	check.Must(t, err)
	expect()
	for _, admitted := range []string{"neighbour", "shell"} {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"pod": admitted}}
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: selector}}}}
		if policy, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(admitted)
	}
	check.Must(t, policies.Delete(t.Context(), policy.Name, metav1.DeleteOptions{}))
	expect("neighbour", "shell")
}

func (s *scenario) usesImages(t *testing.T) {
	spec, err := image.Busybox(t.Context(), busybox)
	check.Must(t, err)
	spec.Entrypoint, spec.Cmd = []string{"sleep"}, []string{"1000000"}
	check.Must(t, s.LoadImage(t.Context(), "localhost/loaded:1", spec))
	spec.Labels = map[string]string{"a": "b"}
	pushed, err := s.PushImage(t.Context(), "pushed:1", spec)
	check.Must(t, err)
	s.createPod(t, "loaded", 2, "localhost/loaded:1")
	s.createPod(t, "pushed", 2, pushed)
	s.awaitReady(t, "loaded", 0)
	s.awaitReady(t, "pushed", 0)
	for _, pod := range []string{"loaded", "pushed"} {
		if output, err := s.kubectl(t, "exec", pod, "--", "cat", "/proc/1/cmdline"); output != "sleep\x001000000\x00" {
			t.Errorf("Pod %s runs %q, %v", pod, output, err)
		}
	}
	s.usesTheMirror(t, strings.Replace(pushed, s.Registry(), MirroredRegistry, 1))
}

// usesTheMirror pulls an image from the mirror. Nodes have no password for it.
func (s *scenario) usesTheMirror(t *testing.T, ref string) {
	t.Helper()
	s.createPod(t, "refused", 2, ref)
	eventually(t, "a Pod without a pull secret is not authorized", func() error {
		containers := s.pod(t, "refused").Status.ContainerStatuses
		if len(containers) == 0 || containers[0].State.Waiting == nil || !strings.Contains(containers[0].State.Waiting.Message, "authorization failed") {
			return fmt.Errorf("its containers are %+v", containers)
		}
		return nil
	})
	user, password, err := s.RegistryLogin()
	check.Must(t, err)
	for _, args := range [][]string{
		{"delete", "pod", "refused"},
		{
			"create", "secret", "docker-registry", "mirror", "--docker-server=" + MirroredRegistry,
			"--docker-username=" + user, "--docker-password=" + password,
		},
		{"patch", "serviceaccount", "default", `--patch={"imagePullSecrets":[{"name":"mirror"}]}`},
	} {
		if _, err := s.kubectl(t, args...); err != nil {
			t.Fatal(err)
		}
	}
	s.createPod(t, "mirrored", 2, ref)
	s.awaitReady(t, "mirrored", 0)
}

func (s *scenario) kubeletRestarts(t *testing.T) {
	check.Must(t, s.StopKubelet(t.Context(), 1))
	if _, ok, err := s.node(1).find(s.kubelet(1)); ok || err != nil {
		t.Errorf("the kubelet runs: %t, %v", ok, err)
	}
	web := net.JoinHostPort(s.pod(t, "web").Status.PodIP, "8080")
	if err := get(t, "http://"+web, (&net.Dialer{}).DialContext); err != nil {
		t.Errorf("the Pod does not answer without a kubelet: %v", err)
	}
	check.Must(t, s.StartKubelet(t.Context(), 1))
	s.awaitReady(t, "web", 0)
}

func (s *scenario) nodeReboots(t *testing.T) {
	check.Must(t, s.StopNode(t.Context(), 1))
	if _, err := os.Stat(filepath.Join(s.KubeletDir(1), "pods", string(s.pod(t, "web").UID))); err != nil {
		t.Errorf("the kubelet's directory was lost by the power cut: %v", err)
	}
	eventually(t, "the node is reported as lost", func() error {
		node, err := s.client.CoreV1().Nodes().Get(t.Context(), s.NodeName(1), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return errors.New("condition Ready is not Unknown")
	})
	check.Must(t, s.StartNode(t.Context(), 1))
	s.awaitReady(t, "web", 1)
	output, err := s.NodeCommand(t.Context(), 1, "hostname").Output()
	if err != nil || strings.TrimSpace(string(output)) != s.NodeName(1) {
		t.Errorf("the node's host name is %q, %v", output, err)
	}
}

func (s *scenario) nodeIsReplaced(t *testing.T) {
	check.Must(t, s.DeleteNode(t.Context(), 2))
	if ok, err := exists(s.KubeletDir(2)); ok || err != nil {
		t.Errorf("the node's disk is still there: %t, %v", ok, err)
	}
	if err := s.StopNode(t.Context(), 2); !errors.Is(err, errNoNode) {
		t.Errorf("stopping a deleted node: %v", err)
	}
	check.Must(t, s.StartNode(t.Context(), 3))
	s.createPod(t, "new-node", 3, "localhost/loaded:1")
	s.awaitReady(t, "new-node", 0)
}

// createPod creates a Pod on a node, labelled with its name.
func (s *scenario) createPod(t *testing.T, name string, node int, image string, args ...string) {
	t.Helper()
	noGrace := int64(0)
	_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod": name}},
		Spec: corev1.PodSpec{
			NodeName:                      s.NodeName(node),
			TerminationGracePeriodSeconds: &noGrace,
			// It is not evicted while its node is stopped.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "main", Image: image, Args: args}},
		},
	}, metav1.CreateOptions{})
	check.Must(t, err)
}

// pod reads a Pod.
func (s *scenario) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	check.Must(t, err)
	return pod
}

// awaitReady waits until a Pod is Ready after the given number of restarts.
func (s *scenario) awaitReady(t *testing.T, name string, restarts int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("Pod %s is ready after %d restarts", name, restarts), func() error {
		status := s.pod(t, name).Status
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue &&
				status.ContainerStatuses[0].RestartCount == restarts {
				return nil
			}
		}
		return fmt.Errorf("its status is %v", status)
	})
}

// kubectl runs kubectl on the cluster.
func (s *scenario) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"--kubeconfig=" + s.Kubeconfig(), "--cache-dir=" + t.TempDir()}, args...)
	output, err := exec.CommandContext(t.Context(), s.Kubectl(), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl: %w: %s", err, output)
	}
	return string(output), nil
}

// dialer opens a connection.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// get gets the page of the Pod "web".
func get(t *testing.T, url string, dial dialer) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != "hello\n" {
		err = fmt.Errorf("unexpected page %q", body)
	}
	return err
}

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var last error
	if err := until(ctx, func() (bool, error) {
		last = check()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// expectNothingLeft deletes the cluster and checks that nothing of it remains.
func expectNothingLeft(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout) // the test's own context is done
	defer cancel()
	c, err := Open(lifecycleName)
	if err != nil {
		t.Error(err)
		return
	}
	if err := Down(ctx, lifecycleName, t.Output()); err != nil {
		t.Error(err)
		return
	}
	left, err := processes(func(p process) bool { return strings.Contains(strings.Join(p.argv, " "), c.dir) })
	if err != nil || len(left) > 0 {
		t.Errorf("processes: %v, %v", left, err)
	}
	expectNoNetwork(t, c.subnets)
	for _, file := range []string{"/proc/self/mounts", "/proc/net/route"} {
		for _, trace := range []string{c.dir, c.cgroup(), c.subnets.bridge() + "\t"} {
			if bytes.Contains([]byte(read(t, file)), []byte(trace)) {
				t.Errorf("%s mentions %s", file, trace)
			}
		}
	}
	_, groups, err := hierarchies()
	if err != nil {
		t.Error(err)
	}
	for _, h := range groups {
		expectAbsent(t, filepath.Join(h.mount, c.cgroup()))
	}
	expectAbsent(t, c.dir)
	expectAbsent(t, c.dir+".lock")
}

// expectNoNetwork fails the test if a network interface of the cluster exists.
func expectNoNetwork(t *testing.T, s subnets) {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Error(err)
	}
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, s.bridge()) {
			t.Errorf("network interface %s", i.Name)
		}
	}
}

// expectAbsent fails the test if path exists.
func expectAbsent(t *testing.T, path string) {
	t.Helper()
	if ok, err := exists(path); ok || err != nil {
		t.Errorf("%s exists: %t, %v", path, ok, err)
	}
}

// Two clusters that are created at the same time get different subnets and do not affect each other.
func TestTwoClustersAreCreatedConcurrently(t *testing.T) {
	var group sync.WaitGroup
	hosts := make([]string, 2)
	for i := range hosts {
		group.Go(func() {
			name := fmt.Sprintf("%s-%d", lifecycleName, i)
			c, err := Up(t.Context(), Options{Name: name, Nodes: 1, Progress: t.Output()})
			if err != nil {
				t.Error(err)
				return
			}
			hosts[i] = c.HostIP()
			if err := Down(t.Context(), name, t.Output()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if hosts[0] == hosts[1] {
		t.Errorf("both clusters have the host address %s", hosts[0])
	}
}
