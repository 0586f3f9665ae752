package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

const (
	// memoryLimit is that of the agent's container.
	memoryLimit = 128 << 20
	// pods is how many a kubelet runs by default.
	pods = 110
	// published is how many of them have their addresses mounted.
	published = 11
	// mounts is the number of volumes of a Pod.
	mounts = 12
	// listed is how many bytes of JSON an object has: almost as many as etcd stores.
	listed = 1400 << 10
	// agentVariable is the environment variable with the URL of the API server of an agent that runs alone.
	agentVariable = "TEST_AGENT_API_SERVER"
)

// runAlone runs an agent as main does, with the options of its container, until the process is told to end.
func runAlone(url string) error {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memoryLimit / 5 * 4)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := Options{NodeName: "node-1", KubeletDir: os.Getenv("TEST_AGENT_DIR"), HealthProbeBindAddress: os.Getenv("TEST_AGENT_HEALTH")}
	return run(ctx, &rest.Config{Host: url}, options)
}

// TestMemoryOfTheAgentIsBounded runs an agent alone on a node full of Pods, whose objects are as large as the API
// server admits. Each Pod has a volume with addresses, and more volumes that wait for some than the agent lets wait.
func TestMemoryOfTheAgentIsBounded(t *testing.T) {
	program := filepath.Join(t.TempDir(), "agent") // without the race detector, which needs memory
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	for name, api := range map[string]*largeAPI{
		"a host for each port, streamed": {streams: true, address: func(i int) listenersv1alpha1.IngressAddress {
			return listenersv1alpha1.IngressAddress{
				Address: fmt.Sprintf("h%d.%s", i, strings.Repeat("x", 50)), AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{"https": 443},
			}
		}},
		"many ports, listed": {address: func(i int) listenersv1alpha1.IngressAddress {
			a := listenersv1alpha1.IngressAddress{Address: fmt.Sprint("h", i), AddressType: listenersv1alpha1.AddressTypeHostname, Ports: map[string]int32{}}
			for port := range int32(256) {
				a.Ports[fmt.Sprint("p", port)] = port + 1
			}
			return a
		}},
	} {
		t.Run(name, func(t *testing.T) {
			api.stop = t.Context().Done()
			server := httptest.NewServer(api)
			t.Cleanup(server.CloseClientConnections)
			measureAgent(t, program, server.URL)
		})
	}
}

func measureAgent(t *testing.T, program, url string) {
	t.Helper()
	k := newKubelet(t)
	agent := exec.CommandContext(t.Context(), program)
	agent.Env = append(os.Environ(), agentVariable+"="+url, "TEST_AGENT_DIR="+k.dir, "TEST_AGENT_HEALTH="+k.health)
	check.Must(t, agent.Start())
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	k.register(&registrationv1.RegistrationStatus{PluginRegistered: true})
	await(t, ended, func() bool { return k.ready() == http.StatusOK })
	t.Logf("%d MiB for the addresses", memory(t, agent.Process.Pid)>>20)

	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	annotations := strings.Repeat("a", 30<<10)
	for pod := range pods {
		for volume := range mounts {
			if volume == 0 && pod%(pods/published) != 0 {
				continue // 256 KiB of addresses are thousands of files
			}
			connection := k.dial(filepath.Join(k.dir, "plugins", "listeners.stackable.tech", "csi.sock"))
			target := filepath.Join(k.dir, "pods", string(uid(pod)), "volumes", "kubernetes.io~csi", fmt.Sprint("pvc-", volume), "mount")
			check.Must(t, os.MkdirAll(filepath.Dir(target), 0o750))
			calls.Go(func() {
				defer connection.Close() //nolint:errcheck // as the kubelet does after each request
				_, err := csi.NewNodeClient(connection).NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
					VolumeId: fmt.Sprint("pvc-", volume), TargetPath: target,
					VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}},
					VolumeContext: map[string]string{
						"csi.storage.k8s.io/pod.name": fmt.Sprint("web-", pod), "csi.storage.k8s.io/pod.namespace": "shop",
						"csi.storage.k8s.io/pod.uid": string(uid(pod)), "note": annotations,
					},
				})
				if volume == 0 && err != nil {
					t.Error(err)
				}
			})
		}
	}
	const waiting = pods * 4
	await(t, ended, func() bool {
		return strings.Contains(k.get("/metrics"), fmt.Sprintf("listener_node_agent_mounts_in_flight %d\n", waiting)) && strings.Contains(
			k.get("/metrics"), fmt.Sprintf(`listener_node_agent_mount_duration_seconds_count{code="OK"} %d`, published))
	})
	used := memory(t, agent.Process.Pid)
	cancel()
	calls.Wait()
	t.Logf("%d MiB with mounts", used>>20)
	if used > memoryLimit {
		t.Errorf("the agent needs %d MiB", used>>20)
	}
}

