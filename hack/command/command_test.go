package command

import (
	"strings"
	"testing"
)

func TestErrorContainsStandardError(t *testing.T) {
	_, err := Run(t.Context(), "sh", "-c", "echo reason >&2; false")
	if err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("error %v, want the program's reason", err)
	}
}
