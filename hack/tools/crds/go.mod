// The definitions of other projects' kinds that tests install. Nothing is built from it.
module github.com/listener-operator/listener-operator/hack/tools/crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.88.0
