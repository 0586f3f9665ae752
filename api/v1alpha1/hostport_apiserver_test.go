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
		"alone":  {spec: `{serviceType: ClusterIP, hostPort: {}}`},
		"pinned": {spec: `{serviceType: ClusterIP, hostPort: {}, pinnedNodePorts: true}`},
	} {
		t.Run(name, func(t *testing.T) { checkClass(t, tc.spec, tc.want) })
	}
}

// checkClass checks that the API server accepts a class with this spec, or that its message about an invalid class
// contains a text.
func checkClass(t *testing.T, spec, rejection string) {
	t.Helper()
	err := apiserver.Client(t).Create(t.Context(), object(t, "", `{kind: ListenerClass, spec: `+spec+`}`))
	switch {
	case rejection == "" && err != nil:
		t.Errorf("rejected: %v", err)
	case rejection != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rejection)):
		t.Errorf("got %v, want an Invalid error with %q", err, rejection)
	}
}
