//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

var (
	faults      = flag.String("faults", "none", "which faults to inject under load: none, all, or fast for those that take seconds")
	faultsSeed  = flag.Uint64("faults.seed", 1, "seed of the order of faults, and of the nodes and times")
	faultReport = flag.Bool("faults.report", false, "write the table into docs/reliability.md")
)

// fault is something that fails while the cluster has a steady load.
type fault struct {
	name string
	// fast is set if the fault takes seconds.
	fast bool
	// inject makes something fail on the node, or on all or none of them. heal ends that.
	inject func(s *scenario, node int) (heal func(context.Context) error, err error)
	// hold is how long the fault lasts until it is healed.
	hold time.Duration
	// downtime is set if the Pods on the node do not run meanwhile, or are not reached.
	downtime bool
}

var injectedFaults = []fault{
	{name: "operator killed", fast: true, inject: func(s *scenario, _ int) (func(context.Context) error, error) {
		s.killOnNode(s.operatorPod().Spec.NodeName, "/operator")
		return byItself, nil
	}},
	{name: "all node agents killed", fast: true, inject: func(s *scenario, _ int) (func(context.Context) error, error) {
		for _, node := range testbed.Nodes() {
			s.killOnNode(testbed.NodeName(node), "/node-agent")
		}
		return byItself, nil
	}},
	{name: "operator and the agent of its node deleted", inject: func(s *scenario, _ int) (func(context.Context) error, error) {
		operator := s.operatorPod()
		s.remove(s.agentOn(operator.Spec.NodeName), client.GracePeriodSeconds(0))
		s.remove(operator, client.GracePeriodSeconds(0))
		return byItself, nil
	}},
	{name: "kubelet killed, for 20 s", hold: 20 * time.Second, inject: crashOnNode("kubelet")},
	{name: "containerd killed, for 20 s", hold: 20 * time.Second, inject: crashOnNode("containerd")},
	{name: "API server killed, for 10 s", fast: true, hold: 10 * time.Second, inject: crashControlPlane("kube-apiserver")},
	{name: "etcd killed, for 10 s", hold: 10 * time.Second, inject: crashControlPlane("etcd")},
	{name: "API server slow, for 30 s", hold: 30 * time.Second, inject: func(*scenario, int) (func(context.Context) error, error) {
		restore, err := testbed.Slow("kube-apiserver")
		return func(context.Context) error { return restore() }, err
	}},
	{name: "API server answers operator and agents with 429, for 30 s", hold: 30 * time.Second, inject: tooManyRequests},
	{name: "a node cut off from the API server, for 60 s", hold: time.Minute, downtime: true,
		inject: func(s *scenario, node int) (func(context.Context) error, error) { return testbed.CutOff(s.ctx, node) }},
	{name: "power cut of a node, for 10 s", hold: 10 * time.Second, downtime: true,
		inject: func(s *scenario, node int) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return testbed.StartNode(ctx, node) }, testbed.StopNode(s.ctx, node)
		}},
	{name: "100 Pods created and deleted at once", inject: manyPods},
	{name: "update of the operator and the agents, and rollback", inject: updateAndRollback},
}

// byItself heals a fault that ends by itself.
func byItself(context.Context) error { return nil }

// crashOnNode kills a program of a node.
func crashOnNode(program string) func(*scenario, int) (func(context.Context) error, error) {
	return func(s *scenario, node int) (func(context.Context) error, error) {
		return func(context.Context) error { return testbed.Restart(node, program) }, testbed.Crash(s.ctx, node, program)
	}
}

// crashControlPlane kills a program of the control plane. Others may exit because of it, and are started again, too.
func crashControlPlane(program string) func(*scenario, int) (func(context.Context) error, error) {
	return func(s *scenario, _ int) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			for _, p := range []string{"etcd", "kube-apiserver"} {
				if err := testbed.Restart(0, p); err != nil {
					return err
				}
			}
			if err := eventually(ctx, func(ctx context.Context) error { return api.List(ctx, &corev1.NodeList{}) }); err != nil {
				return err
			}
			return errors.Join(testbed.Restart(0, "kube-controller-manager"), testbed.Restart(0, "kube-scheduler"))
		}, testbed.Crash(s.ctx, 0, program)
	}
}

