package certmanager

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/apply"
	"github.com/listener-operator/listener-operator/internal/names"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/growth"
)

// Editors of a namespace choose how many Listeners a Certificate has, and can write one in its place.
func TestCertificatesCostLinearTime(t *testing.T) {
	growth.CheckLinear(t, map[string]growth.Work{
		"Certificate: Listeners, and names that it has": {Size: 1000, Do: func(n int) { // more than a Certificate may have
			observed, settings := apply.Object(names.KindCertificate, types.NamespacedName{}), &listenersv1alpha1.Certificates{}
			var members []member
			var observedNames []any
			for i := range n {
				address := fmt.Sprintf("web-%d.example.com", i)
				observedNames = append(observedNames, address)
				members = append(members, member{listener: &listenersv1alpha1.Listener{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)},
					Status:     &listenersv1alpha1.ListenerStatus{IngressAddresses: []listenersv1alpha1.IngressAddress{{Address: address}}},
				}, settings: settings})
			}
			members[n-1].listener.Status = nil
			observed.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
			observed.Object["spec"] = map[string]any{"dnsNames": observedNames}
			if _, err := trim(observed); err != nil {
				panic(err)
			}
			newPlan(members)
			outdated(observed, members)
		}},
	}, ".", "github.com/listener-operator/listener-operator/internal/certificate")
}

// Editors of a namespace can give the operator's label to Certificates that it would never delete.
func TestCertificatesOfOthersCostNoMemory(t *testing.T) {
	for name, want := range map[string]bool{"web" + names.CertificateSuffix: true, "web": false} {
		forged := apply.Object(names.KindCertificate, types.NamespacedName{Namespace: "shop", Name: name})
		forged.SetLabels(map[string]string{names.LabelManagedBy: names.Operator})
		forged.Object["spec"] = map[string]any{"dnsNames": []any{"web.example.com"}}
		kept, err := trim(forged)
		check.Must(t, err)
		if _, has := kept.(*unstructured.Unstructured).Object["spec"]; has != want {
			t.Errorf("the spec of Certificate %s is kept: %v", name, has)
		}
	}
}
