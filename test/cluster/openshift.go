package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/listener-operator/listener-operator/test/cluster/tools"
)

// OpenShiftDomain is the domain of the hosts that OpenShift's API server chooses for Routes.
const OpenShiftDomain = "apps.example.test"

// openShiftTools is the key of the directory of OpenShift's programs in the state.
const openShiftTools = "openshift"

// The assets of MicroShift that a cluster uses. Patterns are relative to the directory of assets.
var (
	openShiftAPIs = []string{
		"crd/*securitycontextconstraints.crd.yaml", "crd/*rangeallocations.crd.yaml", "crd/route.crd.yaml", "core/securityv1-local-apiservice.yaml",
	}
	openShiftObjects = []string{
		"controllers/openshift-default-scc-manager/*.yaml",
		"core/namespace-openshift-infra.yaml", "core/priority-class-openshift-user-critical.yaml",
		"controllers/kube-controller-manager/namespace-openshift-kube-controller-manager.yaml",
		"controllers/cluster-policy-controller/*.yaml",
		"components/openshift-router/namespace.yaml", "components/openshift-router/service-account.yaml",
		"components/openshift-router/cluster-role-aggregate-*.yaml",
	}
)

// OpenShift reports whether the cluster runs OpenShift's API server.
func (c *Cluster) OpenShift() bool { return c.state.MicroShift != "" }

// ensureOpenShiftPrograms builds OpenShift's programs, and selects the version of Kubernetes that they belong to.
func (c *Cluster) ensureOpenShiftPrograms(ctx context.Context) error {
	if !c.OpenShift() {
		return nil
	}
	programs, err := tools.OpenShift(ctx, c.state.MicroShift)
	if err != nil {
		return err
	}
	c.state.Tools[openShiftTools], c.kubernetes = programs.Dir, programs.Kubernetes
	return nil
}

// openShiftConfig is the part of the configuration of OpenShift's API server that is changed here.
type openShiftConfig struct {
	APIServerArguments map[string][]string `json:"apiServerArguments"`
	Admission          struct {
		PluginConfig map[string]any `json:"pluginConfig"`
	} `json:"admission"`
}

// openShiftConfigFile is the path of the configuration of OpenShift's API server.
func (c *Cluster) openShiftConfigFile() string {
	return filepath.Join(c.control().dir, "openshift-apiserver.yaml")
}

// writeOpenShiftConfig writes the configuration of OpenShift's API server: the platform's, with the flags of this
// cluster.
func (c *Cluster) writeOpenShiftConfig() error {
	if !c.OpenShift() {
		return nil
	}
	defaults, err := os.ReadFile(filepath.Join(c.state.MicroShift, "assets/controllers/kube-apiserver/defaultconfig.yaml"))
	if err != nil {
		return fmt.Errorf("reading the configuration of OpenShift's API server: %w", err)
	}
	config, err := completeOpenShiftConfig(defaults, c.apiServerFlags())
	if err != nil {
		return fmt.Errorf("completing the configuration of OpenShift's API server: %w", err)
	}
	if err := os.WriteFile(c.openShiftConfigFile(), config, 0o644); err != nil {
		return fmt.Errorf("writing the configuration of OpenShift's API server: %w", err)
	}
	return nil
}

// completeOpenShiftConfig adds flags to the platform's configuration. It keeps what the platform configures about
// authorization and admission.
func completeOpenShiftConfig(defaults []byte, flags []string) ([]byte, error) {
	var all map[string]any
	var config openShiftConfig
	if err := errors.Join(yaml.Unmarshal(defaults, &all), yaml.Unmarshal(defaults, &config)); err != nil {
		return nil, fmt.Errorf("parsing it: %w", err)
	}
	arguments := config.APIServerArguments
	for _, flag := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if name != authorizationFlag && name != admissionFlag {
			arguments[name] = []string{value}
		}
	}
	arguments["shutdown-delay-duration"] = []string{"0s"}
	enabled, disabled := servedPlugins(arguments[admissionFlag])
	arguments[admissionFlag], arguments["disable-admission-plugins"] = enabled, disabled
	config.Admission.PluginConfig["route.openshift.io/RouteHostAssignment"] = map[string]any{"configuration": map[string]any{
		"apiVersion": "route.openshift.io/v1", "kind": "HostAssignmentAdmissionConfig", "domain": OpenShiftDomain,
	}}
	all["apiServerArguments"], all["admission"] = arguments, config.Admission
	return yaml.Marshal(all)
}

// servedPlugins separates the platform's admission plugins from those that read objects of APIs that the cluster does
// not serve. Some of these are on by default, so they have to be disabled.
func servedPlugins(plugins []string) (enabled, disabled []string) {
	unserved := []string{"authorization.openshift.io", "autoscaling.openshift.io", "config.openshift.io", "image.openshift.io", "quota.openshift.io"}
	disabled = []string{
		"authorization.openshift.io/RestrictSubjectBindings", "authorization.openshift.io/ValidateRoleBindingRestriction",
		"autoscaling.openshift.io/ManagementCPUsOverride",
	}
	for _, plugin := range plugins {
		group, _, _ := strings.Cut(plugin, "/")
		switch {
		case !slices.Contains(unserved, group):
			enabled = append(enabled, plugin)
		case !slices.Contains(disabled, plugin):
			disabled = append(disabled, plugin)
		}
	}
	return enabled, disabled
}

// policyController runs OpenShift's controllers for the users and the Pod security standards of namespaces.
func (c *Cluster) policyController() daemon {
	return daemon{"cluster-policy-controller", []string{
		c.tool(openShiftTools, "cluster-policy-controller"), "--kubeconfig=" + c.kubeconfigOf("admin"),
	}}
}

// serviceCA publishes the authority of serving certificates to all namespaces.
func (c *Cluster) serviceCA() daemon {
	return daemon{"serviceca", []string{
		filepath.Join(c.binDir(), "serviceca"), "--kubeconfig=" + c.kubeconfigOf("admin"), "--authority=" + c.pkiFile("ca.crt"),
	}}
}

// startOpenShift installs OpenShift's APIs and the objects that it comes with, and starts its controllers. Until then,
// no Pod can be created.
func (c *Cluster) startOpenShift(ctx context.Context) error {
	if !c.OpenShift() {
		return nil
	}
	if _, ok, err := c.control().find(c.policyController()); ok || err != nil {
		return err
	}
	for _, patterns := range [][]string{openShiftAPIs, openShiftObjects} {
		manifests, err := c.readAssets(patterns)
		if err != nil {
			return fmt.Errorf("reading MicroShift's assets: %w", err)
		}
		if err := c.RunKubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"); err != nil {
			return fmt.Errorf("installing OpenShift's objects: %w", err)
		}
		if err := c.RunKubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
			return fmt.Errorf("waiting for OpenShift's APIs: %w", err)
		}
	}
	return c.control().run(c.serviceCA(), c.policyController())
}

// readAssets returns the assets of MicroShift that match the patterns. Each pattern has to match one.
func (c *Cluster) readAssets(patterns []string) ([]byte, error) {
	var all bytes.Buffer
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(c.state.MicroShift, "assets", filepath.FromSlash(pattern)))
		if err == nil && len(files) == 0 {
			err = os.ErrNotExist
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&all, "---\n%s\n", content)
		}
	}
	return all.Bytes(), nil
}
