// external-dns: creates DNS records for Services. It is built in its own module, because a module that requires this one
// would need all modules of its module graph, some of which a proxy may not have.
module github.com/listener-operator/listener-operator/hack/tools/external-dns

go 1.26.0

require sigs.k8s.io/external-dns v0.20.0
