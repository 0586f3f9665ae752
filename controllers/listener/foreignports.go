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
	"k8s.io/client-go/tools/events"
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

// foreignPorts removes the ports that other clients add to Services.
type foreignPorts struct {
	client client.Client
	events events.EventRecorder
}

// remove removes the ports of a Service that the applied one does not have, and returns the Service without them.
// Server-side apply keeps them, and they would expose more of the Pods than the class allows, and be published.
func (f foreignPorts) remove(ctx context.Context, listener *listenersv1alpha1.Listener, existing *corev1.Service, applied *corev1ac.ServiceApplyConfiguration) (*corev1.Service, error) {
	own := map[servicePort]bool{}
	for i := range applied.Spec.Ports {
		p := &applied.Spec.Ports[i]
		own[servicePort{ptr.Deref(p.Protocol, corev1.ProtocolTCP), ptr.Deref(p.Port, 0)}] = true
	}
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": existing.ResourceVersion}}
	var foreign []string
	for i, p := range slices.Backward(existing.Spec.Ports) {
		if port := (servicePort{p.Protocol, p.Port}); !own[port] {
			operations = append(operations, map[string]any{"op": "remove", "path": fmt.Sprintf("/spec/ports/%d", i)})
			foreign = append(foreign, port.String())
		}
	}
	if len(foreign) == 0 {
		return existing, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return existing, fmt.Errorf("encoding a patch of service %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = existing.Namespace, existing.Name
	if err := f.client.Patch(ctx, service, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(names.FieldManagerService)); err != nil {
		return existing, fmt.Errorf("removing ports of others from service %s: %w", client.ObjectKeyFromObject(existing), err)
	}
	text := message.Printable(strings.Join(foreign, ", "), message.MaxEvent/2)
	log.FromContext(ctx).Info("Removed ports that others had added to the Service", "ports", text)
	f.events.Eventf(listener, nil, corev1.EventTypeWarning, listenersv1alpha1.ReasonForeignPortsRemoved, "Reconcile",
		"another client had added the ports %s to the Service; add them to spec.ports of the Listener instead", text)
	return service, nil
}
