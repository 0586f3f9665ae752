package metrics

import (
	"k8s.io/apimachinery/pkg/util/sets"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// reasons are those of the conditions Accepted and Ready of Listeners, which the API declares.
var reasons = sets.New(
	listenersv1alpha1.ReasonAccepted,
	listenersv1alpha1.ReasonClassNotSet,
	listenersv1alpha1.ReasonClassNotFound,
	listenersv1alpha1.ReasonNoPorts,
	listenersv1alpha1.ReasonInvalidPorts,
	listenersv1alpha1.ReasonInvalidName,
	listenersv1alpha1.ReasonInvalidOverrides,
	listenersv1alpha1.ReasonForeignService,
	listenersv1alpha1.ReasonServiceRejected,
	listenersv1alpha1.ReasonDuplicatePortName,
	listenersv1alpha1.ReasonNotServed,
	listenersv1alpha1.ReasonForeignRoute,
	listenersv1alpha1.ReasonForeignIngress,
	listenersv1alpha1.ReasonIngressRejected,
	listenersv1alpha1.ReasonRouteRejected,
	listenersv1alpha1.ReasonNoRoutablePorts,
	listenersv1alpha1.ReasonNoSinglePod,
	listenersv1alpha1.ReasonInvalidHost,
	listenersv1alpha1.ReasonNamespaceNotAllowed,
	listenersv1alpha1.ReasonNodePortsExhausted,
	listenersv1alpha1.ReasonSharedPortsExhausted,
	listenersv1alpha1.ReasonPortLimitReached,
	listenersv1alpha1.ReasonForeignGatewayRoute,
	listenersv1alpha1.ReasonGatewayRouteRejected,
	listenersv1alpha1.ReasonNoGatewayListener,
	listenersv1alpha1.ReasonAddressesAssigned,
	listenersv1alpha1.ReasonNotAccepted,
	listenersv1alpha1.ReasonWaitingForLoadBalancer,
	listenersv1alpha1.ReasonWaitingForPods,
	listenersv1alpha1.ReasonWaitingForNodePorts,
	listenersv1alpha1.ReasonWaitingForClusterIP,
	listenersv1alpha1.ReasonNoHostPorts,
	listenersv1alpha1.ReasonNodesMissing,
	listenersv1alpha1.ReasonInvalidNodeAddress,
	listenersv1alpha1.ReasonServiceTerminating,
	listenersv1alpha1.ReasonObjectTerminating,
	listenersv1alpha1.ReasonWaitingForRouter,
	listenersv1alpha1.ReasonWaitingForIngress,
	listenersv1alpha1.ReasonRouteNotAdmitted,
	listenersv1alpha1.ReasonWaitingForGateway,
	listenersv1alpha1.ReasonGatewayRouteNotAccepted,
	listenersv1alpha1.ReasonReserved,
	listenersv1alpha1.ReasonNoMatchingPods,
	listenersv1alpha1.ReasonNodesNotReady,
	listenersv1alpha1.ReasonPortNotDeclared,
)
