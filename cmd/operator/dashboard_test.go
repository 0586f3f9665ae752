package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/listener-operator/listener-operator/internal/testutil/apiserver"
	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// Each metric in the dashboard, and each of the labels that its query names, is in the operator's metrics, or the query
// would show nothing for ever.
func TestEveryQueryOfTheDashboardHasMetrics(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "dashboard", "grafana-dashboard.json"))
	check.Must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	check.Must(t, json.Unmarshal(raw, &dashboard))
	if len(dashboard.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	certificate, err := newMetricsCertificate("", "operators")
	check.Must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(certificate.expiry())
	h := newHostile(t)
	NewWithT(t).Expect(h.Create(t.Context(), h.listener("web", h.class))).To(Succeed())
	NewWithT(t).Eventually(func() error {
		labels, err := labelsOfMetrics(prometheus.Gatherers{registry, ctrlmetrics.Registry})
		if err != nil {
			return err
		}
		var problems []error
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				if strings.Contains(target.Expr, `job="listener-node-agent"`) {
					continue // TestEveryQueryOfTheDashboardHasAResult asks agents
				}
				if err := checkQuery(target.Expr, labels); err != nil {
					problems = append(problems, fmt.Errorf("panel %s: %w", panel.Title, err))
				}
			}
		}
		return errors.Join(problems...)
	}).WithTimeout(apiserver.Timeout).Should(Succeed())
}

// labelsOfMetrics returns the labels of each metric that has a series, by the names that queries use.
func labelsOfMetrics(gatherer prometheus.Gatherer) (map[string]map[string]bool, error) {
	families, err := gatherer.Gather()
	if err != nil {
		return nil, err
	}
	labels := map[string]map[string]bool{}
	for _, family := range families {
		series := []string{family.GetName()}
		if family.GetType().String() == "HISTOGRAM" {
			series = []string{family.GetName() + "_bucket", family.GetName() + "_count", family.GetName() + "_sum"}
		}
		for _, name := range series {
			// Prometheus adds these.
			labels[name] = map[string]bool{"job": true, "namespace": true, "pod": true, "le": strings.HasSuffix(name, "_bucket")}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					labels[name][l.GetName()] = true
				}
			}
		}
	}
	return labels, nil
}

var (
	// selectors are a metric with its labels in braces.
	selectors  = regexp.MustCompile(`([a-z][a-z0-9_]+)\{([^}]*)\}`)
	matchers   = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	aggregates = regexp.MustCompile(`by \(([^)]*)\)`)
	// onDemand have a series only while there is something to count.
	onDemand = map[string][]string{
		"listener_operator_lost_volumes":                       {"node"},
		"listener_operator_port_range_left":                    {"class", "kind"},
		"listener_operator_port_range_size":                    {"class", "kind"},
		"listener_operator_load_balancer_addresses":            {"class"},
		"listener_operator_load_balancer_longest_wait_seconds": {"class"},
	}
)

// checkQuery returns an error if a query selects or groups by what its metrics do not have.
func checkQuery(query string, labels map[string]map[string]bool) error {
	found := selectors.FindAllStringSubmatch(query, -1)
	if len(found) == 0 {
		return fmt.Errorf("no metric in %s", query)
	}
	for _, selector := range found {
		has := labels[selector[1]]
		if wanted, ok := onDemand[selector[1]]; ok && has == nil {
			has = map[string]bool{"job": true, "namespace": true}
			for _, l := range wanted {
				has[l] = true
			}
		}
		if has == nil {
			return fmt.Errorf("the operator has no metric %s", selector[1])
		}
		var used []string
		for _, m := range matchers.FindAllStringSubmatch(selector[2], -1) {
			used = append(used, m[1])
		}
		for _, a := range aggregates.FindAllStringSubmatch(query, -1) {
			used = append(used, strings.Split(a[1], ", ")...)
		}
		for _, l := range used {
			if !has[l] {
				return fmt.Errorf("metric %s has no label %s", selector[1], l)
			}
		}
	}
	return nil
}
