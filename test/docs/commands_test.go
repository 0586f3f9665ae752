package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/test/pages"
)

// programs are the programs whose commands are not checked here. test/chart checks helm's.
var programs = strings.Fields("base64 cat curl date diff docker etcdctl git grep haproxy hdfs helm install jq kafka-console-consumer.sh kafka-console-producer.sh make kubectl nats nft oc openssl operator-sdk opm psql " +
	"redis-cli sed sh skopeo sort tail tr velero zkCli.sh")

func TestCommandsOfPagesAreKnown(t *testing.T) {
	for _, c := range pages.Commands(t) {
		if c.Args[0] != "go" && !slices.Contains(programs, c.Args[0]) {
			t.Errorf("%s:%d: no test knows the program of %q", c.Page, c.Line, c)
		}
	}
}

// The commands are the arguments of each `kubectl listener` on the pages.
func TestCommandsOfThePluginExist(t *testing.T) {
	checked := 0
	for _, c := range pages.Commands(t) {
		if c.Args[0] != "kubectl" || len(c.Args) < 3 || c.Args[1] != "listener" {
			continue
		}
		checked++
		root := plugin.NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		cmd, args, err := root.Find(c.Args[2:])
		if err == nil {
			cmd.InitDefaultHelpFlag()
			err = cmd.ParseFlags(args)
		}
		if err == nil && cmd.HasParent() {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s:%d: %s: %v", c.Page, c.Line, c, err)
		}
	}
	if checked < 10 {
		t.Errorf("only %d commands were found", checked)
	}
}

func TestGoCommandsOfPagesNamePackages(t *testing.T) {
	for _, c := range pages.Commands(t) {
		if c.Args[0] != "go" {
			continue
		}
		dir := ".."
		if i := slices.Index(c.Args, "-C"); i >= 0 {
			dir += "/" + c.Args[i+1]
		}
		for _, arg := range c.Args {
			if path, ok := strings.CutPrefix(arg, "./"); ok {
				if _, err := os.Stat(dir + "/" + strings.TrimSuffix(path, "...")); err != nil {
					t.Errorf("%s:%d: %v", c.Page, c.Line, err)
				}
			}
		}
	}
}

var (
	makeTarget   = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	makeVariable = regexp.MustCompile(`\$\(?(?:origin )?([A-Z_]+)\)?|^([A-Z_]+) \?=`)
)

// makefile returns the groups of an expression in the Makefile.
func makefile(t *testing.T, expression *regexp.Regexp) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range expression.FindAllStringSubmatch(string(raw), -1) {
		found[m[1]] = true
	}
	return found
}

func TestMakeCommandsOfPagesNameTargetsAndVariables(t *testing.T) {
	targets, variables := makefile(t, makeTarget), makefile(t, makeVariable)
	checked := 0
	for _, c := range pages.Commands(t) {
		if c.Args[0] != "make" {
			continue
		}
		for _, arg := range c.Args[1:] {
			checked++
			name, _, isVariable := strings.Cut(strings.Trim(arg, "[]…"), "=")
			switch {
			case name == "":
			case isVariable && !variables[name]:
				t.Errorf("%s:%d: %q: the Makefile has no variable %s", c.Page, c.Line, c, name)
			case !isVariable && !targets[name]:
				t.Errorf("%s:%d: %q: the Makefile has no target %s", c.Page, c.Line, c, name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d arguments of make were found", checked)
	}
}
