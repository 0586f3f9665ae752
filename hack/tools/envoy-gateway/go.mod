// Envoy Gateway: a controller for the Gateway API, with ListenerSets. It is built in its own module, because it cannot
// be built with the versions of modules that Kubernetes is built with.
module github.com/listener-operator/listener-operator/hack/tools/envoy-gateway

go 1.26.0

require github.com/envoyproxy/gateway v1.9.1
