package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockInterval is how often a lock is retried: flock(2) has no timeout.
const lockInterval = 100 * time.Millisecond

// Lock takes an exclusive lock on the file at path, which it creates, and waits for it until ctx is done. The kernel
// releases the lock when the process exits. The holder of the lock may remove the file.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for {
		file, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if file != nil {
			return func() { _ = file.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("locking %s: %w", path, ctx.Err())
		case <-ticker.C:
		}
	}
}

// tryLock returns the locked file, or nil if another process holds the lock.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, file.Close()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	// After the file was opened, the previous holder may have removed it, and another process may have locked a new
	// one.
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(locked, current) {
		return nil, file.Close()
	}
	return file, nil
}
