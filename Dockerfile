# The image contains both programs: /operator, and /node-agent for the DaemonSet that the operator installs.
#
# BASE is the base image. Both programs are static, so that `scratch` is enough; releases use UBI.
ARG BASE=scratch
ARG GO_VERSION=1.26

FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN make build licenses VERSION=${VERSION}

FROM ${BASE}
ARG VERSION=dev
LABEL name="listener-operator" \
      vendor="The listener operator authors" \
      maintainer="The listener operator authors" \
      version="${VERSION}" \
      release="1" \
      summary="Stable addresses for Pods, from outside the cluster" \
      description="Gives Pods stable addresses that clients outside a Kubernetes or OpenShift cluster can use, and provides each Pod with its own addresses."
COPY --from=build /src/bin/licenses /licenses
COPY --from=build /src/bin/operator /operator
COPY --from=build /src/bin/node-agent /node-agent
# Only the DaemonSet sets runAsUser: 0, to write below the kubelet's directory.
USER 65532
ENTRYPOINT ["/operator"]
