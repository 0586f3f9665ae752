package stackable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/listener-operator/listener-operator/internal/stackable"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// pod returns a Pod in the namespace "platform" that is controlled by an owner of this kind and name, or by none.
func pod(kind, owner string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "pod-of-" + owner}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "uid", Controller: ptr.To(true)}}
	}
	change(p)
	return p
}

// onNode adds the volumes of the node driver.
func onNode(kubelet string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for name, path := range map[string]string{"csi": "/plugins/listeners.stackable.tech/", "registration-sock": "/plugins_registry", "mountpoint": "/pods/"} {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
				Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: kubelet + path}},
			})
		}
	}
}

// withRole adds the labels of a Pod with the controller, in a Deployment.
func withRole(role, account string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{
			"app.kubernetes.io/name": "listener-operator", "app.kubernetes.io/role": role, "pod-template-hash": "6d4cf56db6",
			"app.kubernetes.io/instance": "sdp",
		}
		p.Spec.ServiceAccountName = account
	}
}

// ending lets a change also start the deletion of the Pod, whose grace period ends at this time.
func ending(at time.Time, change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		change(p)
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: at}, []string{"example.com/keep"}
	}
}

// finished lets a change also finish the Pod.
func finished(change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		change(p)
		p.Status.Phase = corev1.PodFailed
	}
}

func TestRunningNamesWhatRunsTheOperatorOfStackable(t *testing.T) {
	const kubelet = "/var/lib/kubelet"
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		want    []string
		recheck time.Duration
	}{
		"node driver":                          {pod("DaemonSet", "sdp-csi-node-driver", onNode(kubelet)), []string{"DaemonSet platform/sdp-csi-node-driver"}, 0},
		"node driver of an early version":      {pod("DaemonSet", "sdp-daemonset", onNode(kubelet)), []string{"DaemonSet platform/sdp-daemonset"}, 0},
		"node driver of another kubelet":       {pod("DaemonSet", "d", onNode("/var/snap/microk8s/common/var/lib/kubelet")), []string{"DaemonSet platform/d"}, 0},
		"Pod with the directory, and no owner": {pod("", "", onNode(kubelet)), nil, 0},
		"static Pod with the directory":        {pod("Node", "node-1", onNode(kubelet)), nil, 0},
		"this operator's agent":                {pod("DaemonSet", "listener-node-agent", onNode(kubelet)), nil, 0},
		"another driver's agent": {pod("DaemonSet", "d", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: kubelet + "/plugins/secrets.stackable.tech"}}}}
		}), nil, 0},
		"Pod with the directory of all drivers": {pod("DaemonSet", "d", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: kubelet + "/plugins"}}}}
		}), nil, 0},
		"controller": {
			pod("ReplicaSet", "sdp-csi-provisioner-6d4cf56db6", withRole("provisioner", "permitted")), []string{"Deployment platform/sdp-csi-provisioner"}, 0,
		},
		"controller of an early version": {
			pod("ReplicaSet", "sdp-deployment-6d4cf56db6", withRole("controller", "permitted")), []string{"Deployment platform/sdp-deployment"}, 0,
		},
		"controller in a ReplicaSet of its own":    {pod("ReplicaSet", "own", withRole("provisioner", "permitted")), []string{"ReplicaSet platform/own"}, 0},
		"tenant's Pod with labels":                 {pod("ReplicaSet", "own", withRole("provisioner", "default")), nil, time.Minute},
		"another Pod with permission":              {pod("ReplicaSet", "own", withRole("worker", "permitted")), nil, 0},
		"node driver that terminates":              {pod("DaemonSet", "d", ending(now.Add(20*time.Second), onNode(kubelet))), []string{"DaemonSet platform/d"}, 80 * time.Second},
		"node driver on a node that is down":       {pod("DaemonSet", "d", ending(now.Add(-time.Minute), onNode(kubelet))), nil, 0},
		"node driver that was evicted":             {pod("DaemonSet", "d", finished(onNode(kubelet))), nil, 0},
		"controller whose labels belong to others": {pod("ReplicaSet", "own", func(p *corev1.Pod) { p.Labels = map[string]string{"app.kubernetes.io/role": "provisioner"} }), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeclient.Cached(fakeclient.New(t, interceptor.Funcs{Create: review}, tc.pod), "operators")
			got, err := new(stackable.Finder).Running(t.Context(), c, now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Names(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("workloads (-want +got):\n%s", diff)
			}
			if got.Recheck != tc.recheck {
				t.Errorf("recheck after %s, want %s", got.Recheck, tc.recheck)
			}
		})
	}
}

