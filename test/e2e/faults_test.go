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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
	"github.com/listener-operator/listener-operator/test/audit"
)

var (
	faults      = flag.String("faults", "fast", "which faults to inject under load: none, all, or fast for a few that take seconds")
	faultsSeed  = flag.Uint64("faults.seed", 1, "seed of the order of faults, and of the nodes and times")
	faultReport = flag.Bool("faults.report", false, "write the figures into the table in docs/reliability.md")
)

// fault is something that fails while the cluster has a steady load.
type fault struct {
	name string
	// fast is set if the fault is injected in each run of all scenarios.
	fast bool
	// inject makes something fail on the node, or on all or none of them. heal ends that.
	inject func(s *scenario, l *steadyLoad, node int) (heal func(context.Context) error, err error)
	// hold is how long the fault lasts until it is healed.
	hold time.Duration
	// downtime is set if the Pods on the node do not run meanwhile, or are not reached.
	downtime bool
}

// injectedFaults are in the order of the table.
var injectedFaults = []fault{
	{name: "operator killed", fast: true, inject: func(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
		s.killOnNode(s.operatorPod().Spec.NodeName, "/operator")
		return byItself, nil
	}},
	{name: "operator killed every 20 s, for two minutes", inject: killedRepeatedly},
	{name: "all node agents killed", fast: true, inject: func(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
		for _, node := range testbed.Nodes() {
			s.killOnNode(testbed.NodeName(node), "/node-agent")
		}
		return byItself, nil
	}},
	{name: "operator and the agent of its node deleted", inject: func(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
		operator := s.operatorPod()
		s.remove(s.agentOn(operator.Spec.NodeName), client.GracePeriodSeconds(0))
		s.remove(operator, client.GracePeriodSeconds(0))
		return byItself, nil
	}},
	{name: "kubelet killed, for 20 s", hold: 20 * time.Second, inject: crashOnNode("kubelet")},
	{name: "containerd killed, for 20 s", hold: 20 * time.Second, inject: crashOnNode("containerd")},
	{name: "API server killed, for 10 s", fast: true, hold: 10 * time.Second, inject: crashControlPlane("kube-apiserver")},
	{name: "etcd killed, for 10 s", hold: 10 * time.Second, inject: crashControlPlane("etcd")},
	{name: "etcd restored from a copy of a minute ago", hold: time.Minute, inject: restoredBackup},
	{name: "API server slow, for 30 s", hold: 30 * time.Second, inject: func(*scenario, *steadyLoad, int) (func(context.Context) error, error) {
		restore, err := testbed.Slow("kube-apiserver")
		return func(context.Context) error { return restore() }, err
	}},
	{name: "API server answers operator and agents with 429, for 30 s", hold: 30 * time.Second, inject: tooManyRequests},
	{name: "a node cut off from the API server, for 60 s", hold: time.Minute, downtime: true,
		inject: func(s *scenario, _ *steadyLoad, node int) (func(context.Context) error, error) {
			return testbed.CutOff(s.ctx, node)
		}},
	{name: "power cut of a node, for 10 s", hold: 10 * time.Second, downtime: true,
		inject: func(s *scenario, _ *steadyLoad, node int) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return testbed.StartNode(ctx, node) }, testbed.StopNode(s.ctx, node)
		}},
	{name: "disk of a node full, for 20 s", hold: 20 * time.Second, inject: fullDisk},
	{name: "clock of a node an hour ahead, for 30 s", hold: 30 * time.Second,
		inject: func(s *scenario, _ *steadyLoad, node int) (func(context.Context) error, error) {
			return testbed.JumpClock(s.ctx, node, time.Hour)
		}},
	{name: "100 Pods created and deleted at once", inject: manyPods},
	{name: "namespace deleted while the volumes of 30 Pods are mounted", inject: deletedNamespace},
	{name: "namespace of 10 replicas deleted, and restored from a backup", inject: restoredNamespace},
	{name: "a dead node during an update of the node agents", downtime: true, inject: updateWithoutNode},
	{name: "rollback to the version before, and update", inject: rollback},
	{name: "operators of two versions at once, for 30 s", hold: 30 * time.Second, inject: twoVersions},
}

