// Command explain prepares the descriptions in CustomResourceDefinitions for readers of kubectl explain. The generator
// copies the line breaks of Go comments, which kubectl keeps, so that most lines would end in the middle of a sentence.
// Paragraphs become one line each; lists and examples stay as they are. It must never change anything else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/hack/command"
)

func main() {
	dir := flag.String("C", "config/crd/bases", "`directory` of the definitions, from the root of the repository")
	flag.Parse()
	command.Main(func(context.Context) error { return run(*dir) })
}

// run rewrites all YAML files in a directory.
func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, file := range files {
		if err := rewrite(file); err != nil {
			return fmt.Errorf("rewriting %s: %w", file, err)
		}
	}
	return nil
}

func rewrite(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		return err
	}
	joinDescriptions(definition)
	if raw, err = yaml.Marshal(definition); err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), raw...), 0o600)
}

// joinDescriptions joins the lines of all descriptions below a node of a schema. A property may have the name
// description; it is no string.
func joinDescriptions(node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if text, ok := value.(string); ok && key == "description" {
				node[key] = joinLines(text)
				continue
			}
			joinDescriptions(value)
		}
	case []any:
		for _, item := range node {
			joinDescriptions(item)
		}
	}
}

// joinLines joins each paragraph into one line. An empty line separates paragraphs; a line that is indented or begins a
// list item or a link stays on its own.
func joinLines(text string) string {
	var lines []string
	joins := false // whether the next line continues the last one
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		separate := line == "" || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "More info: ")
		if joins && !separate {
			lines[len(lines)-1] += " " + line
			continue
		}
		lines = append(lines, line)
		joins = line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "More info: ")
	}
	return strings.Join(lines, "\n")
}
