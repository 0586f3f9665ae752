// Spotahome's operator for Redis with Sentinel, for make test-operators. It is built with the modules that it was
// released with.
module github.com/listener-operator/listener-operator/hack/tools/redis-operator

go 1.26.0

require github.com/spotahome/redis-operator v1.2.4