// byItself heals a fault that ends by itself.
func byItself(context.Context) error { return nil }

// crashOnNode kills a program of a node.
func crashOnNode(program string) func(*scenario, *steadyLoad, int) (func(context.Context) error, error) {
	return func(s *scenario, _ *steadyLoad, node int) (func(context.Context) error, error) {
		return func(context.Context) error { return testbed.Restart(node, program) }, testbed.Crash(s.ctx, node, program)
	}
}

// crashControlPlane kills a program of the control plane. Others may exit because of it, and are started again, too.
func crashControlPlane(program string) func(*scenario, *steadyLoad, int) (func(context.Context) error, error) {
	return func(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			start := audit.Period{From: time.Now()}
			if err := eventually(ctx, func(ctx context.Context) error {
				// An API server that runs does nothing else but wait for etcd, or exit. The others need it to start.
				for _, p := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
					if p == "kube-controller-manager" {
						if err := api.List(ctx, &corev1.NodeList{}); err != nil {
							return err
						}
					}
					if err := testbed.Restart(0, p); err != nil {
						return err
					}
				}
				return testbed.Ready(ctx)
			}); err != nil {
				return err
			}
			start.To = time.Now()
			apiServerStarts = append(apiServerStarts, start)
			return nil
		}, testbed.Crash(s.ctx, 0, program)
	}
}

// restoredBackup copies the data of etcd, and heals by restoring them as docs/restore.md describes it, but without a
// restart of the operator and its agents: they have to notice by themselves.
func restoredBackup(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
	backup, err := testbed.BackUp(s.ctx)
	return func(ctx context.Context) error {
		start := audit.Period{From: time.Now()}
		if err := testbed.Restore(ctx, backup); err != nil {
			return err
		}
		start.To = time.Now()
		apiServerStarts = append(apiServerStarts, start)
		return api.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(metav1.NamespaceSystem)) // the DNS server
	}, err
}

// killedRepeatedly kills the operator whenever it runs, and logs how many Pods became ready between two kills.
func killedRepeatedly(s *scenario, l *steadyLoad, _ int) (func(context.Context) error, error) {
	const kills, period = 6, 20 * time.Second
	node := nodeNumber(s.operatorPod().Spec.NodeName)
	for range kills {
		before := l.counts().ready
		running := testbed.NodeCommand(s.ctx, node, "pkill", "-KILL", "-f", "^/operator").Run() == nil
		time.Sleep(period) // the period of the fault
		s.Logf("an operator ran and was killed: %t; Pods that became ready within %s: %d", running, period, l.counts().ready-before)
	}
	return byItself, nil
}

// tooManyRequests lets the API server reject each request of the operator and its agents.
func tooManyRequests(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
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
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level.Name}, MatchingPrecedence: 2, // the first one that others than "exempt" may have
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

// diskSize is the size of a disk that is filled.
const diskSize = 32 << 20

// fullDisk adds a node with a small disk, which is full while the volume of a Pod is mounted there. The files of
// another Pod stay as they are.
func fullDisk(s *scenario, l *steadyLoad, _ int) (func(context.Context) error, error) {
	nodes := testbed.Nodes()
	node := nodes[len(nodes)-1] + 1
	if err := testbed.LimitDisk(s.ctx, node, diskSize); err != nil {
		return nil, err
	}
	s.Cleanup(func() {
		if err := testbed.DeleteNode(context.Background(), node); err != nil {
			s.Error(err)
		}
	})
	if err := testbed.StartNode(s.ctx, node); err != nil { // joins as a new node
		return nil, err
	}
	before, meanwhile := l.podOn(testbed.NodeName(node), "before"), l.podOn(testbed.NodeName(node), "meanwhile")
	s.create(before)
	own := s.awaitPodListener(s.awaitReady(before.Name), "listener").IngressAddresses[0]
	s.awaitFilesAt(own, own)
	free, err := testbed.FillDisk(node)
	if err != nil {
		return nil, err
	}
	s.create(meanwhile)
	s.Logf("event: %s", s.awaitEvent("Pod", meanwhile.Name, "FailedMount", "no space left on device"))
	return func(context.Context) error {
		s.awaitFilesAt(own, own)
		if err := free(); err != nil {
			return err
		}
		s.awaitReady(meanwhile.Name)
		for _, p := range []*corev1.Pod{before, meanwhile} {
			s.removeAndAwait(p)
		}
		return nil
	}, nil
}

