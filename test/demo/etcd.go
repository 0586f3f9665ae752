package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/hack/image"
	"github.com/listener-operator/listener-operator/test/await"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// Names that are also in manifests/etcd.yaml.
const (
	etcdNamespace = "demo"
	etcdImage     = "etcd:demo"
	etcdUser      = 65532
	etcdPort      = 2379
	dataClass     = "demo-data"
)

// members is the number of etcd's members.
const members = 3

// etcdTimeout is how long etcd may take to become ready.
const etcdTimeout = 2 * time.Minute

// memberPod is the name of a member of etcd, and of its Pod.
func memberPod(i int) string { return fmt.Sprintf("etcd-%d", i) }

// startEtcd creates etcd on the cluster, and returns its Pods when all are ready.
func (d *demo) startEtcd(ctx context.Context) ([]corev1.Pod, error) {
	if err := d.loadEtcd(ctx); err != nil {
		return nil, err
	}
	if err := d.createStorage(ctx); err != nil {
		return nil, err
	}
	d.progress.Printf("starting etcd: kubectl apply -f test/demo/manifests -f test/demo/manifests/classes/%s", d.class)
	manifests := filepath.Join("test", "demo", "manifests")
	if _, err := d.kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(manifests, "classes", d.class), "-f", manifests); err != nil {
		return nil, err
	}
	return d.awaitEtcd(ctx, nil)
}

// loadEtcd loads an image of etcd, with a shell, into the nodes.
func (d *demo) loadEtcd(ctx context.Context) error {
	dir, err := tools.Ensure(ctx, "etcd")
	if err != nil {
		return err
	}
	spec, err := image.Busybox(ctx, "/bin/busybox")
	if err != nil {
		return err
	}
	for _, program := range []string{"etcd", "etcdctl"} {
		spec.Files["/usr/local/bin/"+program] = image.File{Source: filepath.Join(dir, program)}
	}
	d.progress.Printf("loading the image %s into the nodes", etcdImage)
	return d.cluster.LoadImage(ctx, etcdImage, spec)
}

// createStorage creates a data volume for each member: a directory of this machine, which all nodes can access.
func (d *demo) createStorage(ctx context.Context) error {
	for i := range members {
		name := fmt.Sprintf("demo-data-%d", i)
		dir := filepath.Join(filepath.Dir(d.cluster.Kubeconfig()), name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the directory of a volume: %w", err)
		}
		if err := os.Chown(dir, etcdUser, etcdUser); err != nil {
			return fmt.Errorf("changing the owner of a volume's directory: %w", err)
		}
		if err := d.client.Create(ctx, dataVolume(name, dir)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating volume %s: %w", name, err)
		}
	}
	return nil
}

// dataVolume returns a PersistentVolume in a directory.
func dataVolume(name, dir string) *corev1.PersistentVolume {
	kind := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              dataClass,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}},
		},
	}
}

// awaitEtcd waits until all Pods of etcd are ready, and returns them sorted by name. It does not count deleted, which
// may be nil: a Pod that was just deleted may still exist.
func (d *demo) awaitEtcd(ctx context.Context, deleted *corev1.Pod) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, etcdTimeout, fmt.Errorf("not within %s", etcdTimeout))
	defer cancel()
	pods, err := await.List(ctx, d.client, &corev1.PodList{},
		func(l *corev1.PodList) string { return notReady(l.Items, deleted) },
		func(state string) { d.progress.Printf("etcd: %s", state) },
		client.InNamespace(etcdNamespace), client.MatchingLabels{"app": "etcd"})
	if err != nil {
		return nil, fmt.Errorf("waiting for etcd: %w", err)
	}
	d.progress.Printf("etcd: ready")
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods.Items, nil
}

// notReady returns which members are not ready, or "". It does not count the Pod deleted, which may be nil.
func notReady(pods []corev1.Pod, deleted *corev1.Pod) string {
	states := map[string]string{}
	for i := range members {
		states[memberPod(i)] = "missing"
	}
	for i := range pods {
		if deleted == nil || pods[i].UID != deleted.UID {
			states[pods[i].Name] = podState(&pods[i])
		}
	}
	var waiting []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if state := states[name]; state != "" {
			waiting = append(waiting, name+" "+state)
		}
	}
	return strings.Join(waiting, ", ")
}

// podState returns why a Pod is not ready, or "".
func podState(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "is terminating"
	}
	if podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue {
		return ""
	}
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled.Status == corev1.ConditionFalse {
		return "is not scheduled: " + scheduled.Message
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.State.Waiting != nil {
			return status.State.Waiting.Reason
		}
		if status.RestartCount > 0 {
			return fmt.Sprintf("was restarted %d times", status.RestartCount)
		}
	}
	if pod.Status.Phase == corev1.PodRunning {
		return "is running, but not ready"
	}
	return string(pod.Status.Phase)
}

// podCondition returns the condition of that type, or an empty one.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}