// review lets the ServiceAccount "permitted" of the namespace "platform" write the status of all Listeners.
func review(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
	r := o.(*authorizationv1.SubjectAccessReview)
	want := authorizationv1.ResourceAttributes{Verb: "patch", Group: "listeners.stackable.tech", Resource: "listeners", Subresource: "status"}
	r.Status.Allowed = r.Spec.User == "system:serviceaccount:platform:permitted" && *r.Spec.ResourceAttributes == want
	return nil
}

func TestRunningReportsTheKubeletDirectory(t *testing.T) {
	for _, want := range []string{"/var/lib/kubelet", "/var/snap/microk8s/common/var/lib/kubelet"} {
		driver, controller := pod("DaemonSet", "sdp-csi-node-driver", onNode(want)), pod("ReplicaSet", "own", withRole("provisioner", "permitted"))
		c := fakeclient.Cached(fakeclient.New(t, interceptor.Funcs{Create: review}, driver, controller), "operators")
		got, err := new(stackable.Finder).Running(t.Context(), c, now)
		if err != nil || got.KubeletDir != want {
			t.Errorf("directory is %q, error is %v, want %q", got.KubeletDir, err, want)
		}
	}
}

func TestRunningIsUnknownWithoutAReview(t *testing.T) {
	unavailable := errors.New("unavailable")
	intercept := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return unavailable
	}}
	c := fakeclient.Cached(fakeclient.New(t, intercept, pod("ReplicaSet", "own", withRole("provisioner", "permitted"))), "operators")
	if _, err := new(stackable.Finder).Running(t.Context(), c, now); !errors.Is(err, unavailable) {
		t.Errorf("error is %v", err)
	}
}

// A tenant may create any number of Pods with the labels, before the operator starts, or while it runs.
func TestPodsOfATenantNeedFewReviews(t *testing.T) {
	reviews := 0
	counted := func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		reviews++
		return review(ctx, c, o, options...)
	}
	own := pod("ReplicaSet", "own", withRole("provisioner", "permitted"))
	objects := []client.Object{own}
	for i := range 300 {
		for kind, account := range map[string]string{"same": "default", "other": fmt.Sprint("account-", i)} {
			p := pod("ReplicaSet", "own", withRole("provisioner", account))
			p.Namespace, p.Name, p.UID = kind, fmt.Sprint(kind, i), types.UID(fmt.Sprint(kind, i))
			objects = append(objects, p)
			later := p.DeepCopy() // than the operator in its namespace
			later.Namespace, later.CreationTimestamp = own.Namespace, metav1.NewTime(now)
			objects = append(objects, later)
		}
	}
	c := fakeclient.Cached(fakeclient.New(t, interceptor.Funcs{Create: counted}, objects...), "operators")
	finder, want := &stackable.Finder{}, 8+8+1
	for after, times := range []int{1, 1, 2} {
		at := now.Add(time.Duration(after) * 40 * time.Second)
		got, err := finder.Running(t.Context(), c, at)
		if err != nil || len(got.Workloads) != 1 {
			t.Fatalf("found %v, %v", got.Workloads, err)
		}
		if reviews != times*want {
			t.Errorf("%d reviews after %s, want %d", reviews, at.Sub(now), times*want)
		}
		if got.Recheck > time.Minute || got.Recheck <= 0 {
			t.Errorf("recheck after %s", got.Recheck)
		}
	}
}
