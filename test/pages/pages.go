// Package pages reads what the pages of this repository tell their readers to do: the blocks of YAML, and the commands
// in blocks and sentences. Tests check it against the programs and the API.
//
// Only tests may import it.
package pages

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/internal/testutil/checkout"
)

// Place is a place on a page.
type Place struct {
	// Page is the path from the root of the checkout.
	Page string
	Line int
}

// Block is a block of code.
type Block struct {
	Place
	// Language is what follows the fence. It may be empty.
	Language string
	Text     string
}

// Command is a command, as the shell runs it.
type Command struct {
	Place
	// Args are the name of the program and its arguments.
	Args []string
}

// String returns the command for a message.
func (c Command) String() string { return strings.Join(c.Args, " ") }

var (
	fence = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")
	// A span may be broken between words.
	span = regexp.MustCompile("`((?:kubectl|make|helm) [^`]+)`")
)

// Blocks returns all blocks of a language, without the indentation of their fences.
func Blocks(t testing.TB, languages ...string) []Block {
	t.Helper()
	var blocks []Block
	for _, page := range list(t) {
		text := read(t, page)
		for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
			b := Block{Place{page, line(text, m[6])}, text[m[4]:m[5]], text[m[6]:m[7]]}
			if indent := text[m[2]:m[3]]; indent != "" {
				b.Text = strings.ReplaceAll("\n"+b.Text, "\n"+indent, "\n")[1:]
			}
			if slices.Contains(languages, b.Language) {
				blocks = append(blocks, b)
			}
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("the pages have no blocks of %v", languages)
	}
	return blocks
}

// Commands returns the commands in all blocks for a shell, and those of kubectl, helm and make in sentences. A shell
// finds them, so that it interprets quotes, loops and variables, but it runs none of them, as it finds no program.
func Commands(t testing.TB) []Command {
	t.Helper()
	var commands []Command
	for _, b := range Blocks(t, "sh", "console") {
		script := b.Text
		if b.Language == "console" {
			script = prompted(script)
		}
		commands = append(commands, interpret(t, b.Place, script)...)
	}
	for _, page := range list(t) {
		text := read(t, page)
		for _, m := range span.FindAllStringSubmatchIndex(withoutBlocks(text), -1) {
			script := strings.Join(strings.Fields(text[m[2]:m[3]]), " ")
			commands = append(commands, interpret(t, Place{page, line(text, m[2])}, script)...)
		}
	}
	return commands
}

// withoutBlocks replaces blocks by as many spaces.
func withoutBlocks(text string) string {
	return fence.ReplaceAllStringFunc(text, func(block string) string { return strings.Repeat(" ", len(block)) })
}

// prompted returns the commands after a prompt, with the lines that continue them.
func prompted(text string) string {
	var script strings.Builder
	continued := false
	for l := range strings.Lines(text) {
		command, found := strings.CutPrefix(l, "$ ")
		if found || continued {
			script.WriteString(command)
			continued = strings.HasSuffix(command, "\\\n")
		}
	}
	return script.String()
}

// recorder lets bash record each program that it would run in a file of its own in $records, with a byte 0 after each
// argument. The programs of a pipe run at the same time: whoever creates the file of a number has it.
const recorder = `command_not_found_handle() {
  local number=10000
  set -o noclobber
  until { printf '%s\0' "$@" >"$records/$number"; } 2>&-; do number=$((number + 1)); done
}
PATH=/nonexistent
`

// interpret returns the commands of a script.
func interpret(t testing.TB, place Place, script string) []Command {
	t.Helper()
	records := t.TempDir()
	cmd := exec.CommandContext(context.Background(), "bash", "--noprofile", "--norc", "-c", recorder+script)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "records="+records)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s:%d: bash: %v\n%s", place.Page, place.Line, err, out)
	}
	files, err := filepath.Glob(filepath.Join(records, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []Command
	for _, file := range files { // sorted by their numbers
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, Command{place, strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")})
	}
	return commands
}

// list returns the paths of all pages from the root of the checkout.
func list(t testing.TB) []string {
	t.Helper()
	root := root(t)
	var pages []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "dist" || name == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			relative, err := filepath.Rel(root, path)
			pages = append(pages, relative)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func root(t testing.TB) string {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func read(t testing.TB, page string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// line returns the number of the line at an offset.
func line(text string, offset int) int { return strings.Count(text[:offset], "\n") + 1 }
