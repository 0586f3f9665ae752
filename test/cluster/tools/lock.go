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
// kernel drops the lock when the process dies, so a crash leaves none behind. Who holds the lock may remove the file.
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

// tryLock returns the locked file, or nil if another process has it.
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
	// The previous holder may have removed the file, and another process locked a new one, after we opened it.
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(locked, current) {
		return nil, file.Close()
	}
	return file, nil
}