// manyPods creates 100 Pods with a volume at once, waits until all are ready, and deletes all at once.
func manyPods(s *scenario, l *steadyLoad, _ int) (func(context.Context) error, error) {
	pods := make([]*corev1.Pod, 100)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("many-%d", i), byClass(l.class))
		s.create(pods[i])
	}
	ctx, cancel := context.WithTimeout(s.ctx, recoveryTimeout)
	defer cancel()
	for _, p := range pods {
		if _, err := await(ctx, &corev1.Pod{}, client.ObjectKeyFromObject(p), isReady); err != nil {
			return nil, err
		}
	}
	for _, p := range pods {
		s.remove(p)
	}
	return byItself, nil
}

// deletedNamespace deletes the namespace of 30 Pods while their volumes are mounted, and waits until the Pods are gone.
// Kubernetes deletes the namespace itself at its own pace.
func deletedNamespace(s *scenario, l *steadyLoad, _ int) (func(context.Context) error, error) {
	ending := newScenario(s.TB)
	pods := make([]*corev1.Pod, 30)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("web-%d", i), byClass(l.class))
		ending.create(pods[i])
	}
	for _, p := range pods {
		mustAwait(ending, &corev1.Pod{}, ending.key(p.Name), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	}
	ending.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ending.namespace}})
	return func(ctx context.Context) error {
		for _, p := range pods {
			if err := awaitDeleted(ctx, &corev1.Pod{}, client.ObjectKeyFromObject(p)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// restoredNamespace deletes the namespace of a StatefulSet, and heals by restoring claims, the StatefulSet and
// Listeners as Velero does it, in its order. Clients reach each replica at the node ports that it had.
func restoredNamespace(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
	shop := newScenario(s.TB)
	class := shop.createClass(listenersv1alpha1.ListenerClassSpec{
		ServiceType: listenersv1alpha1.ServiceTypeNodePort, NodePorts: &listenersv1alpha1.NodePorts{Range: "30000-30085"}, // none that Kubernetes prefers
	})
	set := statefulSet("web", 10, byClass(class.Name))
	shop.create(set)
	ports := map[string]map[string]int32{}
	for i := range *set.Spec.Replicas {
		name := fmt.Sprintf("web-%d", i)
		_, own := shop.awaitReachable(name)
		ports[name] = own.Ports
		mustAwait(shop, &listenersv1alpha1.Listener{}, shop.key("listener-"+name), func(l *listenersv1alpha1.Listener) bool {
			return l.Annotations[names.AnnotationNumbers] != ""
		})
	}
	var claims corev1.PersistentVolumeClaimList
	var listeners listenersv1alpha1.ListenerList
	for _, list := range []client.ObjectList{&claims, &listeners} {
		if err := api.List(s.ctx, list, client.InNamespace(shop.namespace)); err != nil {
			return nil, err
		}
	}
	namespace := mustGet(shop, &corev1.Namespace{}, client.ObjectKey{Name: shop.namespace})
	shop.removeAndAwait(namespace)

	restored := func(o metav1.ObjectMeta) metav1.ObjectMeta {
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, "pv.kubernetes.io/") })
		labels := map[string]string{"velero.io/restore-name": "monday"}
		maps.Copy(labels, o.Labels)
		return metav1.ObjectMeta{Name: o.Name, Labels: labels, Annotations: o.Annotations}
	}
	return func(context.Context) error {
		shop.create(&corev1.Namespace{ObjectMeta: restored(namespace.ObjectMeta)})
		for _, c := range claims.Items {
			c.Spec.VolumeName = ""
			shop.create(&corev1.PersistentVolumeClaim{ObjectMeta: restored(c.ObjectMeta), Spec: c.Spec})
		}
		shop.create(&appsv1.StatefulSet{ObjectMeta: restored(set.ObjectMeta), Spec: set.Spec})
		for _, l := range listeners.Items {
			shop.create(&listenersv1alpha1.Listener{ObjectMeta: restored(l.ObjectMeta), Spec: l.Spec})
		}
		for name, had := range ports {
			if _, own := shop.awaitReachable(name); !maps.Equal(own.Ports, had) {
				return fmt.Errorf("%s has the ports %v, and had %v", name, own.Ports, had)
			}
		}
		return nil
	}, nil
}

