package server

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// FuzzRegistration checks that the agent is ready after a status of the kubelet if, and only if, the driver is
// registered, and that it stops if it is not.
func FuzzRegistration(f *testing.F) {
	for _, status := range []*registrationv1.RegistrationStatus{
		{PluginRegistered: true}, {Error: "another driver has this name"}, {PluginRegistered: true, Error: "contradictory"}, {},
	} {
		message, err := proto.Marshal(status)
		check.Must(f, err)
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		status := &registrationv1.RegistrationStatus{}
		if proto.Unmarshal(message, status) != nil {
			return
		}
		r := newRegistration("/csi.sock")
		for range 2 { // The kubelet may repeat it.
			if _, err := r.NotifyRegistrationStatus(t.Context(), status); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if status.GetPluginRegistered() {
			cancel()
		}
		defer cancel()
		if ready, refused := r.check() == nil, r.wait(ctx) != nil; ready != status.GetPluginRegistered() || refused == ready {
			t.Fatalf("after %v: ready %v, stopped %v", status, ready, refused)
		}
	})
}
