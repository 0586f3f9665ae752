package command_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/check"
	"github.com/listener-operator/listener-operator/cmd/kubectl-listener/plugin/command"
)

// The operator repeats in events of Pods what a Listener waits for.
func TestStepsSayEachTextOnce(t *testing.T) {
	const waits, denied = "no load balancer has assigned an address to the Service", "selects the Pod; clients outside may be denied by it"
	r := &check.Report{}
	r.Add(check.Finding{Kind: "Pod", Name: "web-0"}.Failed("", "is Pending: volume listener waits: "+waits, "Look at it.").Symptom())
	r.Add(check.Finding{Kind: "Service", Name: "web"}.Failed("WaitingForLoadBalancer", waits, "Ask an administrator."))
	r.Add(check.Finding{Kind: "NetworkPolicy", Name: "a"}.Warning("", denied))
	r.Add(check.Finding{Kind: "NetworkPolicy", Name: "b"}.Warning("", denied))
	r.Conclude()
	var out bytes.Buffer
	command.WriteSteps(&out, r)
	for _, want := range []string{
		"is Pending: volume listener waits: see below\n", " WaitingForLoadBalancer: see below\n", "NetworkPolicy a   " + denied, "NetworkPolicy b   " + denied, "\n  WaitingForLoadBalancer: " + waits + "\n  What to do: Ask",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), waits); n != 1 {
		t.Errorf("%q is said %d times:\n%s", waits, n, out.String())
	}
}
