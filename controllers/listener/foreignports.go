package listener

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/message"
	"github.com/listener-operator/listener-operator/internal/names"
)

// servicePort identifies a port of a Service.
type servicePort struct {
	protocol corev1.Protocol
	number   int32
}

// String returns the port as users write it.
func (p servicePort) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

// removeForeignPorts removes the ports of the observed Service that the applied one does not have. Server-side apply
// keeps them, and they would expose more of the Pods than the class allows, and be published.
func (r *Reconciler) removeForeignPorts(ctx context.Context, o *observed, applied *corev1ac.ServiceApplyConfiguration) error {
	own := map[servicePort]bool{}
	for i := range applied.Spec.Ports {
		p := &applied.Spec.Ports[i]
		own[servicePort{ptr.Deref(p.Protocol, corev1.ProtocolTCP), ptr.Deref(p.Port, 0)}] = true
	}
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": o.service.ResourceVersion}}
	var foreign []string
	for i, p := range slices.Backward(o.service.Spec.Ports) {
		if port := (servicePort{p.Protocol, p.Port}); !own[port] {
			operations = append(operations, map[string]any{"op": "remove", "path": fmt.Sprintf("/spec/ports/%d", i)})
			foreign = append(foreign, port.String())
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding a patch of service %s: %w", client.ObjectKeyFromObject(o.service), err)
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = o.service.Namespace, o.service.Name
	if err := r.Client.Patch(ctx, service, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(names.FieldManagerService)); err != nil {
		return fmt.Errorf("removing ports of others from service %s: %w", client.ObjectKeyFromObject(o.service), err)
	}
	o.service = service
	text := message.Printable(strings.Join(foreign, ", "), message.MaxEvent/2)
	log.FromContext(ctx).Info("Removed ports that others had added to the Service", "ports", text)
	r.Events.Eventf(o.listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignPortsRemoved, "Reconcile",
		"another client had added the ports %s to the Service; add them to spec.ports of the Listener instead", text)
	return nil
}
