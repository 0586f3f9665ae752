#!/usr/bin/env bash
# Uninstalls the operator completely: first the objects that it installed, then the operator, then its CRDs. It refuses
# while volumes exist, because their Pods could not terminate without the node agent, and while objects of users exist
# that would be deleted with the CRDs.
set -euo pipefail

kubectl=${KUBECTL:-kubectl}
driver=listeners.stackable.tech
refused=

# refuse_while prints a message and a list of objects, if there are any.
refuse_while() { [ -z "$2" ] || { printf 'error: %s\n%s\n' "$1" "$2" >&2; refused=1; }; }

# serves reports whether the cluster has a CRD.
serves() { $kubectl get customresourcedefinition "$1" >/dev/null 2>&1; }

claims=$($kubectl get persistentvolumes -o jsonpath="{range .items[?(@.spec.csi.driver=='$driver')]}{.spec.claimRef.namespace}/{.spec.claimRef.name}{'\n'}{end}")
refuse_while "delete these claims with listener volumes, and the Pods that mount them, first:" "$claims"

if serves listeners.$driver; then
  listeners=$($kubectl get listeners.$driver -A -o jsonpath="{range .items[*]}{.metadata.namespace}/{.metadata.name}{'\n'}{end}")
  refuse_while "delete these Listeners first; they, and the addresses of their Services, would be deleted with the CRD:" "$listeners"
fi

if serves listenerclasses.$driver; then
  # Those of a preset, which only the operator has written, are created again with it.
  classes=$($kubectl get listenerclasses.$driver --show-managed-fields \
    -o jsonpath="{range .items[*]}{.metadata.name}{range .metadata.managedFields[*]} {.manager}{end}{'\n'}{end}" |
    awk '{ for (i = 2; i <= NF; i++) if ($i != "listener-operator") { print $1; next } }')
  refuse_while "save these ListenerClasses that administrators have written, and delete them when no Listener uses them; they would be deleted with the CRD:" "$classes"
fi
[ -z "$refused" ] || exit 1

authorities=$($kubectl get secret listener-operator-certificate-authorities --namespace listener-operator --ignore-not-found -o name)
[ -z "$authorities" ] || echo "warning: the certificate authorities that TLS clients trust (Secret listener-operator-certificate-authorities) are deleted with the namespace, and a new installation has others, unless you create the Secret before it from a copy" >&2

if serves listeneroperators.listener-operator.dev; then
  # A finalizer delays the deletion until the operator has removed everything that it installed.
  if ! $kubectl delete listeneroperators.listener-operator.dev cluster --ignore-not-found --timeout=120s; then
    echo "error: ListenerOperator cluster still exists; only a running operator can remove what it installed. Its conditions:" >&2
    $kubectl get listeneroperators.listener-operator.dev cluster \
      -o jsonpath="{range .status.conditions[*]}{.type}={.status}: {.message}{'\n'}{end}" >&2
    $kubectl --namespace listener-operator get deployments >&2
    exit 1
  fi
fi
# Without the CRD of its parameter, the policy would stop all Pods of namespaces that have opted in.
if $kubectl api-resources --api-group=admissionregistration.k8s.io -o name | grep ^mutatingadmissionpolicies >/dev/null; then
  for kind in mutating validating; do
    $kubectl delete --ignore-not-found ${kind}admissionpolicy,${kind}admissionpolicybinding listener-operator-injection
  done
fi
go tool -modfile=hack/tools/dev/go.mod kustomize build config/default |
  $kubectl delete --ignore-not-found --timeout=120s -f -
