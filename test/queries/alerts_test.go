package queries

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

// rule is an alerting rule.
type rule struct {
	Alert, Expr, For string
	Annotations      map[string]string
}

// rules returns those that the operator installs, by name, for the namespace "somewhere".
func rules(t *testing.T) map[string]rule {
	t.Helper()
	raw, err := os.ReadFile("../../controllers/nodeagent/installation/testdata/prometheusrule.yaml")
	check.Must(t, err)
	var object struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	check.Must(t, yaml.Unmarshal(raw, &object))
	all := map[string]rule{}
	for _, g := range object.Spec.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return all
}

// origin is when the series of tests begin.
var origin = time.Unix(1_800_000_000, 0)

// firing returns the labels of the alerts that fire at a time, if the rule is evaluated every minute.
func firing(t *testing.T, s *Store, r rule, at time.Time) []map[string]string {
	t.Helper()
	pending, err := model.ParseDuration(r.For)
	check.Must(t, err)
	var active map[string]map[string]string
	for now := at.Add(-time.Duration(pending)); !now.After(at); now = now.Add(time.Minute) {
		vector, err := s.Query(t.Context(), r.Expr, now)
		check.Must(t, err)
		current := map[string]map[string]string{}
		for _, one := range vector {
			if found := one.Metric.Map(); active == nil || active[one.Metric.String()] != nil {
				current[one.Metric.String()] = found
			}
		}
		active = current
	}
	var all []map[string]string
	for _, name := range slices.Sorted(maps.Keys(active)) {
		all = append(all, active[name])
	}
	return all
}

// values are the values of a series by minute. A negative value means that there is no sample.
type values map[string]func(minute int) float64

func constant(v float64) func(int) float64 { return func(int) float64 { return v } }

// since is a value from a minute on, and 0 before.
func since(start int, v float64) func(int) float64 {
	return func(minute int) float64 {
		if minute < start {
			return 0
		}
		return v
	}
}

// growing is a counter that grows every minute.
func growing(by float64) func(int) float64 {
	return func(minute int) float64 { return by * float64(minute) }
}

const (
	ofOperator = `job="listener-operator-metrics", namespace="somewhere"`
	ofAgent    = `job="listener-node-agent", namespace="somewhere", node="node-1"`
	mounts     = `listener_node_agent_mount_duration_seconds_count{` + ofAgent + `, code="`
)

// portRange returns the series of a range of node ports.
func portRange(class string, size float64, left func(minute int) float64) values {
	labels := ofOperator + `, class="` + class + `", kind="NodePort"`
	return values{`listener_operator_port_range_size{` + labels + `}`: constant(size), `listener_operator_port_range_left{` + labels + `}`: left}
}

