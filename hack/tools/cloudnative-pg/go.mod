// CloudNativePG, an operator for PostgreSQL, for make test-operators. It is built with the modules that it was released
// with.
module github.com/listener-operator/listener-operator/hack/tools/cloudnative-pg

go 1.26.0

require github.com/cloudnative-pg/cloudnative-pg v1.30.0
