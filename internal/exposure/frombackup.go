package exposure

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listener-operator/listener-operator/internal/names"
)

// RestoredFor returns the label of the Listener that an object was generated for, if it comes from a backup: it has the
// labels that no one writes by hand, and no owners, which backups drop. Otherwise it returns "".
func RestoredFor(o metav1.Object) string {
	labels := o.GetLabels()
	if len(o.GetOwnerReferences()) > 0 || labels["app.kubernetes.io/name"] != names.ServiceAppName ||
		labels[names.LabelManagedBy] != names.ServiceManagedBy {
		return ""
	}
	return labels["app.kubernetes.io/instance"]
}
