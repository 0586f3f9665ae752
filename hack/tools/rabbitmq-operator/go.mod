// RabbitMQ's cluster operator, for make test-operators. It is built with the modules that it was released with.
module github.com/listener-operator/listener-operator/hack/tools/rabbitmq-operator

go 1.26.0

require github.com/rabbitmq/cluster-operator/v2 v2.20.0