// tooManyRequests lets the API server reject each request of the operator and its agents.
func tooManyRequests(s *scenario, _ int) (func(context.Context) error, error) {
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		}},
	}
	all := []string{"*"}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name}, MatchingPrecedence: 1,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
					Namespace: operatorNamespace, Name: "*",
				}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true}},
			}},
		},
	}
	heal := func(ctx context.Context) error { return errors.Join(api.Delete(ctx, schema), api.Delete(ctx, level)) }
	return heal, errors.Join(api.Create(s.ctx, level), api.Create(s.ctx, schema))
}

// manyPods creates 100 Pods with a volume at once, waits until all are ready, and deletes all at once.
func manyPods(s *scenario, _ int) (func(context.Context) error, error) {
	const many = 100
	class := s.namespace
	for i := range many {
		s.create(pod(fmt.Sprintf("many-%d", i), map[string]map[string]string{"listener": byClass(class)}))
	}
	ctx, cancel := context.WithTimeout(s.ctx, recoveryTimeout)
	defer cancel()
	for i := range many {
		if _, err := await(ctx, &corev1.Pod{}, s.key(fmt.Sprintf("many-%d", i)), isReady); err != nil {
			return nil, err
		}
	}
	for i := range many {
		s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprintf("many-%d", i)}})
	}
	return byItself, nil
}

// updateAndRollback changes the operator's Deployment to another image of the same content, which the agents then run,
// too, and back.
func updateAndRollback(s *scenario, _ int) (func(context.Context) error, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 2*recoveryTimeout)
	defer cancel()
	for _, image := range []string{operatorImage + "-next", operatorImage} {
		root, err := checkout.Root()
		if err != nil {
			return nil, err
		}
		if image != operatorImage {
			if err := loadOperator(s.ctx, root, image); err != nil {
				return nil, err
			}
		}
		operator := &appsv1.Deployment{}
		s.get(operator, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
		s.patch(operator, func() {
			container := &operator.Spec.Template.Spec.Containers[0]
			container.Image = image
			for i := range container.Env {
				if container.Env[i].Name == "RELATED_IMAGE_NODE_AGENT" {
					container.Env[i].Value = image
				}
			}
		})
		if _, err := await(ctx, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
			return d.Spec.Template.Spec.Containers[0].Image == image && d.Status.ObservedGeneration == d.Generation &&
				d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled && d.Status.NumberReady == d.Status.DesiredNumberScheduled
		}); err != nil {
			return nil, err
		}
	}
	return byItself, nil
}

// recoveryTimeout is how long the cluster may take to recover. It allows for a machine that has other work.
const recoveryTimeout = 6 * time.Minute

// TestFaultsUnderLoad injects faults while clients outside of the cluster request each replica of a StatefulSet, and
// Pods with volumes start and are deleted. No request is lost beyond a Pod's own downtime, no other Pod answers, no
// mount fails for good, no address changes, and nothing is left. Without -faults.all it injects those that take
// seconds.
func TestFaultsUnderLoad(t *testing.T) {
	if *faults == "none" {
		t.Skip("needs the flag -faults, as in make test-faults")
	}
	l := startSteadyLoad(newScenario(t))
	random := rand.New(rand.NewPCG(*faultsSeed, 0)) //nolint:gosec // reproducible
	var rows []string
	selected := injectedFaults
	if *faults == "all" {
		random.Shuffle(len(selected), func(i, j int) { selected[i], selected[j] = selected[j], selected[i] })
	}
	for _, f := range selected {
		if !f.fast && *faults != "all" {
			continue
		}
		node := testbed.Nodes()[random.IntN(len(testbed.Nodes()))]
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // at a random time of a mount
		row, err := l.with(f, node)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		t.Log(row)
		rows = append(rows, row)
	}
	l.stop()
	if err := l.awaitNoLeaks(); err != nil {
		t.Error(err)
	}
	if *faultReport && !t.Failed() {
		if err := writeFaultTable(rows); err != nil {
			t.Error(err)
		}
	}
}

