package installation

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/listener-operator/listener-operator/api/operator/v1alpha1"
	"github.com/listener-operator/listener-operator/internal/names"
)

// securityContextConstraints let the node agents run on OpenShift: they allow what privileges lists, and nothing else.
// The DaemonSet names them, and the ClusterRole of the agents' ServiceAccount permits it to use them, so they name no
// users and groups.
//
// Null and empty lists have a meaning here, and a typed object would not send them.
func securityContextConstraints(*operatorv1alpha1.ListenerOperator, Settings) (any, error) {
	reasons := make([]string, 0, len(privileges()))
	for _, p := range privileges() {
		reasons = append(reasons, p.what+": "+p.why)
	}
	allowed := make([]any, 0, len(addedCapabilities()))
	for _, capability := range addedCapabilities() {
		allowed = append(allowed, string(capability))
	}
	scc := &unstructured.Unstructured{Object: map[string]any{
		// What privileges lists.
		"allowHostDirVolumePlugin": true,
		"volumes":                  []any{"hostPath", "projected"}, // projected: the agent's own token
		"runAsUser":                map[string]any{"type": "MustRunAs", "uid": int64(0)},
		"allowedCapabilities":      allowed,
		"seLinuxContext": map[string]any{
			"type": "MustRunAs", "seLinuxOptions": map[string]any{"type": seLinuxType, "level": seLinuxLevel},
		},
		// Required.
		"requiredDropCapabilities": []any{"ALL"},
		"readOnlyRootFilesystem":   true,
		"seccompProfiles":          []any{"runtime/default"},
		"fsGroup":                  map[string]any{"type": "MustRunAs"}, // in the range of the namespace, as for any Pod
		"supplementalGroups":       map[string]any{"type": "MustRunAs"},
		// Refused.
		"allowPrivilegedContainer":        false,
		"allowPrivilegeEscalation":        false,
		"defaultAllowPrivilegeEscalation": false,
		"allowHostNetwork":                false,
		"allowHostPorts":                  false,
		"allowHostPID":                    false,
		"allowHostIPC":                    false,
		"defaultAddCapabilities":          nil,
		"forbiddenSysctls":                []any{"*"},
		"priority":                        nil, // no preference over others: the DaemonSet names it
		"users":                           []any{},
		"groups":                          []any{},
	}}
	scc.SetGroupVersionKind(names.KindSecurityContextConstraints)
	scc.SetName(names.NodeAgent)
	scc.SetAnnotations(map[string]string{
		"kubernetes.io/description": "Lets the node agent of the listener operator run, and nothing else. What it allows, and why:\n" + strings.Join(reasons, "\n"),
	})
	return scc, nil
}
