package bundle

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// expectedWarnings are parts of warnings that do not fail TestOperatorSDKValidatesBundle, with the reason.
var expectedWarnings = map[string]string{
	`The "operatorhub" validator is deprecated`: "its successors run as well",
	"unable to inspect the image":               "the validator pulls images with docker; hack/release runs it on the images of a release",
	`["error/error"]`:                           "these are the architectures of an image that it could not pull",
}

func TestOperatorSDKValidatesBundle(t *testing.T) {
	sdk := os.Getenv("OPERATOR_SDK")
	if sdk == "" {
		t.Skip("OPERATOR_SDK does not name the program operator-sdk; `make validate-bundle` sets it")
	}
	t.Setenv("PATH", t.TempDir()) // without docker
	// Every optional validator has the label "name".
	cmd := exec.CommandContext(t.Context(), sdk, "bundle", "validate", dir,
		"--select-optional=name", "--optional-values=k8s-version=1.37", "--output=json-alpha1")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("operator-sdk bundle validate: %v", err)
	}
	var result struct {
		Passed  bool
		Outputs []struct{ Type, Message string }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("parsing the result %q: %v", out, err)
	}
	if !result.Passed {
		t.Error("the bundle did not pass")
	}
	for part, reason := range expectedWarnings {
		found := false
		for i, o := range result.Outputs {
			if o.Type == "warning" && strings.Contains(o.Message, part) {
				result.Outputs[i].Type, found = "expected", true
			}
		}
		if !found {
			t.Errorf("there is no warning %q any more, which was expected because %s", part, reason)
		}
	}
	for _, o := range result.Outputs {
		if o.Type != "expected" {
			t.Errorf("%s: %s", o.Type, o.Message)
		}
	}
}
