package write

import (
	"testing"
	"time"

	routev1 "github.com/openshift/api/route/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestTouchesBeginAnewWithEachRejection(t *testing.T) {
	now := time.Unix(1700000000, 0).UTC()
	for name, tc := range map[string]struct {
		since, touched time.Duration // before now; touched is 0 for never
		want           time.Duration
	}{
		"just rejected":                        {0, 0, firstTouch},
		"rejected for a while":                 {3 * time.Second, 0, 7 * time.Second},
		"touched":                              {30 * time.Second, 5 * time.Second, 20 * time.Second},
		"touched for an earlier rejection":     {3 * time.Second, time.Hour, 7 * time.Second},
		"touched at the time of the rejection": {3 * time.Second, 3 * time.Second, 7 * time.Second},
	} {
		route := &routev1.Route{}
		if tc.touched > 0 {
			route.Annotations = map[string]string{names.AnnotationTouched: now.Add(-tc.touched).Format(time.RFC3339)}
		}
		check.Equal(t, name+": time until the next touch", tc.want, untilTouch(exposure.Rejected{Object: route, Since: metav1.NewTime(now.Add(-tc.since))}, now))
	}
}
