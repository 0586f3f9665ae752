package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/test/cluster"
)

func TestFlagsMayFollowArgumentsButAreLeftToCommands(t *testing.T) {
	for args, want := range map[string]struct{ name, arguments string }{
		"node --name x 1 ps aux":            {"x", "1 ps aux"},
		"node 1 --name x ps aux":            {"x", "1 ps aux"},
		"node 1 --name=x -- ps aux":         {"x", "1 ps aux"},
		"node 1 nsenter --name y":           {cluster.DefaultName, "1 nsenter --name y"},
		"node --name x 1 nsenter --name y":  {"x", "1 nsenter --name y"},
		"client --name x curl --name y":     {"x", "curl --name y"},
		"client curl --name y":              {cluster.DefaultName, "curl --name y"},
		"kubectl get pods --name y":         {cluster.DefaultName, "get pods --name y"},
		"stop-node 2 --name x":              {"x", "2"},
		"delete-node --name x 2":            {"x", "2"},
		"build-tools etcd --name x coredns": {"x", "etcd coredns"},
		"down --name x":                     {"x", ""},
	} {
		t.Run(args, func(t *testing.T) {
			c := command{stderr: io.Discard}
			fields := strings.Fields(args)
			arguments, err := c.parse(fields[0], fields[1:])
			if err != nil || c.name != want.name || !slices.Equal(arguments, strings.Fields(want.arguments)) {
				t.Errorf("cluster %q, arguments %q, error %v; want %+v", c.name, arguments, err, want)
			}
		})
	}
}

func TestAnUnknownFlagIsAnError(t *testing.T) {
	c := command{stderr: io.Discard}
	for _, args := range [][]string{{"--nodes", "3"}, {"1", "--unknown"}} {
		if _, err := c.parse("stop-node", args); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}
