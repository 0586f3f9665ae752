package doctor

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/walk"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// examineClasses checks that there are classes, and that the cluster can serve them.
func (d *doctor) examineClasses(context.Context) {
	if !d.served || !d.read("ListenerClass") {
		return
	}
	if len(d.classes.Items) == 0 {
		d.Add(check.Finding{Kind: "ListenerClass"}.Warning("", "there are none, so nobody can use listener volumes; docs/choosing-a-class.md has examples"))
	}
	for i := range d.classes.Items {
		class := &d.classes.Items[i]
		f := walk.Described(check.Finding{Kind: "ListenerClass", Name: class.Name}, class)
		for _, kind := range backends.All().Of(class).KindsFor(class) {
			if !d.serves(kind.GroupVersionKind) {
				f = f.Failed(listenersv1alpha1.ReasonNotServed, fmt.Sprintf("needs %ss, and the cluster does not serve %s", kind.Kind, kind.GroupVersion()),
					"Change or delete the class: docs/choosing-a-class.md has others.")
			}
		}
		d.Add(f)
	}
}

// serves reports whether the cluster serves a kind.
func (d *doctor) serves(kind schema.GroupVersionKind) bool {
	_, err := d.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil
}
