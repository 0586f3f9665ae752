package doctor

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/internal/names"
)

// certificates checks whether the operator can sign certificates, from what it says and what it has issued. It reads no
// Secret. A cluster that does not serve requests for certificates has none.
func (d *doctor) certificates(ctx context.Context) {
	f := check.Finding{Kind: "PodCertificateRequest"}
	var all certificatesv1.PodCertificateRequestList
	if !d.served || d.FollowAll(ctx, f, &all) != check.Present {
		return
	}
	issued, lastIssued := 0, time.Time{}
	for i := range all.Items {
		request := &all.Items[i]
		if conditions := request.Status.Conditions; request.Spec.SignerName == names.Signer && len(conditions) > 0 &&
			conditions[0].Type == certificatesv1.PodCertificateRequestConditionTypeIssued {
			issued++
			if at := conditions[0].LastTransitionTime.Time; at.After(lastIssued) {
				lastIssued = at
			}
		}
	}
	if issued > 0 {
		d.Add(f.OK("%d were granted lately", issued))
	}
	d.damagedAuthority(ctx, lastIssued)
}

// damagedAuthority reports that the operator cannot sign: it has said so, and issued nothing since.
func (d *doctor) damagedAuthority(ctx context.Context, lastIssued time.Time) {
	if d.config == nil {
		return
	}
	damage := d.LastEvent(ctx, d.config, func(e *corev1.Event) bool { return e.Reason == operatorv1alpha1.ReasonCertificateAuthorityDamaged })
	if damage == nil || check.EventTime(damage).Before(lastIssued) {
		return
	}
	f := check.Finding{Kind: "Secret", Namespace: d.namespace, Name: names.CertificateAuthoritySecret}
	d.Add(f.FailedBy(damage.Reason, damage.Message))
}
