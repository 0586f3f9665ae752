#!/usr/bin/env bash
# Installs or upgrades the operator with the image $1, on the cluster that kubectl is configured for. CRDs of
# Stackable's listener operator are taken over.
set -euo pipefail

# The manifests define these objects completely, so conflicting changes are overwritten. The field manager is that of
# Stackable's operator: only its owner can remove the conversion webhook of its CRDs, which the API server rejects
# together with `strategy: None`.
hack/manifests.sh "$1" | ${KUBECTL:-kubectl} apply --server-side --force-conflicts --field-manager=listener-operator -f -
