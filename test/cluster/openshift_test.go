package cluster

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/internal/testutil/check"
)

func TestOpenShiftsConfigurationKeepsItsAdmissionAndGetsTheFlags(t *testing.T) {
	const defaults = `
apiVersion: kubecontrolplane.config.openshift.io/v1
kind: KubeAPIServerConfig
servicesSubnet: 10.3.0.0/16
admission:
  pluginConfig:
    PodSecurity: {configuration: {kind: PodSecurityConfiguration}}
apiServerArguments:
  authorization-mode: [Scope, SystemMasters, RBAC, Node]
  enable-admission-plugins: [NodeRestriction, config.openshift.io/ValidateImage, security.openshift.io/SecurityContextConstraint]
  event-ttl: [3h]
  etcd-cafile: [/etc/kubernetes/ca.crt]
`
	raw, err := completeOpenShiftConfig([]byte(defaults), []string{
		"--etcd-cafile=/pki/ca.crt", "--service-cluster-ip-range=10.1.0.0/16,fd00::/112", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=X",
	})
	check.Must(t, err)
	var all map[string]any
	var config openShiftConfig
	check.Must(t, yaml.Unmarshal(raw, &all))
	if err := yaml.UnmarshalStrict(raw, &config); err == nil {
		t.Error("the rest of the configuration is lost")
	}
	if all["kind"] != "KubeAPIServerConfig" || all["servicesSubnet"] != "10.3.0.0/16" {
		t.Errorf("the configuration is %v", all)
	}
	for name, want := range map[string][]string{
		"authorization-mode":       {"Scope", "SystemMasters", "RBAC", "Node"},
		"enable-admission-plugins": {"NodeRestriction", "security.openshift.io/SecurityContextConstraint"},
		"event-ttl":                {"3h"},
		"etcd-cafile":              {"/pki/ca.crt"},
		"service-cluster-ip-range": {"10.1.0.0/16,fd00::/112"},
	} {
		if got := config.APIServerArguments[name]; !slices.Equal(got, want) {
			t.Errorf("--%s is %q, want %q", name, got, want)
		}
	}
	if disabled := config.APIServerArguments["disable-admission-plugins"]; !slices.Contains(disabled, "config.openshift.io/ValidateImage") {
		t.Errorf("the disabled plugins are %q", disabled)
	}
	for _, plugin := range []string{"PodSecurity", "route.openshift.io/RouteHostAssignment"} {
		if config.Admission.PluginConfig[plugin] == nil {
			t.Errorf("plugin %s is not configured", plugin)
		}
	}
}
