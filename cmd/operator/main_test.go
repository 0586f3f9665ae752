package main

import (
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
