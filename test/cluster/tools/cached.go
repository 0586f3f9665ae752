package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Cached returns a directory of the user's cache with what make creates, which it calls if there is none for the name
// and the key yet. make has a directory for its work, which is deleted, and has to create result, a directory, there.
func Cached(ctx context.Context, name string, key []byte, make func(work, result string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache: %w", err)
	}
	sum := sha256.Sum256(key)
	dir := filepath.Join(cache, "listener-operator", filepath.FromSlash(name)+"-"+hex.EncodeToString(sum[:])[:12])
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".")
	if err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	result := filepath.Join(work, "result")
	if err := make(work, result); err != nil {
		return "", err
	}
	return dir, os.Rename(result, dir)
}
