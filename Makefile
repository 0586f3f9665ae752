# `make help` lists what can be done here.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMG ?=

# All Go modules, except for those of hack/tools, and how to run a command in each.
MODULES := . hack scorecard test test/scc
each = for module in $(1); do echo "$$module: $(2)"; (cd $$module; $(2)); done

MODULE := github.com/listener-operator/listener-operator
LDFLAGS := -s -w -X $(MODULE)/internal/version.Version=$(VERSION)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)"

CONTROLLER_GEN := go tool -modfile=hack/tools/dev/go.mod controller-gen
KUSTOMIZE = $(shell go tool -modfile=hack/tools/dev/go.mod -n kustomize)
GOLANGCI_LINT := go tool -modfile=$(CURDIR)/hack/tools/lint/go.mod golangci-lint
KUBECTL ?= kubectl

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help

##@ Look

.PHONY: help
help: ## List all targets.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36mTARGET\033[0m\n"} \
		/^[a-z0-9-]+:.*?##/ {printf "  \033[36m%-14s\033[0m%s\n", $$1, $$2} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Bring up a real cluster with the operator and a three-member etcd, and use it from outside.
	go -C test run ./demo up

.PHONY: demo-down
demo-down: ## Take the demo's cluster down.
	go -C test run ./demo down

##@ Develop

.PHONY: generate
generate: ## Generate deep copies and CRDs from api/.
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases

# Without VERSION or IMG, the bundle keeps those that it has.
.PHONY: bundle
bundle: ## Generate bundle/ for the Operator Lifecycle Manager from config/: make bundle VERSION=1.2.3 IMG=registry/listener-operator:1.2.3
	$(KUSTOMIZE) build config/manifests | \
		go -C hack run ./bundle $(if $(filter command,$(origin VERSION)),-version $(VERSION)) $(if $(IMG),-image $(IMG))

# Without VERSION and IMG, the catalogue has the release that bundle/ has; without BUNDLE_IMG, its image lies beside the operator's.
.PHONY: catalog
catalog: bundle ## Make dist/catalog of the published releases and bundle/: make catalog [VERSION=… IMG=…] [BUNDLE_IMG=…] [CHANNELS=candidate]
	tools=$$(go -C test run ./cmd/cluster build-tools olm); go -C hack run ./catalog -opm "$$tools/opm" \
		-bundle bundle$(if $(BUNDLE_IMG),=$(BUNDLE_IMG)) $(if $(CHANNELS),-channels $(CHANNELS))

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w $(shell git ls-files '*.go')

.PHONY: lint
lint: ## Run the linters.
	@$(call each,$(MODULES),$(GOLANGCI_LINT) run ./...)

.PHONY: verify
verify: generate bundle lint ## Check what needs no cluster: generated files are current, code is formatted, linted and tidy.
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "error: these files are not formatted; run 'make fmt':" $$files >&2; exit 1; }
	@git ls-files '*.go' '*.md' | LC_ALL=C xargs awk -f hack/width.awk || { echo "error: wrap these comments and pages at 120 columns" >&2; exit 1; }
	@git diff --exit-code -- api config bundle bundle.Dockerfile || { echo "error: generated files are not current; run 'make generate bundle' and commit" >&2; exit 1; }
	@$(call each,$(MODULES),go mod tidy -diff)
	$(KUSTOMIZE) build config/default >/dev/null
	@# An architecture with the other byte order stands for all that this machine is not; make release looks at each.
	CGO_ENABLED=0 GOARCH=s390x go vet -trimpath ./cmd/operator ./cmd/node-agent

##@ Test

.PHONY: test
test: test-unit test-apiserver validate-bundle test-e2e test-olm ## Run all tests: unit, API server, CSI conformance, end to end on real clusters, and the scorecard.

.PHONY: tools
tools: ## Build the programs of the test cluster, once, from Go modules; about fifteen minutes.
	go -C test run ./cmd/cluster build-tools

# The race detector needs a C compiler.
.PHONY: cc
cc:
	@command -v $${CC:-gcc} >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install --yes gcc libc6-dev; } || \
		{ echo "error: the race detector needs a C compiler: install the packages gcc and libc6-dev" >&2; exit 1; }

.PHONY: test-unit
test-unit: cc ## Run the tests that need nothing but Go, and skip those that need an API server.
	@$(call each,$(filter-out test/scc,$(MODULES)),go test -race ./...)
	go -C test/scc test ./... # compiles Kubernetes, which takes minutes longer with the race detector

# Packages that need no API server are not tested twice: their results are in the cache of the go command.
.PHONY: test-apiserver
test-apiserver: cc ## Run the tests that need an API server, and first build etcd and Kubernetes, once; about ten minutes.
	sets=($$(go -C test run ./cmd/cluster build-tools etcd kubernetes)); \
		export TEST_ASSET_ETCD=$${sets[0]}/etcd TEST_ASSET_KUBE_APISERVER=$${sets[1]}/kube-apiserver; \
		$(call each,. test,go test -race ./...)

