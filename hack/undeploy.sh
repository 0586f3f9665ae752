#!/usr/bin/env bash
# Uninstalls the operator completely: first the objects that it installed, then the operator, then its CRDs. It refuses
# while volumes exist, because their Pods could not terminate without the node agent.
set -euo pipefail

kubectl=${KUBECTL:-kubectl}
driver=listeners.stackable.tech

volumes=$($kubectl get persistentvolumes -o jsonpath="{range .items[?(@.spec.csi.driver=='$driver')]}{.spec.claimRef.namespace}/{.spec.claimRef.name}{'\n'}{end}")
if [ -n "$volumes" ]; then
  echo "error: delete these claims with listener volumes, and the Pods that mount them, first:" >&2
  echo "$volumes" >&2
  exit 1
fi

if $kubectl get customresourcedefinition listeners.listeners.stackable.tech >/dev/null 2>&1; then
  listeners=$($kubectl get listeners.listeners.stackable.tech -A -o jsonpath="{range .items[*]}{.metadata.namespace}/{.metadata.name}{'\n'}{end}")
  if [ -n "$listeners" ]; then
    echo "error: delete these Listeners first; they, and the addresses of their Services, would be deleted with the CRD:" >&2
    echo "$listeners" >&2
    exit 1
  fi
fi

if $kubectl get customresourcedefinition listeneroperators.listener-operator.dev >/dev/null 2>&1; then
  # A finalizer delays the deletion until the operator has removed everything that it installed.
  if ! $kubectl delete listeneroperators.listener-operator.dev cluster --ignore-not-found --timeout=120s; then
    echo "error: ListenerOperator cluster still exists; only a running operator can remove what it installed. Its conditions:" >&2
    $kubectl get listeneroperators.listener-operator.dev cluster \
      -o jsonpath="{range .status.conditions[*]}{.type}={.status}: {.message}{'\n'}{end}" >&2
    $kubectl --namespace listener-operator get deployments >&2
    exit 1
  fi
fi
# The operator must not delete the policy that confines itself. The garbage collector may have deleted it already.
$kubectl delete --ignore-not-found --timeout=120s validatingadmissionpolicybinding/listener-operator validatingadmissionpolicy/listener-operator
go tool -modfile=hack/tools/dev/go.mod kustomize build config/default |
  $kubectl delete --ignore-not-found --timeout=120s -f -
