package settling

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/objects"
)

// observed returns a Node with these internal addresses, with spaces in between.
func observed(addresses string) *corev1.Node {
	node := objects.Node("node-1")
	node.UID = "a"
	for ip := range strings.FieldsSeq(addresses) {
		node.Status.Addresses = append(node.Status.Addresses, objects.InternalIP(ip))
	}
	return node
}

func TestNodesSettle(t *testing.T) {
	type step struct {
		after     time.Duration
		addresses string
		uid       types.UID
		published string
		want      string
		left      time.Duration
	}
	for name, steps := range map[string][]step{
		"an address that comes first for seconds stays behind the others": {
			{addresses: "10.0.0.1", want: "10.0.0.1"},
			{addresses: "10.0.0.9 10.0.0.1", want: "10.0.0.1 10.0.0.9", left: Period},
			{after: 5 * time.Second, addresses: "10.0.0.9 10.0.0.1", want: "10.0.0.1 10.0.0.9", left: 25 * time.Second},
			{after: time.Second, addresses: "10.0.0.1", want: "10.0.0.1"},
			{after: time.Hour, addresses: "10.0.0.9 10.0.0.1", want: "10.0.0.1 10.0.0.9", left: Period},
		},
		"and is followed if it lasts": {
			{addresses: "10.0.0.1", want: "10.0.0.1"},
			{addresses: "10.0.0.9 10.0.0.1", want: "10.0.0.1 10.0.0.9", left: Period},
			{after: Period, addresses: "10.0.0.9 10.0.0.1", published: "10.0.0.1", want: "10.0.0.9 10.0.0.1"},
		},
		"an address that is away for seconds stays": {
			{addresses: "10.0.0.1 10.0.0.2", want: "10.0.0.1 10.0.0.2"},
			{addresses: "", want: "10.0.0.1 10.0.0.2", left: Period},
			{after: Period - 1, addresses: "10.0.0.2", want: "10.0.0.1 10.0.0.2", left: 1},
			{after: 1, addresses: "10.0.0.2", want: "10.0.0.2"},
		},
		"addresses that change all the time are followed": {
			{addresses: "10.0.0.1", want: "10.0.0.1"},
			{addresses: "10.0.0.2", want: "10.0.0.1 10.0.0.2", left: Period},
			{after: 20 * time.Second, addresses: "10.0.0.3", want: "10.0.0.1 10.0.0.3", left: 10 * time.Second},
			{after: 10 * time.Second, addresses: "10.0.0.2", want: "10.0.0.2"},
		},
		"the order of the same addresses stays": {
			{addresses: "10.0.0.1 10.0.0.2", want: "10.0.0.1 10.0.0.2"},
			{addresses: "10.0.0.2 10.0.0.1", want: "10.0.0.1 10.0.0.2"},
			{after: time.Hour, addresses: "10.0.0.2 10.0.0.1", want: "10.0.0.1 10.0.0.2"},
		},
		"the published order stays when the operator restarts": {
			{addresses: "10.0.0.2 10.0.0.1", published: "10.0.0.1", want: "10.0.0.1 10.0.0.2"},
			{addresses: "10.0.0.2 10.0.0.1", published: "10.0.0.2", want: "10.0.0.2 10.0.0.1"},
			{addresses: "10.0.0.2 10.0.0.1", want: "10.0.0.2 10.0.0.1"},
		},
		"first addresses are followed": {
			{addresses: "", want: ""},
			{addresses: "10.0.0.1", want: "10.0.0.1"},
		},
		"another Node of the same name is another one": {
			{addresses: "10.0.0.1", want: "10.0.0.1"},
			{addresses: "10.0.0.2", uid: "b", want: "10.0.0.2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
			n := NewNodes(now)
			for i, s := range steps {
				now.SetTime(now.Now().Add(s.after))
				node := observed(s.addresses)
				if s.uid != "" {
					node.UID = s.uid
				}
				settled, left := n.Settle(node, sets.New(strings.Fields(s.published)...))
				var got []string
				for _, a := range settled.Status.Addresses {
					got = append(got, a.Address)
				}
				if strings.Join(got, " ") != s.want || left != s.left {
					t.Errorf("step %d: got %q, others after %s, want %q and %s", i, got, left, s.want, s.left)
				}
				if len(node.Status.Addresses) != len(strings.Fields(s.addresses)) {
					t.Errorf("step %d: the observed Node was changed", i)
				}
			}
		})
	}
}

func TestAnAnnotationIsWrittenForAPeriod(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	n, node := NewNodes(now), observed("10.0.0.1")
	n.Settle(node, nil)
	if n.Written("node-1") {
		t.Error("written before anybody wrote it")
	}
	node.Annotations = map[string]string{names.AnnotationAdvertisedAddress: "192.0.2.1"}
	n.Settle(node, nil)
	if !n.Written("node-1") || n.Written("node-2") {
		t.Error("not written, or another Node is")
	}
	if now.SetTime(now.Now().Add(Period)); n.Written("node-1") {
		t.Error("written for longer than the period")
	}
	if n.Forget("node-1"); len(n.nodes) > 0 {
		t.Error("a Node that does not exist any more is kept")
	}
}