// updateWithoutNode stops the kubelet of a node, and replaces the agents of the others.
func updateWithoutNode(s *scenario, _ *steadyLoad, node int) (func(context.Context) error, error) {
	if err := testbed.Crash(s.ctx, node, "kubelet"); err != nil {
		return nil, err
	}
	mustAwait(s, &corev1.Node{}, client.ObjectKey{Name: testbed.NodeName(node)}, func(n *corev1.Node) bool { return !claim.NodeReady(n) })
	config := s.configuration()
	level := config.Spec.NodeAgent.LogLevel
	s.patch(config, func() { config.Spec.NodeAgent.LogLevel = map[string]string{"info": "debug", "debug": "info"}[level] })
	generation := config.Generation
	config = mustAwait(s, config, client.ObjectKeyFromObject(config), func(o *operatorv1alpha1.ListenerOperator) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionProgressing)
		return o.Status.ObservedGeneration == generation && c != nil && c.Status == metav1.ConditionFalse && o.Status.NodeAgent.Updated == o.Status.NodeAgent.Desired-1
	})
	s.Logf("updated without the node: %s", meta.FindStatusCondition(config.Status.Conditions, operatorv1alpha1.ConditionProgressing).Message)
	return func(ctx context.Context) error {
		if err := testbed.Restart(node, "kubelet"); err != nil {
			return err
		}
		if err := awaitAgents(ctx, operatorImage); err != nil {
			return err
		}
		s.patch(config, func() { config.Spec.NodeAgent.LogLevel = level })
		_, err := await(ctx, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
			return slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--log-level="+level) && isRolledOut(d)
		})
		return err
	}, nil
}

// versionBefore returns the version before: the last release, and as long as there is none, the commit before.
func versionBefore(ctx context.Context, root string) string {
	describe := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--abbrev=0", "HEAD^")
	if tag, err := describe.Output(); err == nil {
		return strings.TrimSpace(string(tag))
	}
	return "HEAD^"
}

// imageBefore is the image of the version before.
const imageBefore = "listener-operator:before"

// loadVersionBefore builds the version before, loads its image onto all nodes, and returns the directory of its source.
func loadVersionBefore(s *scenario, root string) (dir string, err error) {
	dir = filepath.Join(s.TempDir(), "before")
	if err := command(s.ctx, root, "git", "worktree", "add", "--detach", dir, versionBefore(s.ctx, root)); err != nil {
		return "", err
	}
	s.Cleanup(func() { _ = command(context.Background(), root, "git", "worktree", "remove", "--force", dir) })
	return dir, loadOperator(s.ctx, dir, imageBefore)
}

// twoVersions runs an operator of the version before beside the current one, as in an update that does not end, and
// lets it lead. Then both wait for the lease in turn.
func twoVersions(s *scenario, _ *steadyLoad, _ int) (func(context.Context) error, error) {
	permissionsVaried = true
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	if _, err := loadVersionBefore(s, root); err != nil {
		return nil, err
	}
	current := mustGet(s, &appsv1.Deployment{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator})
	other := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "before"}, Spec: *current.Spec.DeepCopy()}
	for _, labels := range []map[string]string{other.Spec.Selector.MatchLabels, other.Spec.Template.Labels} {
		labels["version"] = "before"
	}
	container := &other.Spec.Template.Spec.Containers[0]
	container.Image = imageBefore
	for i := range container.Env {
		if container.Env[i].Name == "RELATED_IMAGE_NODE_AGENT" {
			container.Env[i].Value = imageBefore
		}
	}
	s.create(other)
	s.patch(current, func() { current.Spec.Replicas = ptr.To[int32](0) })
	if err := s.awaitLeader("before-"); err != nil {
		return nil, err
	}
	s.patch(current, func() { current.Spec.Replicas = ptr.To[int32](1) })
	return func(ctx context.Context) error {
		return errors.Join(api.Delete(ctx, other), s.awaitLeader(names.Operator+"-"), awaitOperator(ctx, operatorImage), awaitAgents(ctx, operatorImage))
	}, nil
}

