// Package docs tests the pages in docs/: their links, commands, YAML and examples, and what they say about the code.
//
// The working directory of the tests is docs/, so that paths are the same as in links of a page.
package docs

import (
	"fmt"
	"os"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../../docs"); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	os.Exit(apiserver.Run(m))
}
