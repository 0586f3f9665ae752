package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockInterval is how often a taken lock is tried again: flock(2) knows no deadline.
const lockInterval = 100 * time.Millisecond

// Lock takes an exclusive lock on the file at path, which it creates, and waits for it as long as ctx lives. The
// kernel drops the lock when the process dies, so a crash leaves none behind.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, ctx.Err()), file.Close())
		case <-ticker.C:
		}
	}
}
