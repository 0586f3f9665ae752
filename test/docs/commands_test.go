package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
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
		root := plugin.NewCommand(genericiooptions.NewTestIOStreamsDiscard(), backends.All())
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
	raw := read(t, "../Makefile")
	found := map[string]bool{}
	for _, m := range expression.FindAllStringSubmatch(raw, -1) {
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

var testRecipe = regexp.MustCompile(`(?m)^(test|test-all): (.*) ##.*\n\t(.*)$`)

func TestTheReadmeNamesWhatEveryChangeMustPass(t *testing.T) {
	named := map[string]bool{}
	for _, c := range pages.Commands(t) {
		named[c.String()] = named[c.String()] || c.Page == "README.md"
	}
	for _, command := range []string{"make demo", "make test"} {
		if !named[command] {
			t.Errorf("README.md does not name %q", command)
		}
	}
	run := read(t, "../.ci/run")
	if !strings.Contains(run, "for target in verify test-all; do") {
		t.Error(".ci/run does not run make verify and make test-all")
	}
	makefile := read(t, "../Makefile")
	recipes := testRecipe.FindAllStringSubmatch(makefile, -1)
	if len(recipes) != 2 {
		t.Fatalf("the Makefile has %q, want test and test-all", recipes)
	}
	if test, all := recipes[0], recipes[1]; test[2] != all[2] || !strings.HasPrefix(all[3], test[3]+" ") {
		t.Errorf("make test-all runs %q after %q, want all that make test runs: %q after %q", all[3], all[2], test[3], test[2])
	}
}

// resources matches the arguments of a command of kubectl that takes kinds of objects, up to the end of the line.
var resources = regexp.MustCompile("\\b(?:kubectl|oc) (?:--?\\S+ \\S+ )*(?:get|describe|delete|patch|edit|annotate|label|wait|explain|events) ([^`\n]*)")

// Other products have a resource of this name, such as AWS's controllers, and kubectl then means theirs: commands in
// pages, messages, manifests and scripts name lsn, or the group.
func TestCommandsMeanTheListenersOfThisOperator(t *testing.T) {
	checked := 0
	for _, path := range textFiles(t) {
		content := read(t, path)
		for _, m := range resources.FindAllStringSubmatch(content, -1) {
			checked++
			for _, argument := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(" ,'\"()", r) }) {
				kind, _, _ := strings.Cut(strings.TrimRight(argument, ".:;"), "/")
				if kind == "listener" || kind == "listeners" {
					t.Errorf("%s: %q", path, m[0])
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}
