// Command permissions writes the permissions for the kinds of the backends into config/rbac/operator.yaml, where the
// comments that enclose them are. Package internal/exposure/backends says which kinds these are.
//
//	go -C hack run ./permissions -C config/rbac/operator.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/listener-operator/listener-operator/hack/command"
	"github.com/listener-operator/listener-operator/internal/exposure/backends"
)

// The comments before and after the permissions.
const (
	begin = "  # Generated from internal/exposure/backends by make generate:\n"
	end   = "  # End of what is generated.\n"
)

func main() {
	file := flag.String("C", "config/rbac/operator.yaml", "`file` with the role, from the root of the repository")
	flag.Parse()
	log.SetLogger(logr.Discard()) // controller-runtime complains about a missing logger
	command.Main(func(context.Context) error { return run(*file) })
}

func run(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(raw), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return errors.New(file + " does not have the comments that enclose the permissions")
	}
	return os.WriteFile(file, []byte(before+begin+permissions(backends.All())+end+after), 0o600)
}

// permissions returns the rules for the kinds of the backends, and for finding out whether the cluster serves them.
func permissions(list backends.List) string {
	var b strings.Builder
	generated, read := list.Permissions()
	rules(&b, `
  # Objects of Listeners whose class exposes them so. All of each kind are watched, to notice when one that a Listener
  # waits for is deleted. Those of removed ports, and of a class that exposes its Listeners otherwise now, are deleted.
`, generated)
	rules(&b, `
  # What administrators own, and these objects refer to.
`, read)
	var crds, services []string
	for _, kind := range list.OptionalKinds() {
		if !kind.BuiltIn {
			crds = append(crds, kind.Resource+"."+kind.Group)
		}
		if kind.Aggregated {
			services = append(services, kind.Version+"."+kind.Group)
		}
	}
	watch := []string{"list", "watch"}
	rules(&b, `
  # Whether the cluster serves the kinds (internal/platform). Each CRD is watched by its name; other CRDs are not read.
`, []rbacv1.PolicyRule{{APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"}, ResourceNames: crds, Verbs: watch}})
	rules(&b, `
  # On some platforms, a separate API server serves them.
`, []rbacv1.PolicyRule{{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, ResourceNames: services, Verbs: watch}})
	return b.String()
}

// rules writes rules after a comment.
func rules(b *strings.Builder, comment string, all []rbacv1.PolicyRule) {
	b.WriteString(strings.TrimPrefix(comment, "\n"))
	for _, rule := range all {
		fmt.Fprintf(b, "  - apiGroups: [%s]\n    resources: [%s]\n", strings.Join(rule.APIGroups, ", "), strings.Join(rule.Resources, ", "))
		if len(rule.ResourceNames) > 0 {
			fmt.Fprintf(b, "    resourceNames:\n      - %s\n", strings.Join(rule.ResourceNames, "\n      - "))
		}
		fmt.Fprintf(b, "    verbs: [%s]\n", strings.Join(rule.Verbs, ", "))
	}
}
