package claim_test

import (
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/claim"
	"github.com/listener-operator/listener-operator/internal/names"
)

func TestAnAnnotationThatNearlyFitsIsNamed(t *testing.T) {
	for key, want := range map[string]string{
		"listener.stackable.tech/listener-class":  names.AnnotationListenerClass, // singular, as in the label of Pods
		"listeners.stackable.tech/listenerClass":  names.AnnotationListenerClass,
		"listeners.stackable.tech/class":          names.AnnotationListenerClass,
		"stackable.tech/listener-class":           names.AnnotationListenerClass,
		"listener-class":                          names.AnnotationListenerClass,
		"listeners.stackable.tech/listener":       names.AnnotationListenerName,
		"listener.stackable.tech/name":            names.AnnotationListenerName,
		"listeners.stackable.tech/listner-name":   names.AnnotationListenerName,
		"Listeners.Stackable.Tech/Listener-Class": names.AnnotationListenerClass,
		names.AnnotationListenerClass:             "",
		names.AnnotationListenerName:              "",
		names.AnnotationPorts:                     "",
		names.AnnotationRelease:                   "",
		names.AnnotationProvisioner:               "",
		"volume.kubernetes.io/selected-node":      "",
		"example.com/class":                       "",
		"":                                        "",
	} {
		got := claim.DidYouMean(map[string]string{"a.example/other": "x", key: "some"})
		if want == "" && got != "" || want != "" && (!strings.Contains(got, "annotation "+key) || !strings.HasSuffix(got, "did you mean "+want+"?")) {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestAListenerNameWithANamespaceIsExplained(t *testing.T) {
	got := claim.ListenerNameProblem("shop/web")
	if !strings.Contains(got, "name alone") || strings.Contains(got, "Service") {
		t.Errorf("got %q", got)
	}
}
