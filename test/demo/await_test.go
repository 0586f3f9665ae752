package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// configMaps returns the names of ConfigMaps, which stand for anything that is waited for.
func configMaps(list *corev1.ConfigMapList) string {
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return strings.Join(all, " ")
}

// withClient returns a demo that has nothing but a client.
func withClient(objects []client.Object, funcs interceptor.Funcs) *demo {
	return &demo{
		client:   fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(funcs).Build(),
		progress: newProgress(io.Discard),
	}
}

func TestAwaitLooksAgainWhenSomethingChanges(t *testing.T) {
	// The change comes right after the watch has begun.
	d := withClient(nil, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, options...)
			if err != nil {
				return nil, err
			}
			return w, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "awaited", Namespace: "here"}})
		},
	})
	got, err := await(t.Context(), d, "it", time.Minute, &corev1.ConfigMapList{}, func(l *corev1.ConfigMapList) string {
		if len(l.Items) == 0 {
			return "not there"
		}
		return ""
	}, client.InNamespace("here"))
	if err != nil || configMaps(got) != "awaited" {
		t.Errorf("got %q, %v", configMaps(got), err)
	}
}

func TestAwaitTellsWhatWasMissingAtLast(t *testing.T) {
	d := withClient([]client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "here"}}}, interceptor.Funcs{})
	_, err := await(t.Context(), d, "it", time.Millisecond, &corev1.ConfigMapList{}, func(l *corev1.ConfigMapList) string {
		return "there is only " + configMaps(l)
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "there is only other") {
		t.Errorf("error %v, want one that tells what is missing", err)
	}
}

func TestAwaitEndsWhenTheUserInterrupts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := withClient(nil, interceptor.Funcs{})
	_, err := await(ctx, d, "it", time.Minute, &corev1.ConfigMapList{}, func(*corev1.ConfigMapList) string {
		cancel()
		return "not there"
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