// await waits for a condition while an agent runs.
func await(t *testing.T, ended <-chan error, condition func() bool) {
	t.Helper()
	for deadline := time.After(2 * time.Minute); !condition(); {
		select {
		case err := <-ended:
			t.Fatal("the agent ended: ", err)
		case <-deadline:
			t.Fatal("the agent does not do what it should")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func uid(pod int) types.UID {
	return types.UID(fmt.Sprintf("0b7b1c1e-5d0f-4c59-9ad2-%012d", pod))
}

// memory returns the largest resident set that a process had, in bytes, without pages of files, which the kernel can
// drop.
func memory(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check.Must(t, err)
	value := func(name string) int {
		match := regexp.MustCompile(name + `:\s*(\d+) kB`).FindSubmatch(all)
		kib, err := strconv.Atoi(string(match[1]))
		check.Must(t, err)
		return kib << 10
	}
	return value("VmHWM") - value("RssFile")
}

// largeAPI is an API server with a large PodListeners object for each Pod.
type largeAPI struct {
	// streams states that lists can be streamed as a watch, as Kubernetes 1.33 cannot.
	streams bool
	address func(int) listenersv1alpha1.IngressAddress
	stop    <-chan struct{}

	once   sync.Once
	object string
}

// json returns the object of a Pod.
func (a *largeAPI) json(pod int) string {
	a.once.Do(func() {
		object := listenersv1alpha1.NewPodListeners(types.NamespacedName{Namespace: "shop", Name: "web-POD"}, "UID", "node-1")
		object.ResourceVersion = "1"
		// The first volume has as many addresses as may be, and what else the object has is not needed.
		first := listenersv1alpha1.PodListener{PersistentVolumeName: "pvc-0", Scope: listenersv1alpha1.ListenerScopeNode}
		var start []listenersv1alpha1.IngressAddress
		for size := 0; size < listed; {
			next := a.address(len(start))
			raw, _ := json.Marshal(next)
			size += len(raw)
			start = append(start, next)
			object.Spec.Listeners["v0"] = listenersv1alpha1.PodListener{IngressAddresses: append(first.IngressAddresses, next)}
			if len(object.Spec.Limit([]string{"v0"})) == 0 {
				first.IngressAddresses = append(first.IngressAddresses, next)
				size += len(raw)
			}
		}
		object.Spec.Listeners["v0"], object.Spec.StartAddresses = first, map[string][]listenersv1alpha1.IngressAddress{"v0": start}
		for i := 1; i < mounts; i++ {
			object.Spec.Listeners[fmt.Sprint("v", i)] = listenersv1alpha1.PodListener{PersistentVolumeName: fmt.Sprint("pvc-", i)}
		}
		raw, _ := json.Marshal(object)
		a.object = string(raw)
	})
	return strings.NewReplacer("UID", string(uid(pod)), "POD", strconv.Itoa(pod)).Replace(a.object)
}

func (a *largeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case query.Get("sendInitialEvents") == "true" && !a.streams:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") == "true":
		if query.Get("sendInitialEvents") == "true" {
			for pod := range pods {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", a.json(pod))
			}
			_, _ = fmt.Fprint(w, `{"type":"BOOKMARK","object":{"apiVersion":"listeners.stackable.tech/v1alpha1","kind":"PodListeners",`+
				`"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"listeners":{}}}}`+"\n")
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-a.stop:
		}
	default:
		_, _ = fmt.Fprint(w, `{"kind":"PodListenersList","apiVersion":"listeners.stackable.tech/v1alpha1","metadata":{"resourceVersion":"1"},"items":[`)
		for pod := range pods {
			if query.Get("limit") == "1" { // the agent asks for the resource version
				break
			}
			if pod > 0 {
				_, _ = fmt.Fprint(w, ",")
			}
			_, _ = fmt.Fprint(w, a.json(pod))
		}
		_, _ = fmt.Fprint(w, "]}")
	}
}
