package main

import (
	"strings"
	"testing"
)

func TestValidateReportsAllInvalidOptions(t *testing.T) {
	err := Options{LogLevel: "loud", LeaderElection: true, FirstSpec: `{"presett": "none"}`}.validate()
	if err == nil {
		t.Fatal("options without namespace, image, Pod and valid log level are accepted")
	}
	for _, words := range []string{"OPERATOR_NAMESPACE", "RELATED_IMAGE_NODE_AGENT", "POD_UID", "--log-level", "LISTENEROPERATOR_SPEC"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the error does not name %s: %v", words, err)
		}
	}
}
