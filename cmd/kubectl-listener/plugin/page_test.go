package plugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// Its help has examples, and the page about the plugin names it.
func TestEachCommandIsDocumented(t *testing.T) {
	root, err := checkout.Root()
	check.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "kubectl-plugin.md"))
	check.Must(t, err)
	commands := plugin.NewCommand(genericiooptions.NewTestIOStreamsDiscard(), backends.All()).Commands()
	if len(commands) != 10 {
		t.Errorf("there are %d commands", len(commands))
	}
	for _, c := range commands {
		if !strings.HasPrefix(c.UseLine(), "kubectl listener "+c.Name()) {
			t.Errorf("%s: the usage is %q", c.Name(), c.UseLine())
		}
		if c.Short == "" || c.Long == "" || !strings.Contains(c.Example, "  kubectl listener "+c.Name()) || c.ValidArgsFunction == nil {
			t.Errorf("%s lacks help, an example or completion", c.Name())
		}
		if c.Flag("output") == nil && c.Name() != "ca" && c.Name() != "binding" { // which print PEM and a manifest
			t.Errorf("%s lacks --output", c.Name())
		}
		if !strings.Contains(string(page), "\n## "+c.Name()+"\n") || !strings.Contains(string(page), "\nkubectl listener "+c.Name()) {
			t.Errorf("the page does not describe %s", c.Name())
		}
	}
}

// The script of the image runs it.
func TestMustGatherRunsACommandThatExists(t *testing.T) {
	script, err := os.ReadFile("../gather.sh")
	check.Must(t, err)
	_, line, _ := strings.Cut(string(script), "\nexec /usr/bin/kubectl-listener ")
	cmd, args, err := plugin.NewCommand(genericiooptions.NewTestIOStreamsDiscard(), backends.All()).Find(strings.Fields(line))
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	if err != nil || cmd.Name() != "gather" || cmd.Flag("output").Value.String() != "/must-gather" {
		t.Errorf("%s runs %s, error %v", script, cmd.Name(), err)
	}
}
