// Package memory reads how much memory a process uses.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/listener-operator/listener-operator/test/bench/result"
)

// Of returns the memory of a process.
func Of(pid int) (result.Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return result.Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parse(string(status))
}

func parse(status string) (result.Memory, error) {
	var m result.Memory
	values := map[string]*int64{"VmHWM:": &m.Peak, "VmRSS:": &m.Resident, "RssFile:": &m.File}
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) != 3 || values[fields[0]] == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return result.Memory{}, fmt.Errorf("parsing %q: %w", line, err)
		}
		*values[fields[0]] = kilobytes << 10
		delete(values, fields[0])
	}
	if len(values) > 0 {
		return result.Memory{}, fmt.Errorf("the status of the process has no memory: %q", status)
	}
	return m, nil
}
