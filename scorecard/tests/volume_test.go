package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
	"github.com/listener-operator/listener-operator/internal/testutil/golden"
)

func TestServerPod(t *testing.T) {
	golden.Compare(t, "server", serverPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x"},
		Spec: corev1.PodSpec{
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			Containers:       []corev1.Container{{Image: "registry.example/tests:1"}, {Image: "registry.example/storage:1"}},
		},
	}))
}

func TestServerReadsItsVolume(t *testing.T) {
	volume := t.TempDir()
	if _, err := readSelf(volume); err == nil {
		t.Error("no error for an empty volume")
	}
	for name, content := range map[string]string{"default-address/address": "192.0.2.1", "default-address/ports/http": "31337"} {
		path := filepath.Join(volume, name)
		check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	name, err := os.Hostname()
	check.Must(t, err)
	got, err := readSelf(volume)
	if want := (self{Pod: name, Address: "192.0.2.1", Port: "31337"}); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestResponseMustContainTheAddress(t *testing.T) {
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
	defer server.Close()
	address, port, err := net.SplitHostPort(server.Listener.Addr().String())
	check.Must(t, err)
	for name, tc := range map[string]struct{ answer, want string }{
		"expected":        {`{"pod": "a", "address": "` + address + `", "port": "` + port + `"}`, ""},
		"another Pod":     {`{"pod": "b", "address": "` + address + `", "port": "` + port + `"}`, "want"},
		"another address": {`{"pod": "a", "address": "192.0.2.1", "port": "` + port + `"}`, "want"},
		"another port":    {`{"pod": "a", "address": "` + address + `", "port": "1"}`, "want"},
	} {
		t.Run(name, func(t *testing.T) {
			answer = tc.answer
			err := reach(t.Context(), &environment{}, self{Pod: "a", Address: address, Port: port})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestFirstAddressIsExpected(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a", UID: "1"}}
	address := listenersv1alpha1.IngressAddress{Address: "192.0.2.1", Ports: map[string]int32{"http": 31337}}
	for name, tc := range map[string]struct {
		addresses []listenersv1alpha1.IngressAddress
		want      self
		err       string
	}{
		"two addresses": {[]listenersv1alpha1.IngressAddress{address, {Address: "192.0.2.2"}}, self{"a", "192.0.2.1", "31337"}, ""},
		"no address":    {nil, self{}, "no address"},
		"no port":       {[]listenersv1alpha1.IngressAddress{{Address: "192.0.2.1"}}, self{}, "no port http"},
	} {
		t.Run(name, func(t *testing.T) {
			list := &listenersv1alpha1.PodListeners{
				ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "pod-1"},
				Spec: listenersv1alpha1.PodListenersSpec{Listeners: map[string]listenersv1alpha1.PodListener{
					"listener": {IngressAddresses: tc.addresses},
				}},
			}
			got, err := expected(t.Context(), &environment{client: fakeclient.New(t, interceptor.Funcs{}, list)}, pod)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %q, %v, want %q, %q", got, err, tc.want, tc.err)
			}
		})
	}
}
