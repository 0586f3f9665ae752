package restart

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// replica returns a running Pod, whose uid is its name.
func replica(name string, ready bool, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func TestNextEviction(t *testing.T) {
	terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	replaced := func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1, 0) }
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	for name, tc := range map[string]struct {
		pods     []corev1.Pod
		outdated []string
		want     string // "" for none
	}{
		"the last one":                             {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true)}, []string{"a", "b", "c"}, "c"},
		"the last outdated one":                    {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true)}, []string{"a", "b"}, "b"},
		"first one that is not ready":              {[]corev1.Pod{replica("a", true), replica("b", false), replica("c", true)}, []string{"a", "b", "c"}, "b"},
		"one of several that are not ready":        {[]corev1.Pod{replica("a", false), replica("b", false), replica("c", true)}, []string{"a", "b", "c"}, "b"},
		"one that was not replaced before others":  {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true, replaced)}, []string{"a", "b", "c"}, "b"},
		"none while another one is not ready":      {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", false)}, []string{"a", "b"}, ""},
		"none while the one before ends":           {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true, terminating)}, []string{"a", "b", "c"}, ""},
		"none while one that is not outdated ends": {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true, terminating)}, []string{"a"}, ""},
		"none while one does not exist":            {[]corev1.Pod{replica("a", true), replica("b", true)}, []string{"a", "b"}, ""},
		"none while one starts":                    {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", false, pending)}, []string{"a"}, ""},
		"none that starts itself":                  {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", false, pending)}, []string{"a", "c"}, ""},
		"none that is not known":                   {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true)}, []string{"d"}, ""},
		"one of more than there should be":         {[]corev1.Pod{replica("a", true), replica("b", true), replica("c", true), replica("d", true)}, []string{"a"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var outdated []outdatedPod
			for _, o := range tc.outdated {
				pod := replica(o, true)
				outdated = append(outdated, outdatedPod{pod: &pod})
			}
			var got string
			next, blocked := (&replicas{desired: 3, pods: tc.pods}).next(outdated, (&restart{}).replaced)
			if next != nil {
				got = next.pod.Name
			}
			if got != tc.want || (got == "") != (blocked != "") {
				t.Errorf("next is %q, blocked by %q; want %q", got, blocked, tc.want)
			}
		})
	}
}
