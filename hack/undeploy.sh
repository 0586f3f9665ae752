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
  # What the operator installed is owned by this object, and goes with it.
  $kubectl delete listeneroperators.listener-operator.dev cluster --ignore-not-found --timeout=120s
  $kubectl wait --for=delete --timeout=120s "storageclass/$driver" "csidriver/$driver" \
    validatingadmissionpolicybinding/listener-node-agent validatingadmissionpolicy/listener-node-agent
  $kubectl --namespace listener-operator wait --for=delete --timeout=120s daemonset/listener-node-agent
fi
go tool -modfile=hack/tools/dev/go.mod kustomize build config/default |
  $kubectl delete --ignore-not-found --timeout=120s -f -
