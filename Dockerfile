# The image has both programs: /operator, and /node-agent for the DaemonSet that the operator installs.
#
# BASE is what the image stands on. `scratch` needs no download, as both programs are static; a release is built on UBI.
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
      description="Gives Pods stable addresses that clients outside a Kubernetes or OpenShift cluster can use, and tells each Pod its own."
COPY --from=build /src/bin/licenses /licenses
COPY --from=build /src/bin/operator /operator
COPY --from=build /src/bin/node-agent /node-agent
# The DaemonSet alone sets runAsUser: 0, which writing below the kubelet's directory takes.
USER 65532
ENTRYPOINT ["/operator"]
