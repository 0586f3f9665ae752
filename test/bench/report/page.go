package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

//go:embed performance.md.tmpl
var pageTemplate string

// Files of the page, below the directory of the documentation.
const (
	pageFile = "performance.md"
	plotDir  = "performance"
	// resultsFile has the results that the page was generated from.
	resultsFile = "results.json"
)

// Generate writes the page, its plots and all results into the directory of the documentation.
func Generate(docs string, parts []*result.Part) error {
	dir := filepath.Join(docs, plotDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of plots: %w", err)
	}
	if err := collect(parts).plots(dir); err != nil {
		return err
	}
	page, err := Page(parts)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(parts)
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	for path, content := range map[string][]byte{
		filepath.Join(docs, pageFile): page, filepath.Join(dir, resultsFile): append(raw, '\n'),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing the page: %w", err)
		}
	}
	return nil
}

// Published returns the results behind the page in the directory of the documentation, by the names of the parts. There
// are none if the directory is "", or has no page yet.
func Published(docs string) (map[string]*result.Part, error) {
	published := map[string]*result.Part{}
	if docs == "" {
		return published, nil
	}
	raw, err := os.ReadFile(filepath.Join(docs, plotDir, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return published, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the published results: %w", err)
	}
	var parts []*result.Part
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("parsing the published results: %w", err)
	}
	for _, p := range parts {
		published[p.Name] = p
	}
	return published, nil
}

// Page returns the page.
func Page(parts []*result.Part) ([]byte, error) {
	parsed, err := template.New(pageFile).Parse(pageTemplate)
	if err != nil {
		return nil, fmt.Errorf("parsing the template of the page: %w", err)
	}
	r := collect(parts)
	var b bytes.Buffer
	if err := parsed.Execute(&b, map[string]any{
		"Environments": r.environments, "Last": r.last(), "Busy": r.busy(),
		"Starts": r.startTable(), "Writes": r.writeTable(), "Timelines": r.starts != nil && len(r.starts.Timelines) > 0,
		"Bursts": r.burstTable(), "Processor": r.processorTable(), "AgentMemory": r.agentMemory(),
		"Updates": r.updateTable(), "Sizes": r.sizeTable(), "Growth": r.growth(),
	}); err != nil {
		return nil, fmt.Errorf("generating the page: %w", err)
	}
	return b.Bytes(), nil
}

// busyShare is the share of the processors above which other work has affected the times.
const busyShare = 0.2

// busy reports whether the machine had other work when a part began.
func (r results) busy() bool {
	return slices.ContainsFunc(r.environments, func(e named) bool { return e.Busy > busyShare*float64(e.CPUs) })
}

// last returns the environment of the part that was measured last.
func (r results) last() result.Environment {
	var last result.Environment
	for _, e := range r.environments {
		if e.Date.After(last.Date) {
			last = e.Environment
		}
	}
	return last
}

// growth describes how the memory grows with the number of Listeners, or is "" if fewer than two sizes were measured.
func (r results) growth() string {
	if len(r.sizes) < 2 {
		return ""
	}
	var steps []string
	for i := 1; i < len(r.sizes); i++ {
		few, many := r.sizes[i-1], r.sizes[i]
		each := float64(many.Again.Peak-few.Again.Peak) / float64(many.Listeners-few.Listeners) / 1024
		steps = append(steps, fmt.Sprintf("%s KiB between %d and %d Listeners", strconv.FormatFloat(math.Round(each), 'f', -1, 64), few.Listeners, many.Listeners))
	}
	return strings.Join(steps, ", ")
}
