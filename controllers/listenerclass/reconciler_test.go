package listenerclass_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/controllers/listenerclass"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/fakeclient"
)

func configuration(preset operatorv1alpha1.Preset) *operatorv1alpha1.ListenerOperator {
	return &operatorv1alpha1.ListenerOperator{
		ObjectMeta: metav1.ObjectMeta{Name: operatorv1alpha1.ListenerOperatorName},
		Spec:       operatorv1alpha1.ListenerOperatorSpec{ManagementState: operatorv1alpha1.Managed, Preset: preset},
	}
}

// classes returns what consumers rely on of each class that exists.
func classes(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	var list listenersv1alpha1.ListenerClassList
	check.Must(t, c.List(t.Context(), &list))
	found := map[string]string{}
	for i := range list.Items {
		class := &list.Items[i]
		found[class.Name] = fmt.Sprintf("%s pinned=%t owners=%d", class.Spec.ServiceType, class.Spec.PinnedNodePorts, len(class.OwnerReferences))
	}
	return found
}

func TestMissingClassesOfThePresetAreCreated(t *testing.T) {
	ephemeral := map[string]string{
		"cluster-internal":  "ClusterIP pinned=false owners=0",
		"external-unstable": "NodePort pinned=false owners=0",
		"external-stable":   "LoadBalancer pinned=false owners=0",
	}
	stable := map[string]string{
		"cluster-internal":  "ClusterIP pinned=false owners=0",
		"external-unstable": "NodePort pinned=false owners=0",
		"external-stable":   "NodePort pinned=true owners=0",
	}
	own := &listenersv1alpha1.ListenerClass{
		ObjectMeta: metav1.ObjectMeta{Name: "external-stable"},
		Spec:       listenersv1alpha1.ListenerClassSpec{ServiceType: listenersv1alpha1.ServiceTypeClusterIP},
	}
	for name, tc := range map[string]struct {
		config   *operatorv1alpha1.ListenerOperator
		existing []client.Object
		want     map[string]string
	}{
		"ephemeral nodes": {config: configuration(operatorv1alpha1.PresetEphemeralNodes), want: ephemeral},
		"stable nodes":    {config: configuration(operatorv1alpha1.PresetStableNodes), want: stable},
		"none":            {config: configuration(operatorv1alpha1.PresetNone), want: map[string]string{}},
		"class that exists is not changed": {
			config: configuration(operatorv1alpha1.PresetEphemeralNodes), existing: []client.Object{own},
			want: map[string]string{
				"cluster-internal":  "ClusterIP pinned=false owners=0",
				"external-unstable": "NodePort pinned=false owners=0",
				"external-stable":   "ClusterIP pinned=false owners=0",
			},
		},
		"unmanaged": {
			config: func() *operatorv1alpha1.ListenerOperator {
				c := configuration(operatorv1alpha1.PresetStableNodes)
				c.Spec.ManagementState = operatorv1alpha1.Unmanaged
				return c
			}(),
			want: map[string]string{},
		},
		"removed": {
			config: func() *operatorv1alpha1.ListenerOperator {
				c := configuration(operatorv1alpha1.PresetStableNodes)
				c.Spec.ManagementState = operatorv1alpha1.Removed
				return c
			}(),
			want: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeclient.New(t, interceptor.Funcs{}, tc.existing...)
			r := &listenerclass.Reconciler{Client: c}
			for range 2 { // the second reconcile finds all classes
				if _, err := r.Reconcile(t.Context(), tc.config); err != nil {
					t.Fatal(err)
				}
			}
			check.Equal(t, "classes", tc.want, classes(t, c))
		})
	}
}

func TestOtherClassesAreCreatedIfOneFails(t *testing.T) {
	boom := errors.New("boom")
	c := fakeclient.New(t, fakeclient.FailWrite(0, boom))
	r := &listenerclass.Reconciler{Client: c}
	config := configuration(operatorv1alpha1.PresetStableNodes)
	if _, err := r.Reconcile(t.Context(), config); !errors.Is(err, boom) {
		t.Fatalf("error is %v, want boom", err)
	}
	if found := classes(t, c); len(found) != 2 {
		t.Errorf("after a failure the classes are %v, want two", found)
	}
	if _, err := r.Reconcile(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if found := classes(t, c); len(found) != 3 {
		t.Errorf("in the end the classes are %v, want three", found)
	}
}

func TestClassesHaveTheFieldManagerOfTheOperator(t *testing.T) {
	var managers []string
	c := fakeclient.New(t, interceptor.Funcs{Create: func(
		ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption,
	) error {
		applied := (&client.CreateOptions{}).ApplyOptions(options)
		managers = append(managers, applied.FieldManager)
		return c.Create(ctx, o, options...)
	}})
	r := &listenerclass.Reconciler{Client: c}
	if _, err := r.Reconcile(t.Context(), configuration(operatorv1alpha1.PresetEphemeralNodes)); err != nil {
		t.Fatal(err)
	}
	check.Equal(t, "field managers", []string{"listener-operator", "listener-operator", "listener-operator"}, managers)
}
