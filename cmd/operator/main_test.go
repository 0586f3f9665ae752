package main

import (
	"strings"
	"testing"
	"time"
)

func TestLeaderOnOpenShiftSurvivesARestartOfTheAPIServer(t *testing.T) {
	// OpenShift's conventions demand one minute, and tolerate a clock skew of half a minute.
	times := election(true)
	if survives := times.renew - times.retry; survives < time.Minute {
		t.Errorf("the leader survives %s only", survives)
	}
	if want := (electionTimes{137 * time.Second, 107 * time.Second, 26 * time.Second}); times != want {
		t.Errorf("times are %v, want %v", times, want)
	}
	if defaults := election(false); defaults.lease >= times.lease || defaults.lease <= defaults.renew || defaults.renew <= defaults.retry {
		t.Errorf("on other clusters, times are %v", defaults)
	}
}

func TestValidateReportsAllInvalidOptions(t *testing.T) {
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
