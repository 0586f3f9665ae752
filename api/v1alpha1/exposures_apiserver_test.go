package v1alpha1_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
)

// exposures are the fields of a class that expose its Listeners by more than a Service, each with a valid value.
var exposures = map[string]string{
	"route":    `{}`,
	"ingress":  `{className: a, hostTemplate: "{podName}.{namespace}.a"}`,
	"gateway":  `{kind: TCPRoute, parentRefs: [{namespace: infra, name: edge}]}`,
	"hostPort": `{}`,
	"pod":      `{}`,
}

func TestExposuresExcludeEachOther(t *testing.T) {
	for field := range reflect.TypeFor[listenersv1alpha1.ListenerClassSpec]().Fields() {
		if field.Type.Kind() == reflect.Pointer && strings.HasSuffix(field.Type.Elem().Name(), "Exposure") {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); exposures[name] == "" {
				t.Errorf("exposures has no value for %s", name)
			}
		}
	}
	for field, value := range exposures {
		t.Run(field, func(t *testing.T) {
			checkClass(t, fmt.Sprintf("{serviceType: ClusterIP, %s: %s}", field, value), "")
			for _, serviceType := range []string{"NodePort", "LoadBalancer"} {
				checkClass(t, fmt.Sprintf("{serviceType: %s, %s: %s}", serviceType, field, value), field+" needs serviceType ClusterIP")
			}
			for other, otherValue := range exposures {
				if other != field {
					checkClass(t, fmt.Sprintf("{serviceType: ClusterIP, %s: %s, %s: %s}", field, value, other, otherValue),
						"at most one of route, ingress, gateway, hostPort and pod may be set")
				}
			}
		})
	}
}
