package serviceaddresses

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/exposure"
	"github.com/listener-operator/listener-operator/internal/names"
)

// maxSaid is the number of statements of a controller that a message quotes.
const maxSaid = 5

// missingLoadBalancer returns why there is no address of a load balancer, except those that are left out.
func missingLoadBalancer(l *exposure.Listener, leftOut string) (reason, message string) {
	service := "Service " + names.ServiceKey(l).String()
	switch errors, conditions := portErrors(l), unmet(l.Service); {
	case leftOut != "":
		return listenersv1alpha1.ReasonUnusableAddress, exposure.UnusableMessage(service, leftOut)
	case errors != "":
		return listenersv1alpha1.ReasonLoadBalancerPortsError, service + " has no load balancer address; its controller says: " + errors
	case conditions != "":
		return listenersv1alpha1.ReasonWaitingForLoadBalancer, service + " has no load balancer address yet; its controller says: " + conditions
	}
	controller := "the cluster's default load balancer controller (ListenerClass " + l.Class.Name + " sets no loadBalancerClass)"
	if name := ptr.Deref(l.Class.Spec.LoadBalancerClass, ""); name != "" {
		controller = fmt.Sprintf("the controller of loadBalancerClass %q, which ListenerClass %s sets,", name, l.Class.Name)
	}
	return listenersv1alpha1.ReasonWaitingForLoadBalancer, service + " has no load balancer address yet; " + controller +
		" has to assign one; if the cluster has no such controller, its administrator has to install one, or the Listener needs a class with serviceType NodePort"
}

// portErrors returns what the controller of a load balancer says about ports that it cannot serve, or "": in the
// condition that Kubernetes has for that, and for each port at an address.
func portErrors(l *exposure.Listener) string {
	if l.Class.Spec.ServiceType != listenersv1alpha1.ServiceTypeLoadBalancer {
		return ""
	}
	var errors []string
	for _, c := range l.Service.Status.Conditions {
		if c.Type == corev1.LoadBalancerPortsError && c.Status == metav1.ConditionTrue {
			errors = append(errors, exposure.Quote(c.Reason, c.Message))
		}
	}
	for _, ingress := range l.Service.Status.LoadBalancer.Ingress {
		for _, p := range ingress.Ports {
			if p.Error != nil {
				errors = append(errors, fmt.Sprintf("port %d/%s: %s", p.Port, p.Protocol, exposure.Quote(*p.Error, "")))
			}
		}
	}
	return said(errors)
}

// unmet returns what controllers say in other conditions of a Service, none of which Kubernetes defines, that are not
// true, or "". Cilium, for example, says there that it has no address left.
func unmet(service *corev1.Service) string {
	var conditions []string
	for _, c := range service.Status.Conditions {
		if c.Type != corev1.LoadBalancerPortsError && c.Status != metav1.ConditionTrue {
			conditions = append(conditions, fmt.Sprintf("%s is %s: %s", exposure.Quote(c.Type, ""), strings.ToLower(string(c.Status)), exposure.Quote(c.Reason, c.Message)))
		}
	}
	return said(conditions)
}

func said(statements []string) string {
	slices.Sort(statements)
	statements = slices.Compact(statements)
	return strings.Join(statements[:min(len(statements), maxSaid)], "; ")
}
