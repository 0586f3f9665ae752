//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// configuration reads ListenerOperator/cluster. When the story ends, there is one, and its agents run.
func (s *story) configuration() *operatorv1alpha1.ListenerOperator {
	s.Helper()
	config := &operatorv1alpha1.ListenerOperator{}
	s.get(config, client.ObjectKey{Name: operatorv1alpha1.ListenerOperatorName})
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		again := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName}}
		if err := client.IgnoreAlreadyExists(api.Create(ctx, again)); err != nil {
			s.Errorf("creating the configuration again: %v", err)
		}
		if _, err := await(ctx, again, client.ObjectKeyFromObject(again), worksEverywhere); err != nil {
			s.Error(err)
		}
	})
	return config
}

// worksEverywhere is what a configuration says when it is installed, and each node has a ready agent.
func worksEverywhere(config *operatorv1alpha1.ListenerOperator) bool {
	return config.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(config.Status.Conditions, operatorv1alpha1.ConditionAvailable) &&
		int(config.Status.NodeAgent.Ready) == len(testbed.Nodes())
}

// refused waits until the deletion of the configuration is refused with these words.
func (s *story) refused(config *operatorv1alpha1.ListenerOperator, words string) {
	s.Helper()
	if _, err := await(s.within(), &operatorv1alpha1.ListenerOperator{}, client.ObjectKeyFromObject(config),
		func(o *operatorv1alpha1.ListenerOperator) bool {
			c := meta.FindStatusCondition(o.Status.Conditions, operatorv1alpha1.ConditionDegraded)
			return !o.DeletionTimestamp.IsZero() && c != nil && c.Reason == operatorv1alpha1.ReasonVolumesInUse && strings.Contains(c.Message, words)
		}); err != nil {
		s.Fatal(err)
	}
}

// nothingInstalled waits until the configuration is gone, and checks that nothing which it owned is there any more.
func (s *story) nothingInstalled(config *operatorv1alpha1.ListenerOperator) {
	s.Helper()
	mustAwaitGone(s, &operatorv1alpha1.ListenerOperator{}, client.ObjectKeyFromObject(config))
	agent := metav1.ObjectMeta{Name: names.NodeAgent}
	driver := metav1.ObjectMeta{Name: names.Driver}
	for _, o := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: driver}, &storagev1.CSIDriver{ObjectMeta: driver},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: operatorSpace, Name: names.NodeAgent}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: agent}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: agent},
	} {
		if err := api.Get(s.ctx, client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
			s.Errorf("reading %T %s says %v, want not found", o, o.GetName(), err)
		}
	}
	if agents := s.agents(); len(agents) > 0 {
		s.Errorf("agents are left: %v", agents)
	}
}

// agents returns the uids of all agents' Pods, sorted.
func (s *story) agents() []types.UID {
	s.Helper()
	var pods corev1.PodList
	if err := api.List(s.ctx, &pods, client.InNamespace(operatorSpace), client.MatchingLabels{"app.kubernetes.io/component": "node-agent"}); err != nil {
		s.Fatalf("listing the agents: %v", err)
	}
	var uids []types.UID
	for i := range pods.Items {
		uids = append(uids, pods.Items[i].UID)
	}
	slices.Sort(uids)
	return uids
}

// reached begins a story with a class and a Pod "web" that clients reach at its address.
func (s *story) reached() (*listenersv1alpha1.ListenerClass, *corev1.Pod, listenersv1alpha1.IngressAddress) {
	s.Helper()
	class := s.class(unpinned())
	s.create(pod("web", map[string]map[string]string{"listener": byClass(class.Name)}))
	p := s.running("web")
	own := s.told(p, "listener").IngressAddresses[0]
	s.answers(own, "web")
	return class, p, own
}