.PHONY: test-e2e
test-e2e: cc ## Run the tests of the test cluster, and those of the operator on one, which is brought up and taken down.
	go -C test test -race -tags e2e -p 1 ./cluster/... ./router/...
	go -C test test -tags e2e -count 1 -parallel 6 -timeout 40m -v ./e2e

.PHONY: validate-bundle
validate-bundle: ## Validate bundle/ with the Operator SDK, after building that, once; about eight minutes.
	OPERATOR_SDK=$$(go -C test run ./cmd/cluster build-tools operator-sdk)/operator-sdk \
		go -C test test -count 1 -run '^TestOperatorSDKValidatesBundle$$' ./bundle

.PHONY: test-olm
test-olm: ## Install, upgrade and uninstall the operator through a real Operator Lifecycle Manager, on a cluster of its own.
	INSTALL=olm CLUSTER=$(or $(CLUSTER),e2e-olm) go -C test test -tags e2e -count 1 -timeout 30m -run '^TestTheOperatorUnderOLM$$$(STEP)' -v ./e2e

.PHONY: scorecard
scorecard: ## Run the Operator SDK's scorecard of the bundle on an installation through the Operator Lifecycle Manager, one step of test-olm.
	$(MAKE) test-olm CLUSTER=$(or $(CLUSTER),scorecard) STEP='/^the_scorecard_passes$$$$'

.PHONY: fuzz
FUZZTIME ?= 30s
fuzz: ## Fuzz what is made of untrusted input, FUZZTIME for each target.
	@grep -rho --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' internal node-agent | cut -d' ' -f2 | while read -r target; do \
		package=$$(dirname "$$(grep -rl --include='*_test.go' "^func $$target(" internal node-agent)"); \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$package"; done

.PHONY: bench
bench: tools build ## Measure what a volume costs a Pod on a real cluster, and the operator with 10,000 Listeners on 1,000 nodes; about an hour.
	go -C test test -tags e2e -timeout 60m -run '^$$' -bench 'PodToRunning|AddressToFile' -benchtime 100x ./e2e
	go -C test test -tags e2e -timeout 60m -run '^$$' -bench CrowdToRunning -benchtime 3x ./e2e
	go -C test run ./bench

.PHONY: cluster-up
cluster-up: ## Bring up a cluster without the operator.
	go -C test run ./cmd/cluster up

.PHONY: cluster-down
cluster-down: ## Take that cluster down.
	go -C test run ./cmd/cluster down

##@ Build and install

.PHONY: build
build: ## Build the static programs bin/operator and bin/node-agent.
	$(GO_BUILD) -o bin/operator ./cmd/operator
	$(GO_BUILD) -o bin/node-agent ./cmd/node-agent

.PHONY: licenses
licenses: ## Collect the licenses of all linked modules in bin/licenses, and fail if one is not allowed.
	go -C hack run ./licenses -output bin/licenses ./cmd/operator ./cmd/node-agent

.PHONY: image
image: ## Build the image IMG with docker; BASE sets what it stands on.
	@test -n "$(IMG)" || { echo "error: say which image to build: make image IMG=registry/listener-operator:tag" >&2; exit 1; }
	docker build --build-arg VERSION=$(VERSION) $(if $(BASE),--build-arg BASE=$(BASE)) -t $(IMG) .

.PHONY: release
release: ## Make dist/VERSION with all that is published, on a release's commit: make release VERSION=1.2.3 IMG=registry/listener-operator
	@test "$(origin VERSION)" = "command line" -a -n "$(IMG)" || \
		{ echo "error: say what to release, and the repository that its image goes to: make release VERSION=1.2.3 IMG=registry/listener-operator" >&2; exit 1; }
	go -C test test ./bundle
	go -C hack test ./...
	tools=$$(go -C test run ./cmd/cluster build-tools olm); go -C hack run ./release -version $(VERSION) -image $(IMG) -opm "$$tools/opm"

.PHONY: deploy
deploy: ## Install the operator with image IMG on the cluster that kubectl talks to.
	@test -n "$(IMG)" || { echo "error: say which image to install: make deploy IMG=registry/listener-operator:tag" >&2; exit 1; }
	KUBECTL="$(KUBECTL)" hack/deploy.sh $(IMG)

.PHONY: undeploy
undeploy: ## Remove the operator and all that it installed; refuses while volumes are in use.
	KUBECTL="$(KUBECTL)" hack/undeploy.sh

.PHONY: clean
clean: ## Remove what was built here.
	rm -rf bin dist
