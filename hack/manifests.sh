#!/usr/bin/env bash
# Prints the manifests that install the operator with the image $1, for clusters without the Operator Lifecycle Manager.
set -euo pipefail

kustomize=$(go tool -modfile=hack/tools/dev/go.mod -n kustomize)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r config "$copy"
cd "$copy/config/default"
"$kustomize" edit set image "listener-operator=$1"
"$kustomize" build .