// with injects and heals a fault, waits for the recovery, and returns its row of the table, and an error if it had an
// effect that it must not have.
func (l *steadyLoad) with(f fault, node int) (string, error) {
	if err := l.awaitRecoveryWithin(recoveryTimeout); err != nil {
		return f.name, fmt.Errorf("before the fault: %w", err)
	}
	before := l.counts()
	heal, err := f.inject(l.scenario, node)
	if err != nil {
		return f.name, fmt.Errorf("injecting: %w", err)
	}
	time.Sleep(f.hold)
	healed := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, recoveryTimeout)
	defer cancel()
	if err := heal(ctx); err != nil {
		return f.name, fmt.Errorf("healing: %w", err)
	}
	recovered := l.awaitRecoveryWithin(recoveryTimeout)
	took := time.Since(healed)
	after := l.counts()
	changed, err := l.changedAddresses(l.ctx)
	leaked := l.awaitNoLeaks()

	requests, lost, own, wrong := 0, 0, 0, 0
	for _, r := range l.replicas {
		requests += after.requests[r.node] - before.requests[r.node]
		wrong += after.wrong[r.node] - before.wrong[r.node]
		failed := after.lost[r.node] - before.lost[r.node]
		if f.downtime && r.node == testbed.NodeName(node) {
			own += failed
		} else {
			lost += failed
		}
	}
	failedMounts, leaks := 0, 0
	if recovered != nil {
		failedMounts = 1
	}
	if leaked != nil {
		leaks = 1
	}
	row := fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %.0f s |", f.name, requests, own, lost, wrong,
		after.ready-before.ready, failedMounts, len(changed), leaks, took.Seconds())
	errs := []error{recovered, err, leaked}
	if lost > 0 {
		errs = append(errs, fmt.Errorf("%d of %d requests were lost", lost, requests))
	}
	if wrong > 0 {
		errs = append(errs, fmt.Errorf("%d requests were answered by another Pod", wrong))
	}
	if len(changed) > 0 {
		errs = append(errs, fmt.Errorf("the addresses of %v changed", changed))
	}
	return row, errors.Join(errs...)
}

func (l *steadyLoad) awaitRecoveryWithin(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	return l.awaitRecovery(ctx)
}

// awaitNoLeaks waits until everything is gone that the Pods that were deleted before have left.
func (l *steadyLoad) awaitNoLeaks() error {
	var left map[string]bool // nil before the first list
	return eventually(l.timeoutContext(), func(ctx context.Context) error {
		now, err := l.leaks(ctx)
		if err != nil {
			return err
		}
		still := map[string]bool{}
		for _, leak := range now {
			if left == nil || left[leak] {
				still[leak] = true
			}
		}
		if left = still; len(left) > 0 {
			return fmt.Errorf("%d are left: %v", len(left), slices.Sorted(maps.Keys(left)))
		}
		return nil
	})
}

// The table of faults in docs/reliability.md is between these lines.
const faultTableBegin, faultTableEnd = "<!-- faults: begin -->", "<!-- faults: end -->"

// writeFaultTable replaces the table in docs/reliability.md.
func writeFaultTable(rows []string) error {
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	page := filepath.Join(root, "docs", "reliability.md")
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(content), faultTableBegin)
	_, after, ok2 := strings.Cut(rest, faultTableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	kernel, err := exec.Command("uname", "-srm").Output()
	if err != nil {
		return err
	}
	table := fmt.Sprintf("Written by `make test-faults` on %s, %d processors, %s, %d nodes, seed %d.\n\n", time.Now().UTC().Format(time.DateOnly),
		runtime.NumCPU(), strings.TrimSpace(string(kernel)), len(testbed.Nodes()), *faultsSeed) +
		"| fault | requests | lost in the Pod's own downtime | lost otherwise | answered by another Pod | mounts | mounts failed for good | addresses changed | leaks | recovered after |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	return os.WriteFile(page, []byte(before+faultTableBegin+"\n"+table+faultTableEnd+after), 0o644)
}
