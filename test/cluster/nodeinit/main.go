// Command nodeinit is the first process of a simulated machine of the test cluster: it is process 1 of that machine's
// process namespace, prepares its mount namespace, and then only reaps orphans. When it is killed, the kernel kills all
// other processes in the namespace, as a power cut would. It must not start programs.
//
// Package cluster starts it in its new namespaces, and finds it by its command line.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/listener-operator/listener-operator/test/cluster/nodeinit/spec"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: nodeinit SPEC-FILE")
		os.Exit(2)
	}
	// Only SIGKILL from outside stops the machine.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGCHLD)
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	if err := prepare(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "preparing the machine: %v\n", err)
		os.Exit(1)
	}
	for range signals {
		reap()
	}
}

// prepare sets the machine up according to its specification, and reports that on the inherited file descriptor.
func prepare(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the specification: %w", err)
	}
	var machine spec.Machine
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&machine); err != nil {
		return fmt.Errorf("parsing the specification: %w", err)
	}
	if machine.Mounts != nil {
		if err := mount(machine.Mounts); err != nil {
			return err
		}
	}
	if machine.Hostname != "" {
		if err := unix.Sethostname([]byte(machine.Hostname)); err != nil {
			return fmt.Errorf("setting the host name: %w", err)
		}
	}
	for _, sysctl := range machine.Sysctls {
		if err := os.WriteFile(sysctl.Path, []byte(sysctl.Value), 0); err != nil {
			return fmt.Errorf("setting a kernel parameter: %w", err)
		}
	}
	ready := os.NewFile(spec.ReadyFD, "ready")
	_, err = ready.WriteString(spec.Ready)
	return errors.Join(err, ready.Close())
}

// mount mounts the machine's own directories and its own /proc, invisible to the host.
func mount(mounts []spec.Mount) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("detaching mounts from the host: %w", err)
	}
	for _, m := range mounts {
		if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.Source, m.Target, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// Volumes with mount propagation need shared mounts between the kubelet and the containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts within the machine: %w", err)
	}
	return nil
}

// reap reaps every child that has exited.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
