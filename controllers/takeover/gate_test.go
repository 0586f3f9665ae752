package takeover

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/listener-operator/listener-operator/internal/cache"
	"github.com/listener-operator/listener-operator/internal/index"
	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// nodeDriver returns a Pod of the DaemonSet of Stackable's listener operator.
func nodeDriver(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sdp-csi-node-driver-x2x7k", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: "sdp-csi-node-driver", UID: "uid", Controller: ptr.To(true),
		}}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "csi-node-service", Image: "listener-operator:26.7.0"}},
			Volumes: []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/listeners.stackable.tech/"},
			}}},
		},
	}
}

// started is a manager with a Gate, which holds one runnable.
type started struct {
	// running is closed when the runnable starts.
	running chan struct{}
	// ended receives why the manager has ended.
	ended chan error
}

func start(t *testing.T) started {
	t.Helper()
	mgr, err := ctrl.NewManager(apiserver.Config(t), manager.Options{
		Scheme:     apiserver.Scheme(),
		Cache:      cache.Options("operators"),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)},
	})
	check.Must(t, err)
	check.Must(t, index.Register(t.Context(), mgr.GetFieldIndexer()))
	ctx, cancel := context.WithCancelCause(context.Background())
	gate, err := SetupWithManager(mgr, cancel)
	check.Must(t, err)
	s := started{running: make(chan struct{}), ended: make(chan error, 1)}
	err = gate.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(s.running)
		<-ctx.Done()
		return nil
	}))
	check.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- errors.Join(mgr.Start(ctx), context.Cause(ctx))
	}()
	t.Cleanup(func() {
		cancel(nil)
		<-done
	})
	return s
}

// await fails the test if nothing is received in time.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(apiserver.Timeout):
		t.Fatalf("waiting for %s", what)
		panic("unreachable")
	}
}

// An operator that is installed while Stackable's runs, or beside which Stackable's is installed later, stops all
// controllers by ending its process, and holds them in the next one.
func TestControllersRunOnlyWhileStackablesOperatorDoesNot(t *testing.T) {
	c, namespace := apiserver.Client(t), apiserver.Namespace(t)
	first := start(t)
	await(t, first.running, "the controllers of an operator that is alone")
	other := nodeDriver(namespace)
	check.Must(t, c.Create(t.Context(), other))
	if err := await(t, first.ended, "the end of the process"); err == nil || !strings.Contains(err.Error(), "DaemonSet "+namespace+"/sdp-csi-node-driver") {
		t.Errorf("the manager has ended with the error %v", err)
	}
	next := start(t)
	second := nodeDriver(namespace)
	second.Name = "sdp-csi-node-driver-zzz9p"
	check.Must(t, c.Create(t.Context(), second))
	for _, pod := range []*corev1.Pod{other, second} {
		select {
		case <-next.running:
			t.Fatal("the controllers run beside Stackable's")
		case err := <-next.ended:
			t.Fatal("the manager does not wait: ", err)
		default:
		}
		check.Must(t, c.Delete(t.Context(), pod))
	}
	await(t, next.running, "the controllers, after the end of Stackable's")
}
