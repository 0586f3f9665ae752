#!/usr/bin/env bash
# Removes the operator in the order that leaves nothing behind: first what it installed, then the operator, then its kinds. It refuses while
# volumes are in use, because their Pods could not terminate without the node agent.
set -euo pipefail

kubectl=${KUBECTL:-kubectl}
driver=listeners.stackable.tech

volumes=$($kubectl get persistentvolumes -o jsonpath="{range .items[?(@.spec.csi.driver=='$driver')]}{.spec.claimRef.namespace}/{.spec.claimRef.name}{'\n'}{end}")
if [ -n "$volumes" ]; then
  echo "error: these claims still have listener volumes; delete them, and the Pods that mount them, first:" >&2
  echo "$volumes" >&2
  exit 1
fi

if $kubectl get customresourcedefinition listeners.listeners.stackable.tech >/dev/null 2>&1; then
  listeners=$($kubectl get listeners.listeners.stackable.tech -A -o jsonpath="{range .items[*]}{.metadata.namespace}/{.metadata.name}{'\n'}{end}")
  if [ -n "$listeners" ]; then
    echo "error: these Listeners, and the addresses of their Services, would be lost with their kind; delete them first:" >&2
    echo "$listeners" >&2
    exit 1
  fi
fi

if $kubectl get customresourcedefinition listeneroperators.listener-operator.dev >/dev/null 2>&1; then
  # It is gone once the operator has removed all that it had installed.
  if ! $kubectl delete listeneroperators.listener-operator.dev cluster --ignore-not-found --timeout=120s; then
    echo "error: ListenerOperator cluster is still there; a running operator is needed to remove what it installed. Its conditions:" >&2
    $kubectl get listeneroperators.listener-operator.dev cluster \
      -o jsonpath="{range .status.conditions[*]}{.type}={.status}: {.message}{'\n'}{end}" >&2
    $kubectl --namespace listener-operator get deployments >&2
    exit 1
  fi
fi
# What confines the operator itself, and so is not the operator's to remove. The garbage collector may have been faster.
$kubectl delete --ignore-not-found --timeout=120s validatingadmissionpolicybinding/listener-operator validatingadmissionpolicy/listener-operator
go tool -modfile=hack/tools/dev/go.mod kustomize build config/default |
  $kubectl delete --ignore-not-found --timeout=120s -f -
