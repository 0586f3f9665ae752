// Package result has the results of benchmarks, and keeps each part of them in a JSON file of its own.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Part is the result of one part of the benchmarks. Exactly one of its last fields is set.
type Part struct {
	// Name is the part's name, and the name of its file.
	Name string `json:"name"`
	// Environment is where it was measured.
	Environment Environment `json:"environment"`
	// Seconds is how long the part took, with its preparation.
	Seconds float64 `json:"seconds"`

	Starts  *Starts  `json:"starts,omitempty"`
	Bursts  *Bursts  `json:"bursts,omitempty"`
	Updates *Updates `json:"updates,omitempty"`
	Size    *Size    `json:"size,omitempty"`
}

// Environment describes a machine, and the versions of what was measured on it.
type Environment struct {
	Date       time.Time `json:"date"`
	Commit     string    `json:"commit"`
	Kubernetes string    `json:"kubernetes"`
	Go         string    `json:"go"`
	Kernel     string    `json:"kernel"`
	Processor  string    `json:"processor"`
	CPUs       int       `json:"cpus"`
	MemoryGiB  float64   `json:"memoryGiB"`
	// Busy is how many processors were not idle right before the part began, on average. More than a few tenths means
	// that other work has affected all times.
	Busy float64 `json:"busy"`
}

// Starts are the times that single Pods took from their creation until their containers ran, by the names of variants.
type Starts struct {
	Variants []Variant `json:"variants"`
	// Timelines are of a typical Pod and of the slowest Pod with a fresh claim.
	Timelines []Timeline `json:"timelines"`
	// Writes are the requests that changed something for the Pods of each variant.
	Writes []Writes `json:"writes"`
}

// Variant is a kind of Pod, and how its starts went.
type Variant struct {
	Name string `json:"name"`
	// Milliseconds are the durations of its starts, in the order in which they were measured.
	Milliseconds []float64 `json:"milliseconds"`
	// Races are the numbers of those starts in Milliseconds at which the node authorizer did not know yet that the Pod
	// needs its claim, so that the kubelet failed to mount it.
	Races []int `json:"races"`
}

// Timeline is what happened until the container of a Pod ran, in order.
type Timeline struct {
	Name  string `json:"name"`
	Steps []Step `json:"steps"`
}

// Step is one event in the start of a Pod, in milliseconds since the Pod's creation.
type Step struct {
	What         string  `json:"what"`
	Milliseconds float64 `json:"milliseconds"`
}

// Writes are the numbers of requests that create, change or delete objects, for a number of Pods.
type Writes struct {
	Variant string  `json:"variant"`
	Pods    int     `json:"pods"`
	Counts  []Write `json:"counts"`
}

// Write is the number of requests of one component for one kind of object.
type Write struct {
	Component string `json:"component"`
	// Verb is the verb of the request, followed by "refused" if it had no effect because of a conflict.
	Verb string `json:"verb"`
	// Resource is the resource, with a slash and the subresource if there is one.
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}

// Bursts are starts of many Pods at once on one node.
type Bursts struct {
	Pods int `json:"pods"`
	// Variants have the time until the last Pod ran, for each burst. Races are numbers of Pods here.
	Variants []Burst `json:"variants"`
	// Agent is the memory of the node agent of that node after all bursts, in which it has published the volumes of
	// Pods Pods at once; nil if it was not measured.
	Agent *Memory `json:"agent,omitempty"`
}

// Burst is a kind of Pod of which many started at once, several times.
type Burst struct {
	Name string `json:"name"`
	// Last are the times until the last Pod ran, and All the times of all Pods, in milliseconds.
	Last []float64 `json:"last"`
	All  []float64 `json:"all"`
	// Races is the number of Pods that the node authorizer made wait.
	Races int `json:"races"`
	// Processor is the CPU time by component in seconds, summed over all bursts.
	Processor map[string]float64 `json:"processor"`
	Writes    Writes             `json:"writes"`
}

// Updates are the times from a change of the class until the file in the Pod has it.
type Updates struct {
	Milliseconds []float64 `json:"milliseconds"`
}

// Size is how the operator works with a number of Listeners.
type Size struct {
	Listeners int `json:"listeners"`
	Nodes     int `json:"nodes"`
	// New is the first start of the operator, with new Listeners, and Again the next one.
	New   Run `json:"new"`
	Again Run `json:"again"`
}

// Run is one run of the operator, from its start until it is idle.
type Run struct {
	// New is the number of Listeners without a Service at the start.
	New int `json:"new"`
	// Seconds is the time from the start of the process until it was idle, and Processor the CPU time that it used, in
	// seconds.
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor"`
	Memory
	// Requests are the numbers of its requests by verb. Requests for events are counted as "events".
	Requests map[string]int `json:"requests"`
}

// Memory is the memory of a process, in bytes, as far as it is in RAM.
type Memory struct {
	// Peak and Resident are its largest and its last size.
	Peak     int64 `json:"peak"`
	Resident int64 `json:"resident"`
	// File is the part of Resident that has pages of files, mostly of the program itself, which the kernel can drop and
	// read again. 0 if it was not measured.
	File int64 `json:"file,omitempty"`
}

// Writes returns the number of requests that change something, except for events.
func (r Run) Writes() int {
	return r.Requests["create"] + r.Requests["patch"] + r.Requests["update"] + r.Requests["delete"]
}

// Store keeps parts in a directory.
type Store string

func (s Store) path(name string) string { return filepath.Join(string(s), name+".json") }

// Load returns a part, or nil if it is not there.
func (s Store) Load(name string) (*Part, error) {
	raw, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a part that was not measured yet is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading a result: %w", err)
	}
	var part Part
	if err := json.Unmarshal(raw, &part); err != nil {
		return nil, fmt.Errorf("parsing the result %s: %w", s.path(name), err)
	}
	return &part, nil
}

// Save writes a part. An interrupt leaves the old file or the new one.
func (s Store) Save(part *Part) error {
	raw, err := json.Marshal(part)
	if err != nil {
		return fmt.Errorf("encoding the result of %s: %w", part.Name, err)
	}
	if err := os.MkdirAll(string(s), 0o750); err != nil {
		return fmt.Errorf("creating the directory of results: %w", err)
	}
	temp := s.path("." + part.Name)
	if err := os.WriteFile(temp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing a result: %w", err)
	}
	if err := os.Rename(temp, s.path(part.Name)); err != nil {
		return fmt.Errorf("writing a result: %w", err)
	}
	return nil
}

// Quantile returns the value below or at which a part q of all values are, by the nearest rank; 0 if there are none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}
