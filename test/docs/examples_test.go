package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	listenerClaim = regexp.MustCompile(`name: (\S+)\n\s+annotations:\n?\s*\{?\s*listeners\.stackable\.tech/listener-(?:class|name):`)
	volumeMount   = regexp.MustCompile(`name: ([^\s,]+)(?:,|\n)\s*mountPath: \S+?(,? ?\n? *readOnly: true)?[}\n]`)
)

// TestExamplesMountListenerVolumesReadOnly: users copy examples, and a volume that is mounted writable lets a container
// fill the disk of the node.
func TestExamplesMountListenerVolumesReadOnly(t *testing.T) {
	mounts := 0
	for _, path := range textFiles(t) {
		if ext := filepath.Ext(path); ext != ".md" && ext != ".yaml" {
			continue
		}
		content, err := os.ReadFile(filepath.Clean(path))
		if err != nil {
			t.Fatal(err)
		}
		claims := map[string]bool{}
		for _, match := range listenerClaim.FindAllStringSubmatch(string(content), -1) {
			claims[match[1]] = true
		}
		for _, match := range volumeMount.FindAllStringSubmatch(string(content), -1) {
			if !claims[match[1]] {
				continue
			}
			mounts++
			if match[2] == "" {
				t.Errorf("%s mounts the listener volume %s without readOnly: true", path, match[1])
			}
		}
	}
	if mounts < 4 {
		t.Errorf("found %d mounts in examples, want those of the sample, the demo and the page about Routes at least", mounts)
	}
}
