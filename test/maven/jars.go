package maven

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/listener-operator/listener-operator/test/cluster"
	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// locked has a directory for each product: pom.xml names the jars by their versions, and sha256sums, in the format of
// the program of that name, all jars that these need.
//
//go:embed kafka hdfs zookeeper
var locked embed.FS

// plugin is the goal of Maven that copies jars.
const plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// ErrOtherJars is returned for jars that are not those in sha256sums.
var ErrOtherJars = errors.New("not the jars in sha256sums")

// ensureJars returns the directory with the jars of a product, and fetches them by Maven, as its user has configured
// it, if they are not in the user's cache. It returns ErrOtherJars if Maven does not copy exactly the locked ones.
func ensureJars(ctx context.Context, product string) (string, error) {
	pom, err := locked.ReadFile(product + "/pom.xml")
	if err != nil {
		return "", fmt.Errorf("reading the versions: %w", err)
	}
	sums, err := locked.ReadFile(product + "/sha256sums")
	if err != nil {
		return "", fmt.Errorf("reading the checksums: %w", err)
	}
	return tools.Cached(ctx, "maven/"+product, append(pom, sums...), func(work, jars string) error {
		if err := copyJars(ctx, pom, work, jars); err != nil {
			return err
		}
		return checkJars(jars, string(sums))
	})
}

// copyJars lets Maven copy the jars that a pom.xml names, and those that they need, to a new directory. work is a
// directory for its files.
func copyJars(ctx context.Context, pom []byte, work, jars string) error {
	if err := cluster.InstallPackage(ctx, "maven", "mvn"); err != nil {
		return err
	}
	file := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(file, pom, 0o600); err != nil {
		return fmt.Errorf("writing the versions: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", "--file", file, plugin,
		"-DincludeScope=runtime", "-DoutputDirectory="+jars)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running mvn: %w\n%s", err, bytes.TrimSpace(output))
	}
	return nil
}

// checkJars returns ErrOtherJars unless the files of a directory are those with the checksums.
func checkJars(dir, sums string) error {
	want, got := map[string]string{}, map[string]string{}
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing the jars: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return fmt.Errorf("reading a jar: %w", err)
		}
		sum := sha256.Sum256(content)
		got[file.Name()] = hex.EncodeToString(sum[:])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%w (-want +got):\n%s", ErrOtherJars, diff)
	}
	return nil
}
