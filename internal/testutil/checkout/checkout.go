// Package checkout finds the root of the repository, for tests and test tools that need its files.
package checkout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/listener-operator/listener-operator"

var ErrNotFound = errors.New("not inside a checkout of " + modulePath)

// Root returns the root of the checkout that contains the working directory, also from a nested module, or ErrNotFound.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNotFound
		}
		dir = parent
	}
}
