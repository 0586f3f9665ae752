package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

// log has requests for a Pod with a fresh claim, and others that do not count.
const log = `{"stage":"ResponseComplete","verb":"create","user":{"username":"system:serviceaccount:listener-operator:listener-operator"},"objectRef":{"resource":"podlisteners","namespace":"bench-fresh-claim"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-11-21T10:00:01.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"system:serviceaccount:listener-operator:listener-operator"},"objectRef":{"resource":"podlisteners","namespace":"bench-fresh-claim"},"responseStatus":{"code":409},"requestReceivedTimestamp":"2026-11-21T10:00:01.500000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"system:serviceaccount:listener-operator:listener-operator"},"objectRef":{"resource":"persistentvolumes"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-11-21T10:00:01.600000Z"}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:node-1"},"objectRef":{"resource":"pods","subresource":"status","namespace":"bench-fresh-claim"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:node-1"},"objectRef":{"resource":"pods","subresource":"status","namespace":"bench-fresh-claim"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T10:00:09.000000Z"}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:node-1"},"objectRef":{"resource":"pods","subresource":"status","namespace":"bench-emptydir"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"get","user":{"username":"system:node:node-1"},"objectRef":{"resource":"pods","namespace":"bench-fresh-claim"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"system:node:node-1"},"objectRef":{"resource":"serviceaccounts","subresource":"token","namespace":"bench-fresh-claim"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"use`

func TestWritesForAPodAreCountedByComponentAndKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	const before = "written before\n"
	check.Must(t, os.WriteFile(path, []byte(before+log), 0o600))
	events, err := (&auditLog{path, int64(len(before))}).writes()
	check.Must(t, err)
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	got := countWrites(events, selectVariants(Fresh)[0], 1, []period{{from, from.Add(5 * time.Second)}})
	want := result.Writes{Variant: Fresh, Pods: 1, Counts: []result.Write{
		{Component: "kubelet", Verb: "patch", Resource: "pods/status", Count: 1},
		{Component: "operator", Verb: "create", Resource: "persistentvolumes", Count: 1},
		{Component: "operator", Verb: "create", Resource: "podlisteners", Count: 1},
		{Component: "operator", Verb: "create refused", Resource: "podlisteners", Count: 1},
	}}
	check.Equal(t, "writes", want, got)
}

func TestStartIsDelayedByARefusalOfItsKubelet(t *testing.T) {
	const refusal = `{"stage":"ResponseComplete","verb":"list","user":{"username":"system:node:node-1"},"objectRef":{"resource":"configmaps",` +
		`"namespace":"bench-emptydir","name":"kube-root-ca.crt"},"responseStatus":{"code":403},"requestReceivedTimestamp":"2026-11-21T10:00:02.000000Z"}` + "\n"
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	check.Must(t, os.WriteFile(path, []byte(refusal+log), 0o600))
	refusals, err := (&auditLog{path: path}).refusals()
	check.Must(t, err)
	from := time.Date(2026, 11, 21, 10, 0, 1, 0, time.UTC)
	start := func(namespace, node string, from time.Time) started {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.PodSpec{NodeName: node}}
		return started{pod: pod, began: from, running: from.Add(2 * time.Second)}
	}
	for name, tc := range map[string]struct {
		start started
		want  bool
	}{
		"refused":           {start("bench-emptydir", "node-1", from), true},
		"another namespace": {start("bench-fresh-claim", "node-1", from), false},
		"another node":      {start("bench-emptydir", "node-2", from), false},
		"earlier":           {start("bench-emptydir", "node-1", from.Add(-2*time.Second)), false},
		"later":             {start("bench-emptydir", "node-1", from.Add(2*time.Second)), false},
	} {
		if got := tc.start.refused(refusals); got != tc.want {
			t.Errorf("%s: delayed: %v, want %v", name, got, tc.want)
		}
	}
}

// Each variant needs a namespace of its own, whose name is valid.
func TestVariantsHaveNamespacesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range variants() {
		if seen[v.namespace()] {
			t.Errorf("two variants have namespace %s", v.namespace())
		}
		seen[v.namespace()] = true
	}
	if !seen["bench-emptydir"] || !seen["bench-fresh-claim-of-a-replica"] {
		t.Errorf("namespaces are %v", seen)
	}
}
