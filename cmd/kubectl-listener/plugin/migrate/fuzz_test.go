package migrate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// FuzzCompareListeners looks for Listeners and classes at which `kubectl listener migrate` ends, although they belong
// to tenants.
func FuzzCompareListeners(f *testing.F) {
	f.Add([]byte(`{"className":"a","ports":[{"name":"http","port":80}]}`), []byte(`{"serviceType":"NodePort"}`))
	f.Add([]byte(`{"className":"a","ports":[{"name":"http","port":80}],"objectOverrides":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},`+
		`"spec":{"ports":[{"port":{}},{"port":{}}]}}]}`), []byte(`{"serviceType":"ClusterIP","listenerOverrides":{"allowed":["spec.ports"]}}`))
	f.Fuzz(func(t *testing.T, listenerSpec, classSpec []byte) {
		l := listenersv1alpha1.Listener{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "listener-uid"}}
		class := listenersv1alpha1.ListenerClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if kjson.UnmarshalCaseSensitivePreserveInts(listenerSpec, &l.Spec) != nil || kjson.UnmarshalCaseSensitivePreserveInts(classSpec, &class.Spec) != nil {
			return // the API server would not store it
		}
		m := &migration{Walk: walk.New(&check.Examination{Backends: backends.All()})}
		m.classes.Items, m.listeners.Items = []listenersv1alpha1.ListenerClass{class}, []listenersv1alpha1.Listener{l}
		m.compareListeners()
	})
}
