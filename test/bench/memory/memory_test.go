package memory

import (
	"os"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/bench/result"
)

func TestMemoryIsInBytes(t *testing.T) {
	got, err := parse("Name:\toperator\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nRssAnon:\t   60 kB\nRssFile:\t   40 kB\nThreads:\t9\n")
	check.Must(t, err)
	check.Equal(t, "memory", result.Memory{Peak: 200 << 10, Resident: 100 << 10, File: 40 << 10}, got)
	if own, err := Of(os.Getpid()); err != nil || own.Peak < own.Resident || own.Resident <= own.File {
		t.Errorf("this process: %+v, %v", own, err)
	}
}

// A process that has ended, but was not waited for, has a status without memory.
func TestMemoryOfAnEndedProcessIsAnError(t *testing.T) {
	if m, err := parse("Name:\toperator\nState:\tZ (zombie)\n"); err == nil {
		t.Errorf("no error, but %+v", m)
	}
	if _, err := Of(0); err == nil {
		t.Error("no error for a process that does not exist")
	}
}