// awaitLeader waits until a Pod leads whose name begins so.
func (s *scenario) awaitLeader(prefix string) error {
	_, err := await(s.timeoutContext(), &coordinationv1.Lease{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator},
		func(l *coordinationv1.Lease) bool {
			return strings.HasPrefix(ptr.Deref(l.Spec.HolderIdentity, ""), prefix)
		})
	return err
}

// rollback installs the version before by its own manifests, as docs/upgrade.md describes, and then the current one
// again.
func rollback(s *scenario, l *steadyLoad, _ int) (func(context.Context) error, error) {
	permissionsVaried = true
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	before, err := loadVersionBefore(s, root)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*recoveryTimeout)
	defer cancel()
	if err := deployFrom(ctx, before, imageBefore); err != nil {
		return nil, err
	}
	if err := awaitOperator(ctx, imageBefore); err != nil {
		return nil, err
	}
	if err := awaitAgents(ctx, imageBefore); err != nil {
		return nil, err
	}
	// With the version before, there is a load of mounts, too.
	if err := l.awaitRecovery(ctx); err != nil {
		return nil, err
	}
	if err := deploy(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return errors.Join(awaitOperator(ctx, operatorImage), awaitAgents(ctx, operatorImage))
	}, nil
}

// awaitOperator waits until only an operator of this image runs, and is ready.
func awaitOperator(ctx context.Context, image string) error {
	_, err := await(ctx, &appsv1.Deployment{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.Operator}, func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == image && d.Status.ObservedGeneration == d.Generation &&
			d.Status.Replicas == *d.Spec.Replicas && d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.ReadyReplicas == *d.Spec.Replicas
	})
	return err
}

// awaitAgents waits until only agents of this image run, and are ready.
func awaitAgents(ctx context.Context, image string) error {
	_, err := await(ctx, &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorNamespace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
		return d.Spec.Template.Spec.Containers[0].Image == image && isRolledOut(d)
	})
	return err
}

// recoveryTimeout is how long the cluster may take to recover. It allows for a machine that has other work.
const recoveryTimeout = 6 * time.Minute

// TestFaultsUnderLoad injects faults while clients outside the cluster request each replica of a StatefulSet, and
// Pods with volumes start and are deleted. No request is lost beyond a Pod's own downtime, no other Pod answers, no
// mount fails for good, no address changes, and nothing is left.
func TestFaultsUnderLoad(t *testing.T) {
	if *faults == "none" || underOLM {
		t.Skip("needs an operator without OLM, and not the flag -faults=none")
	}
	l := startSteadyLoad(newScenario(t))
	if err := l.awaitRecoveryWithin(l.ctx, timeout); err != nil {
		t.Fatalf("before the faults: %v", err)
	}
	random := rand.New(rand.NewPCG(*faultsSeed, 0)) //nolint:gosec // reproducible
	selected := slices.Clone(injectedFaults)
	if *faults == "all" {
		random.Shuffle(len(selected), func(i, j int) { selected[i], selected[j] = selected[j], selected[i] })
	}
	passed := map[string]figures{}
	for _, f := range selected {
		node := testbed.Nodes()[random.IntN(len(testbed.Nodes()))]
		delay := time.Duration(random.IntN(3000)) * time.Millisecond
		if !f.fast && *faults != "all" {
			continue
		}
		if !t.Run(f.name, func(t *testing.T) {
			s := l.within(t)
			time.Sleep(delay) // the fault happens at a random time of a mount
			if got := l.with(s, f, node); !t.Failed() {
				passed[f.name] = got
			}
		}) {
			break // the others would wait in vain for the cluster to recover
		}
	}
	l.stop()
	if *faultReport {
		if err := writeFaultTable(passed); err != nil {
			t.Error(err)
		}
	}
}