// TestADeletedConfigurationWaitsForVolumesInUse: while a Pod has a volume, its deletion is refused and the Pod is
// named, although the garbage collector is told to begin at once. When the Pod has ended, which takes an agent,
// everything goes. What is policy stays.
func TestADeletedConfigurationWaitsForVolumesInUse(t *testing.T) {
	s := tell(t)
	class, p, own := s.reached()

	config := s.configuration()
	s.remove(config, client.PropagationPolicy(metav1.DeletePropagationForeground))
	s.refused(config, fmt.Sprintf("Pods %s/web", s.namespace))
	if _, err := await(s.within(), &appsv1.DaemonSet{}, client.ObjectKey{Namespace: operatorSpace, Name: names.NodeAgent}, func(d *appsv1.DaemonSet) bool {
		return d.DeletionTimestamp.IsZero() && int(d.Status.NumberReady) == len(testbed.Nodes())
	}); err != nil {
		t.Fatal(err)
	}
	s.answers(own, "web")

	s.remove(p)
	mustAwaitGone(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	s.nothingLeft(p)
	s.nothingInstalled(config)
	s.get(&listenersv1alpha1.ListenerClass{}, client.ObjectKeyFromObject(class))
}

// TestAConfigurationMayBeDeletedWhileTheOperatorIsAway: nobody takes anything away, Pods can end, and an operator that
// comes back finishes it.
func TestAConfigurationMayBeDeletedWhileTheOperatorIsAway(t *testing.T) {
	s := tell(t)
	_, p, _ := s.reached()
	operator := &appsv1.Deployment{}
	s.get(operator, client.ObjectKey{Namespace: operatorSpace, Name: names.Operator})
	config := s.configuration()
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](0) })
	t.Cleanup(func() {
		replicas := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))
		if err := api.Patch(context.Background(), operator, replicas); err != nil {
			t.Error(err)
		}
	})
	if _, err := await(s.within(), &appsv1.Deployment{}, client.ObjectKeyFromObject(operator),
		func(d *appsv1.Deployment) bool { return d.Status.Replicas == 0 }); err != nil {
		t.Fatal(err)
	}
	before := s.agents()
	s.remove(config)
	s.remove(p)
	mustAwaitGone(s, &corev1.Pod{}, client.ObjectKeyFromObject(p))
	s.nothingLeft(p)
	if after := s.agents(); !slices.Equal(before, after) {
		t.Errorf("agents were %v and are %v", before, after)
	}
	s.patch(operator, func() { operator.Spec.Replicas = ptr.To[int32](1) })
	s.nothingInstalled(config)
}

// TestADeletionByMistakeIsTakenBack: the waiting deletion is turned into one that leaves everything where it is, and a
// new configuration takes it over. Neither the Pod nor an agent is disturbed.
func TestADeletionByMistakeIsTakenBack(t *testing.T) {
	s := tell(t)
	class, _, own := s.reached()
	config := s.configuration()
	before := s.agents()
	s.remove(config)
	s.refused(config, fmt.Sprintf("Pods %s/web", s.namespace))
	s.remove(config, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	mustAwaitGone(s, &operatorv1alpha1.ListenerOperator{}, client.ObjectKeyFromObject(config))
	again := &operatorv1alpha1.ListenerOperator{ObjectMeta: metav1.ObjectMeta{Name: config.Name}}
	s.create(again)
	if _, err := await(s.within(), again, client.ObjectKeyFromObject(again), worksEverywhere); err != nil {
		t.Fatal(err)
	}
	s.answers(own, "web")
	if after := s.agents(); !slices.Equal(before, after) {
		t.Errorf("agents were %v and are %v", before, after)
	}
	next := pod("next", map[string]map[string]string{"listener": byClass(class.Name)})
	s.create(next)
	s.answers(s.told(s.running("next"), "listener").IngressAddresses[0], "next")

	// What confines the operator is nobody's now, until an administrator deletes it: the operator may not change it,
	// but makes it anew.
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		s.get(o, client.ObjectKey{Name: names.Operator})
		s.remove(o)
		if err := eventually(s.within(), func(ctx context.Context) error {
			if err := api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			if !metav1.IsControlledBy(o, again) {
				return fmt.Errorf("%T %s has owners %v", o, o.GetName(), o.GetOwnerReferences())
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
