package main

import (
	"strings"
	"testing"
	"time"
)

func TestOnOpenShiftTheLeaseOutlivesARestartOfTheAPIServer(t *testing.T) {
	// The convention of OpenShift is a minute, and the clock may be off by half a minute.
	times := election(true)
	if survives := times.renew - times.retry; survives < time.Minute {
		t.Errorf("the leader gives up after %s", survives)
	}
	if want := (electionTimes{137 * time.Second, 107 * time.Second, 26 * time.Second}); times != want {
		t.Errorf("times are %v, want %v", times, want)
	}
	if elsewhere := election(false); elsewhere.lease >= times.lease || elsewhere.lease <= elsewhere.renew || elsewhere.renew <= elsewhere.retry {
		t.Errorf("elsewhere, times are %v", elsewhere)
	}
}

func TestMissingOptionsAreAllNamedAtOnce(t *testing.T) {
	err := Options{LogLevel: "loud"}.validate()
	if err == nil {
		t.Fatal("options without namespace, image and valid log level are accepted")
	}
	for _, words := range []string{"OPERATOR_NAMESPACE", "RELATED_IMAGE_NODE_AGENT", "--log-level"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the error does not name %s: %v", words, err)
		}
	}
}