// figures are what a fault has caused.
type figures struct {
	// own and lost are the requests without an answer in the downtime of the Pod itself, and otherwise. wrong are those
	// that another Pod answered.
	requests, own, lost, wrong int
	// mounts are the Pods with a volume that became ready, failed those that did not.
	mounts, failed int
	// changed are the replicas whose addresses changed.
	changed []string
	// leaks is what deleted Pods left.
	leaks []string
	// recovered is the time from the end of the fault until new requests are answered, and new Pods become ready on
	// each node.
	recovered time.Duration
}

// cells returns the cells of the table, which has only faults without an effect that they must not have.
func (f figures) cells() string {
	return fmt.Sprintf("%d | %d | %d | %.0f s", f.requests, f.own, f.mounts, f.recovered.Seconds())
}

// with injects and heals a fault, waits for the recovery, and returns the figures. The test fails if the fault had an
// effect that it must not have.
func (l *steadyLoad) with(s *scenario, f fault, node int) (got figures) {
	s.Helper()
	before := l.counts()
	heal, err := f.inject(s, l, node)
	if err != nil {
		s.Fatalf("injecting: %v", err)
	}
	time.Sleep(f.hold) // the duration of the fault
	healed := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, recoveryTimeout)
	defer cancel()
	if err := heal(ctx); err != nil {
		s.Fatalf("healing: %v", err)
	}
	if err := l.awaitRecoveryWithin(s.ctx, recoveryTimeout); err != nil {
		s.Errorf("the cluster does not recover: %v", err)
		got.failed = len(l.unready(healed))
	}
	got.recovered = time.Since(healed)
	after := l.counts()
	if got.changed, err = l.changedAddresses(s.ctx); err != nil {
		s.Error(err)
	}
	got.leaks = l.awaitNoLeaks(s)
	got.mounts = after.ready - before.ready
	for _, r := range l.replicas {
		got.requests += after.requests[r.node] - before.requests[r.node]
		got.wrong += after.wrong[r.node] - before.wrong[r.node]
		if lost := after.lost[r.node] - before.lost[r.node]; f.downtime && r.node == testbed.NodeName(node) {
			got.own += lost
		} else {
			got.lost += lost
		}
	}
	s.Logf("figures: %+v", got)
	if got.lost > 0 {
		s.Errorf("%d of %d requests were lost", got.lost, got.requests)
	}
	if got.wrong > 0 {
		s.Errorf("%d requests were answered by another Pod", got.wrong)
	}
	if len(got.changed) > 0 {
		s.Errorf("the addresses of %v changed", got.changed)
	}
	return got
}

func (l *steadyLoad) awaitRecoveryWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return l.awaitRecovery(ctx)
}

// awaitNoLeaks waits until everything is gone that the Pods that were deleted before have left, and returns what stays.
func (l *steadyLoad) awaitNoLeaks(s *scenario) []string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, recoveryTimeout)
	defer cancel()
	var left map[string]bool // nil before the first list
	if err := eventually(ctx, func(ctx context.Context) error {
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
	}); err != nil {
		s.Error(err)
	}
	return slices.Sorted(maps.Keys(left))
}

// The table of faults in docs/reliability.md is between these lines.
const faultTableBegin, faultTableEnd = "<!-- faults: begin -->", "<!-- faults: end -->"

// writeFaultTable replaces the table in docs/reliability.md. Figures of other faults, which this run has not injected
// or which failed, stay.
func writeFaultTable(results map[string]figures) error {
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
	table, after, ok2 := strings.Cut(rest, faultTableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	var rows []string
	for _, f := range injectedFaults {
		result, ok := results[f.name]
		prefix := "| " + f.name + " | "
		if ok {
			rows = append(rows, prefix+result.cells()+" |")
			continue
		}
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, prefix) {
				rows = append(rows, strings.TrimSpace(line))
			}
		}
	}
	machine, err := exec.Command("uname", "-srm").Output()
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	table = fmt.Sprintf("Written by `make test-faults` on %s: %s, %d processors, load average %s,\n%d nodes, seed %d.\n\n",
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(machine)), runtime.NumCPU(), strings.Fields(string(load))[1],
		len(testbed.Nodes()), *faultsSeed) +
		"| fault | requests | lost in the Pod's own downtime | mounts | recovered after |\n|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	return os.WriteFile(page, []byte(before+faultTableBegin+"\n"+table+faultTableEnd+after), 0o644)
}
