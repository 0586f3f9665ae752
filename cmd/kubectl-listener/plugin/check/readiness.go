package check

import (
	"fmt"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/exposure"
)

// OnlyReadyRemedy returns what lets a Listener that several Pods share send clients to ready Pods only. class is nil if
// it could not be read.
func OnlyReadyRemedy(listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) string {
	switch {
	case claim.OwnsListener(listener):
		return "the Listener belongs to a claim that is meant for a single Pod; create a Listener that the Pods share: docs/listeners.md#one-address-for-several-pods"
	case !listener.PublishesNotReady(), class != nil && exposure.OnlyReady(class, listener):
		return fmt.Sprintf("remove spec.publishNotReadyAddresses from objectOverrides of the Listener, or from serviceOverrides of ListenerClass %s", listener.Class())
	default:
		return fmt.Sprintf("set publishNotReadyAddresses: false in the Listener; an administrator can set notReadyAddressPolicy: PerPodOnly in ListenerClass %s, for all "+
			"Listeners that Pods share", listener.Class())
	}
}

// NotReadyRemedy returns what lets a Listener send clients to Pods that are not ready. class is nil if it could not be
// read.
func NotReadyRemedy(listener *listenersv1alpha1.Listener, class *listenersv1alpha1.ListenerClass) string {
	if class != nil && exposure.OnlyReady(class, listener) {
		return fmt.Sprintf("override spec.publishNotReadyAddresses in objectOverrides of the Listener, because ListenerClass %s has notReadyAddressPolicy: PerPodOnly", class.Name)
	}
	return "set spec.publishNotReadyAddresses of the Listener"
}
