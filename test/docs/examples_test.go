package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	listenersv1alpha1 "github.com/listener-operator/listener-operator/api/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/test/pages"
)

var (
	listenerClaim = regexp.MustCompile(`name: (\S+)\n\s+(?:annotations:\n?\s*\{?\s*|csi:\n\s+driver: listeners\.stackable\.tech\n\s+readOnly: true\n\s+volumeAttributes:\n\s+)listeners\.stackable\.tech/listener-(?:class|name):`)
	volumeMount   = regexp.MustCompile(`name: ([^\s,]+)(?:,|\n)\s*mountPath: \S+?(,? ?\n? *readOnly: true)?[}\n]`)
)

// Users copy examples, and a volume that is mounted writable lets a container fill the disk of the node.
func TestExamplesMountListenerVolumesReadOnly(t *testing.T) {
	mounts := 0
	for _, path := range textFiles(t) {
		if ext := filepath.Ext(path); ext != ".md" && ext != ".yaml" {
			continue
		}
		content := read(t, path)
		claims := map[string]bool{}
		for _, match := range listenerClaim.FindAllStringSubmatch(content, -1) {
			claims[match[1]] = true
		}
		for _, match := range volumeMount.FindAllStringSubmatch(content, -1) {
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
		t.Errorf("found %d mounts in examples, want those of the sample, the demo and run-any-product.md at least", mounts)
	}
}

// Newcomers apply the Pod in README.md.
func TestTheReadmeShowsASample(t *testing.T) {
	sample := read(t, "../config/samples/pod.yaml")
	_, want, _ := strings.Cut(sample, "\n") // without its comment
	if i := slices.IndexFunc(pages.Blocks(t, "yaml"), func(b pages.Block) bool { return b.Page == "README.md" && b.Text == want }); i < 0 {
		t.Errorf("README.md has no block of YAML that is config/samples/pod.yaml:\n%s", want)
	}
}

// A Listener that a user writes is shared by Pods, and the default also sends clients to those that are not ready.
func TestExamplesOfSharedListenersSendClientsToReadyPods(t *testing.T) {
	examples := map[string][]string{}
	for _, b := range pages.Blocks(t, "yaml") {
		examples[b.Page] = append(examples[b.Page], b.Text)
	}
	err := filepath.WalkDir("../config/samples", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(filepath.Clean(path))
		examples[path] = append(examples[path], string(content))
		return err
	})
	check.Must(t, err)
	listeners := 0
	for path, texts := range examples {
		for document := range strings.SplitSeq(strings.Join(texts, "\n---\n"), "\n---\n") {
			listener := &listenersv1alpha1.Listener{}
			if !strings.Contains("\n"+document, "\nkind: Listener\n") {
				continue
			}
			listeners++
			if err := yaml.Unmarshal([]byte(document), listener); err != nil || listener.Spec.PublishNotReadyAddresses == nil || listener.PublishesNotReady() {
				t.Errorf("%s: Listener %s does not set publishNotReadyAddresses to false: %v", path, listener.Name, err)
			}
		}
	}
	if listeners < 3 {
		t.Errorf("only %d Listeners are in examples", listeners)
	}
}
