// CRDs of other projects that tests install. No program is built from this module.
module github.com/listener-operator/listener-operator/hack/tools/crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.88.0
