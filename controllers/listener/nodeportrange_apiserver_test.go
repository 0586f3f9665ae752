package listener_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

func TestListenersShareARangeOfNodePorts(t *testing.T) {
	const first, size = 30040, 6 // Kubernetes allocates such low numbers last
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: fmt.Sprintf("%d-%d", first, first+size-1)},
	})
	foreign := f.occupy(first + 2)
	keys, numbers := []client.ObjectKey{}, map[int32]bool{first + 2: true}
	for i := range size - 1 { // at the same time
		f.key.Name = fmt.Sprint("web-", i)
		f.createListener(nil)
		keys = append(keys, f.key)
	}
	for _, f.key = range keys {
		number := f.eventuallyNodePorts(1)["http"]
		f.Expect(number).To(And(BeNumerically(">=", first), BeNumerically("<", first+size)))
		f.Expect(numbers).NotTo(HaveKey(number))
		numbers[number] = true
	}

	f.key.Name = "last"
	f.createListener(nil)
	l := f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNodePortsExhausted)
	f.Expect(l.Status.NodePorts).To(BeNil())

	// The numbers survive their Services, although another Listener waits for one.
	for _, f.key = range keys {
		before := f.eventuallyNodePorts(1)
		f.deleteService()
		f.Expect(f.eventuallyNodePorts(1)).To(Equal(before))
		f.eventuallyNodePortsUnowned()
		f.Expect(f.nodePortEvents()).To(BeEmpty())
	}

	f.key.Name = "last"
	f.Expect(f.Delete(t.Context(), foreign)).To(Succeed())
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonAccepted)
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": first + 2}))

	// A larger range serves another one, and the others keep theirs.
	f.key.Name = "more"
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonNodePortsExhausted)
	f.change(f.class, func() { f.class.Spec.NodePorts.Range = fmt.Sprintf("%d-%d", first, first+size) })
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": first + size}))
	f.key.Name = "last"
	f.Expect(f.eventuallyNodePorts(1)).To(Equal(map[string]int32{"http": first + 2}))
}

// The API server rejects numbers that are not in the range of the cluster.
func TestRangeOutsideThatOfTheClusterIsReported(t *testing.T) {
	f := newFixture(t, listenersv1alpha1.ListenerClassSpec{
		ServiceType: nodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "20000-29999"},
	})
	f.createListener(nil)
	f.eventually(listenersv1alpha1.ListenerAccepted, listenersv1alpha1.ReasonServiceRejected)
	f.change(f.class, func() { f.class.Spec.NodePorts.Range = "30050-30079" })
	f.Expect(f.eventuallyNodePorts(1)["http"]).To(And(BeNumerically(">=", 30050), BeNumerically("<=", 30079)))
}
