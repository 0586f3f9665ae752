#!/usr/bin/env bash
# Installs the operator with the image $1 on the cluster that kubectl talks to, or updates it in place. What the peer left of the same kinds
# is taken over.
set -euo pipefail

# These objects are described here and nowhere else, so whoever changed them meanwhile gives way. The field manager is the peer's: only in its name can
# the conversion webhook of its kinds be taken away, which the server refuses to have beside `strategy: None`.
hack/manifests.sh "$1" | ${KUBECTL:-kubectl} apply --server-side --force-conflicts --field-manager=listener-operator -f -