// Two hours after the series begin, each alert fires, or does not.
func TestAlertsFireWhenSomebodyHasToAct(t *testing.T) {
	const end = 120
	tests := map[string]map[string]struct {
		series values
		want   []string // of each alert, "label=value" of those that its text shows; nil if it does not fire
	}{
		"ListenerOperatorDown": {
			"a replica responds":              {series: values{`up{` + ofOperator + `, pod="a"}`: constant(1), `up{` + ofOperator + `, pod="b"}`: constant(0)}},
			"no replica responds":             {series: values{`up{` + ofOperator + `, pod="a"}`: since(130, 1)}, want: []string{""}},
			"Prometheus finds no operator":    {want: []string{""}},
			"only node agents respond":        {series: values{`up{` + ofAgent + `}`: constant(1)}, want: []string{""}},
			"it has been down for a minute":   {series: values{`up{` + ofOperator + `, pod="a"}`: func(m int) float64 { return map[bool]float64{true: 1}[m < end-1] }}},
			"an operator in another one runs": {series: values{`up{job="listener-operator-metrics", namespace="other"}`: constant(1)}, want: []string{""}},
		},
		"ListenerNodeAgentsNotReady": {
			"all are ready": {series: values{`kube_daemonset_status_number_unavailable{namespace="somewhere", daemonset="listener-node-agent"}`: constant(0)}},
			"one is not":    {series: values{`kube_daemonset_status_number_unavailable{namespace="somewhere", daemonset="listener-node-agent"}`: since(100, 1)}, want: []string{""}},
			"a rollout":     {series: values{`kube_daemonset_status_number_unavailable{namespace="somewhere", daemonset="listener-node-agent"}`: since(110, 1)}},
			"of others":     {series: values{`kube_daemonset_status_number_unavailable{namespace="somewhere", daemonset="other"}`: constant(1)}},
		},
		"ListenerMountsFail": {
			"mounts succeed":        {series: values{mounts + `OK"}`: growing(3), mounts + `Unavailable"}`: constant(4)}},
			"one fails repeatedly":  {series: values{mounts + `OK"}`: growing(3), mounts + `Internal"}`: growing(0.5)}, want: []string{"code=Internal node=node-1"}},
			"a Pod waited shortly":  {series: values{mounts + `Unavailable"}`: since(60, 3)}},
			"Pods that are deleted": {series: values{mounts + `Canceled"}`: growing(1)}},
		},
		"ListenerOperatorDegraded": {
			"nothing is wrong":     {series: values{`listener_operator_condition{` + ofOperator + `, type="Degraded"}`: constant(0), `listener_operator_condition{` + ofOperator + `, type="Available"}`: constant(1)}},
			"a problem that lasts": {series: values{`listener_operator_condition{` + ofOperator + `, type="Degraded", pod="a"}`: since(100, 1)}, want: []string{""}},
			"a problem since now":  {series: values{`listener_operator_condition{` + ofOperator + `, type="Degraded"}`: since(115, 1)}},
		},
		"ListenerClaimsWaiting": {
			"none waits":              {series: values{`listener_operator_waiting_claims{` + ofOperator + `, reason="NoSuchClass"}`: constant(0)}},
			"for a class":             {series: values{`listener_operator_waiting_claims{` + ofOperator + `, reason="NoSuchClass"}`: since(90, 2)}, want: []string{"reason=NoSuchClass"}},
			"for their first Pod":     {series: values{`listener_operator_waiting_claims{` + ofOperator + `, reason="WaitForFirstConsumer"}`: constant(7)}},
			"after a new leader took": {series: values{`listener_operator_waiting_claims{` + ofOperator + `, reason="NoSuchClass", pod="a"}`: func(m int) float64 { return map[bool]float64{true: 2, false: -1}[m < 112] }, `listener_operator_waiting_claims{` + ofOperator + `, reason="NoSuchClass", pod="b"}`: func(m int) float64 { return map[bool]float64{true: 2, false: -1}[m >= 112] }}, want: []string{"reason=NoSuchClass"}},
		},
		"ListenersNotReady": {
			"all are ready":        {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="AddressesAssigned"}`: constant(9)}},
			"no load balancer":     {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="WaitingForLoadBalancer"}`: since(90, 1)}, want: []string{"class=c reason=WaitingForLoadBalancer"}},
			"no port is left":      {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="NodePortsExhausted"}`: constant(1)}}, // another alert
			"no Pod mounts them":   {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="WaitingForPods"}`: constant(1)}},
			"not yet reconciled":   {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason=""}`: constant(1)}},
			"a load balancer came": {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="WaitingForLoadBalancer"}`: func(m int) float64 { return map[bool]float64{true: 1, false: -1}[m < 110] }}},
		},
		"ListenerPortsExhausted": {
			"all have a port":         {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="AddressesAssigned"}`: constant(9)}},
			"no node port is left":    {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="NodePortsExhausted"}`: since(110, 2)}, want: []string{"class=c reason=NodePortsExhausted"}},
			"for another port":        {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="SharedPortsExhausted"}`: since(110, 1)}, want: []string{"class=c reason=SharedPortsExhausted"}},
			"one waited shortly":      {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="NodePortsExhausted"}`: since(117, 1)}},
			"a namespace has its own": {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="false", reason="PortLimitReached"}`: constant(1)}},
		},
		"ListenerPortsNearlyExhausted": {
			"a tenth is left":               {series: portRange("c", 100, constant(10))},
			"less is left":                  {series: portRange("c", 100, constant(9)), want: []string{"class=c kind=NodePort"}},
			"nothing is left":               {series: portRange("c", 2768, constant(0)), want: []string{"class=c kind=NodePort"}},
			"for a short time":              {series: portRange("c", 100, func(m int) float64 { return map[bool]float64{true: 50, false: 9}[m < 110] })},
			"a range that is used up":       {series: portRange("c", 19, constant(0))}, // often as large as needed
			"the smallest range that warns": {series: portRange("c", 20, constant(1)), want: []string{"class=c kind=NodePort"}},
			"a new leader": {series: values{
				`listener_operator_port_range_size{` + ofOperator + `, class="c", kind="SharedPort", pod="a"}`: func(m int) float64 { return map[bool]float64{true: 100, false: -1}[m < 112] },
				`listener_operator_port_range_left{` + ofOperator + `, class="c", kind="SharedPort", pod="a"}`: func(m int) float64 { return map[bool]float64{true: 3, false: -1}[m < 112] },
				`listener_operator_port_range_size{` + ofOperator + `, class="c", kind="SharedPort", pod="b"}`: func(m int) float64 { return map[bool]float64{true: 100, false: -1}[m >= 112] },
				`listener_operator_port_range_left{` + ofOperator + `, class="c", kind="SharedPort", pod="b"}`: func(m int) float64 { return map[bool]float64{true: 3, false: -1}[m >= 112] },
			}, want: []string{"class=c kind=SharedPort"}},
		},
		"ListenerNodesNotReady": {
			"the nodes are ready":         {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="AddressesAssigned"}`: constant(9)}},
			"a node is dead":              {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="NodesNotReady"}`: since(60, 2)}, want: []string{"class=c"}},
			"a node is not ready for now": {series: values{`listener_operator_listeners{` + ofOperator + `, class="c", ready="true", reason="NodesNotReady"}`: since(117, 2)}},
		},
		"ListenerVolumesLost": {
			"no node is lost":      {},
			"a node is lost":       {series: values{`listener_operator_lost_volumes{` + ofOperator + `, node="node-1"}`: since(80, 3)}, want: []string{"node=node-1"}},
			"a node that restarts": {series: values{`listener_operator_lost_volumes{` + ofOperator + `, node="node-1"}`: since(100, 3)}},
		},
		"ListenerPodsOutdated": {
			"no address changed":       {series: values{`listener_operator_outdated_pods{on_change="Restart",` + ofOperator + `}`: constant(0)}},
			"an eviction is refused":   {series: values{`listener_operator_outdated_pods{on_change="Restart",` + ofOperator + `}`: constant(2)}, want: []string{""}},
			"files are rewritten":      {series: values{`listener_operator_outdated_pods{on_change="Rewrite",` + ofOperator + `}`: constant(2)}},
			"Pods that are restarting": {series: values{`listener_operator_outdated_pods{on_change="Restart",` + ofOperator + `}`: since(80, 3)}},
		},
		"ListenerOperatorCertificateExpires": {
			"in a month":   {series: values{`listener_operator_metrics_certificate_expiry_timestamp_seconds{` + ofOperator + `}`: constant(float64(origin.AddDate(0, 0, 30).Unix()))}},
			"in two days":  {series: values{`listener_operator_metrics_certificate_expiry_timestamp_seconds{` + ofOperator + `}`: constant(float64(origin.AddDate(0, 0, 2).Unix()))}, want: []string{""}},
			"it is broken": {series: values{`listener_operator_metrics_certificate_expiry_timestamp_seconds{` + ofOperator + `}`: constant(0)}, want: []string{""}},
		},
		"ListenerCertificateRequestsWait": {
			"none waits":                      {series: values{`listener_operator_waiting_certificate_requests{` + ofOperator + `}`: constant(0)}},
			"one waits":                       {series: values{`listener_operator_waiting_certificate_requests{` + ofOperator + `}`: since(100, 1)}, want: []string{""}},
			"they waited for a moment":        {series: values{`listener_operator_waiting_certificate_requests{` + ofOperator + `}`: since(110, 3)}},
			"the leader knows, others do not": {series: values{`listener_operator_waiting_certificate_requests{` + ofOperator + `, pod="a"}`: constant(0), `listener_operator_waiting_certificate_requests{` + ofOperator + `, pod="b"}`: constant(2)}, want: []string{""}},
		},
		"ListenerCertificateAuthoritiesNotReplaced": {
			"there are none":      {series: values{`listener_operator_certificate_authority_expiry_timestamp_seconds{` + ofOperator + `}`: constant(0)}},
			"they are a year old": {series: values{`listener_operator_certificate_authority_expiry_timestamp_seconds{` + ofOperator + `}`: constant(float64(origin.AddDate(0, 0, 365).Unix()))}},
			"a month later":       {series: values{`listener_operator_certificate_authority_expiry_timestamp_seconds{` + ofOperator + `}`: constant(float64(origin.AddDate(0, 0, 330).Unix()))}, want: []string{""}},
			"of another replica, which does not lead": {series: values{
				`listener_operator_certificate_authority_expiry_timestamp_seconds{` + ofOperator + `, pod="a"}`: constant(float64(origin.AddDate(0, 0, 700).Unix())),
				`listener_operator_certificate_authority_expiry_timestamp_seconds{` + ofOperator + `, pod="b"}`: constant(0),
			}},
		},
		"ListenerOperatorReconcileErrors": {
			"no errors":          {series: values{`controller_runtime_reconcile_errors_total{` + ofOperator + `, controller="listener"}`: constant(5)}},
			"errors that go on":  {series: values{`controller_runtime_reconcile_errors_total{` + ofOperator + `, controller="listener"}`: growing(1)}, want: []string{"controller=listener"}},
			"of another program": {series: values{`controller_runtime_reconcile_errors_total{job="other", namespace="somewhere", controller="listener"}`: growing(1)}},
		},
		"ListenerOperatorRepairsKeepComing": {
			"an administrator tried something": {series: values{`listener_operator_drift_repairs_total{` + ofOperator + `, kind="DaemonSet", name="listener-node-agent"}`: since(100, 3)}},
			"another operator":                 {series: values{`listener_operator_drift_repairs_total{` + ofOperator + `, kind="DaemonSet", name="listener-node-agent"}`: growing(1)}, want: []string{"kind=DaemonSet name=listener-node-agent"}},
		},
	}
	all := rules(t)
	for name := range tests {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no alert %s", name)
		}
	}
	for name, r := range all {
		fires := map[bool]bool{}
		for what, tc := range tests[name] {
			fires[len(tc.want) > 0] = true
			t.Run(name+"/"+what, func(t *testing.T) {
				s := &Store{}
				for series, value := range tc.series {
					for minute := range end + 1 {
						if v := value(minute); v >= 0 {
							check.Must(t, s.Add(series, origin.Add(time.Duration(minute)*time.Minute), v))
						}
					}
				}
				var got []string
				for _, labels := range firing(t, s, r, origin.Add(end*time.Minute)) {
					got = append(got, shown(t, r, labels))
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("%d alerts %q, want %q", len(got), got, tc.want)
				}
			})
		}
		if !fires[true] || !fires[false] {
			t.Errorf("alert %s has no test in which it fires, or none in which it does not", name)
		}
	}
}

// shownLabel is a label in the text of an alert.
var shownLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// shown returns the labels of an alert that its text shows. Each must exist.
func shown(t *testing.T, r rule, labels map[string]string) string {
	t.Helper()
	pairs := map[string]bool{}
	for _, text := range r.Annotations {
		for _, match := range shownLabel.FindAllStringSubmatch(text, -1) {
			value, ok := labels[match[1]]
			if !ok {
				t.Errorf("the text shows the label %s, which the alert does not have: %v", match[1], labels)
			}
			pairs[fmt.Sprintf("%s=%s", match[1], value)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(pairs)), " ")
}
