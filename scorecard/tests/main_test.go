package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestStateDependsOnTheKindOfError(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want v1alpha3.State
	}{
		"no error":        {nil, v1alpha3.PassState},
		"failure":         {failf("no address"), v1alpha3.FailState},
		"wrapped failure": {fmt.Errorf("in Pod x: %w", failf("no address")), v1alpha3.FailState},
		"other error":     {errors.New("forbidden"), v1alpha3.ErrorState},
		"both":            {errors.Join(errors.New("forbidden"), failf("no address")), v1alpha3.FailState},
	} {
		t.Run(name, func(t *testing.T) {
			got := result("x", &environment{}, tc.err).Results
			if len(got) != 1 || got[0].Name != "x" || got[0].State != tc.want {
				t.Errorf("got %+v, want the state %s", got, tc.want)
			}
			if (tc.err == nil) != (len(got[0].Errors) == 0) {
				t.Errorf("errors %q of %v", got[0].Errors, tc.err)
			}
		})
	}
}

func TestResultContainsEachError(t *testing.T) {
	e := &environment{}
	e.logf("checking %s", "x")
	got := result("x", e, errors.Join(failf("a"), failf("b"))).Results[0]
	check.Equal(t, "errors", []string{"a", "b"}, got.Errors)
	if !strings.HasSuffix(got.Log, " checking x\n") {
		t.Errorf("log is %q", got.Log)
	}
}

func TestPanicIsReportedAsError(t *testing.T) {
	e := &environment{}
	err := protect(t.Context(), e, func(context.Context, *environment) error { panic("boom") })
	if got := result("x", e, err).Results[0]; got.State != v1alpha3.ErrorState || !strings.Contains(got.Errors[0], "boom") {
		t.Errorf("got %+v", got)
	}
}

func TestInvalidRunIsReportedAsError(t *testing.T) {
	for name, args := range map[string][]string{"no test": nil, "an unknown test": {"x"}, "no bundle": {"bundle-is-installable"}} {
		t.Run(name, func(t *testing.T) {
			output, err := json.Marshal(status(t.Context(), args))
			check.Must(t, err)
			var got v1alpha3.TestStatus
			if err := json.Unmarshal(output, &got); err != nil || len(got.Results) != 1 || got.Results[0].State != v1alpha3.ErrorState {
				t.Errorf("got %s (%v), want one result with an error", output, err)
			}
		})
	}
}

// stages returns the operator's own tests in config.yaml, by stage.
func stages(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile("../config.yaml")
	check.Must(t, err)
	var config v1alpha3.Configuration
	check.Must(t, yaml.Unmarshal(data, &config))
	var all [][]string
	for _, stage := range config.Stages {
		var own []string
		for _, test := range stage.Tests {
			if test.Labels["suite"] == "listener-operator" {
				own = append(own, test.Entrypoint[1])
			}
		}
		all = append(all, own)
	}
	return all
}

func TestScorecardRunsEveryTest(t *testing.T) {
	want := slices.Sorted(maps.Keys(tests))
	got := slices.Sorted(slices.Values(slices.Concat(stages(t)...)))
	check.Equal(t, "tests in scorecard/config.yaml", want, got)
}

func TestUninstallRunsLast(t *testing.T) {
	all := stages(t)
	last := all[len(all)-1]
	if last[len(last)-1] != "uninstall-leaves-nothing" {
		t.Errorf("the tests run in the order %v", all)
	}
}
