package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGarbageIsAPartOfWhatIsAliveOrEightMebibytes(t *testing.T) {
	for alive, want := range map[uint64]int{0: 800, 1: 800, 4 << 20: 200, 16 << 20: 50, 32 << 20: 25, 64 << 20: 15, 200 << 20: 15} {
		if got := percent(alive); got != want {
			t.Errorf("with %d bytes alive: got %d, want %d", alive, got, want)
		}
	}
}

func TestEachGarbageCollectionSetsThePercentageAgain(t *testing.T) {
	tuneGarbageCollection()
	for range 2 {
		const other = 77
		debug.SetGCPercent(other)
		for deadline := time.Now().Add(time.Minute); debug.SetGCPercent(other) == other; {
			if time.Now().After(deadline) {
				t.Fatal("it was not set")
			}
			runtime.GC()
		}
	}
}
