package pods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	if err := os.WriteFile(path, []byte(before+log), 0o600); err != nil {
		t.Fatal(err)
	}
	events, err := (&auditLog{path, int64(len(before))}).writes()
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	got := countWrites(events, selectVariants(Fresh)[0], 1, []period{{from, from.Add(5 * time.Second)}})
	want := result.Writes{Variant: Fresh, Pods: 1, Counts: []result.Write{
		{Component: "kubelet", Verb: "patch", Resource: "pods/status", Count: 1},
		{Component: "operator", Verb: "create", Resource: "persistentvolumes", Count: 1},
		{Component: "operator", Verb: "create", Resource: "podlisteners", Count: 1},
		{Component: "operator", Verb: "create refused", Resource: "podlisteners", Count: 1},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
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
	if !seen["bench-emptydir"] || !seen["bench-fresh-claim-waitforfirstconsumer"] {
		t.Errorf("namespaces are %v", seen)
	}
}
