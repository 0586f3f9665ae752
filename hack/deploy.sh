#!/usr/bin/env bash
# Installs the operator with the image $1 on the cluster that kubectl talks to, or updates it in place. What the peer left of the same kinds
# is taken over.
set -euo pipefail

kubectl=${KUBECTL:-kubectl}
image=$1
group=listeners.stackable.tech

# The peer's definitions name a conversion webhook that goes with the peer. Only a patch takes it away: applying a definition without one keeps it.
for kind in listenerclasses listeners podlisteners; do
  if [ "$($kubectl get customresourcedefinition "$kind.$group" --ignore-not-found -o jsonpath='{.spec.conversion.strategy}')" = Webhook ]; then
    $kubectl patch customresourcedefinition "$kind.$group" --type merge --patch '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
  fi
done

# These objects are described here and nowhere else, so whoever changed them meanwhile gives way.
hack/manifests.sh "$image" | $kubectl apply --server-side --force-conflicts -f -
