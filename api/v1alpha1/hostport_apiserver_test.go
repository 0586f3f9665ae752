package v1alpha1_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestInvalidHostPortExposureIsRejectedWithTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want string // part of the message; "" means that the class is valid
	}{
		"alone":                {spec: `{serviceType: ClusterIP, hostPort: {}}`},
		"pinned":               {spec: `{serviceType: ClusterIP, hostPort: {}, pinnedNodePorts: true}`},
		"with node ports":      {spec: `{serviceType: NodePort, hostPort: {}}`, want: "hostPort needs serviceType ClusterIP"},
		"with a load balancer": {spec: `{serviceType: LoadBalancer, hostPort: {}}`, want: "hostPort needs serviceType ClusterIP"},
		"with a route":         {spec: `{serviceType: ClusterIP, hostPort: {}, route: {}}`, want: "at most one of route and hostPort"},
	} {
		t.Run(name, func(t *testing.T) {
			err := apiserver.Client(t).Create(t.Context(), object(t, "", `{kind: ListenerClass, spec: `+tc.spec+`}`))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("rejected: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an Invalid error with %q", err, tc.want)
			}
		})
	}
}
