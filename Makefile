# `make help` lists all targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMG ?=
BIN ?= bin

# All Go modules except those in hack/tools. $(call each,MODULES,COMMAND) runs a command in each of some modules.
MODULES := . cmd/kubectl-listener hack scorecard test test/scc
each = for module in $(1); do echo "$$module: $(2)"; (cd $$module; $(2)); done

MODULE := github.com/listener-operator/listener-operator
LDFLAGS := -s -w -X $(MODULE)/internal/version.Version=$(VERSION)
# Without gRPC's tracing, which is not used: it imports html/template, because of which the linker keeps unused methods.
TAGS := grpcnotrace
GO_BUILD := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)"

CONTROLLER_GEN := go tool -modfile=hack/tools/dev/go.mod controller-gen
KUSTOMIZE = $(shell go tool -modfile=hack/tools/dev/go.mod -n kustomize)
GOLANGCI_LINT := go tool -modfile=$(CURDIR)/hack/tools/lint/go.mod golangci-lint
ACTIONLINT := go tool -modfile=hack/tools/dev/go.mod actionlint
KUBECTL ?= kubectl

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help

ifeq (,$(shell command -v go))
ifneq (,$(filter-out help,$(MAKECMDGOALS)))
$(error Go is needed: install version 1.26 or newer from https://go.dev/dl)
endif
endif

##@ Try

.PHONY: help
help: ## List all targets.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make \033[36mTARGET\033[0m\n"} \
		/^[a-z0-9-]+:.*?##/ {printf "  \033[36m%-18s\033[0m%s\n", $$1, $$2} \
		/^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Create a cluster with the operator and a three-member etcd, and use etcd from outside the cluster.
	go -C test run ./demo up

.PHONY: demo-loadbalancer
demo-loadbalancer: ## The demo with the load balancer MetalLB instead of node ports, on a cluster of its own.
	go -C test run ./demo up-load-balancer

.PHONY: demo-down
demo-down: ## Delete the clusters of the demos.
	go -C test run ./demo down

##@ Develop

.PHONY: generate
generate: ## Generate deep copies, CRDs, permissions, docs/api.md, docs/reasons.md and tables of docs/volumes.md.
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	go -C hack run ./explain -C config/crd/bases
	go -C hack run ./permissions -C config/rbac/operator.yaml
	go -C hack run ./reference -C config/crd/bases -o docs/api.md
	go -C hack run ./reasons -o docs/reasons.md

# Without VERSION or IMG, the bundle keeps its version or image. Without PACKAGE or BUNDLE_CHANNELS, it has those of config/.
.PHONY: bundle
bundle: ## Generate bundle/ for the Operator Lifecycle Manager from config/: make bundle VERSION=1.2.3 IMG=registry/listener-operator:1.2.3 [PACKAGE=…] [BUNDLE_CHANNELS=…]
	$(KUSTOMIZE) build config/manifests | \
		go -C hack run ./bundle $(if $(filter command,$(origin VERSION)),-version $(VERSION)) $(if $(IMG),-image $(IMG)) \
			$(if $(PACKAGE),-package $(PACKAGE)) $(if $(BUNDLE_CHANNELS),-channels $(BUNDLE_CHANNELS))

# Without VERSION and IMG, the catalogue contains bundle/ as it is. The default of BUNDLE_IMG is beside the operator's image.
# A bundle with another PACKAGE needs a TEMPLATE of that package.
.PHONY: catalog
catalog: bundle ## Generate dist/catalog, and what public catalogues take, from the published releases and bundle/: make catalog [VERSION=… IMG=…] [BUNDLE_IMG=…] [CHANNELS=candidate] [PACKAGE=… TEMPLATE=…]
	tools=$$(go -C test run ./cmd/cluster build-tools olm); go -C hack run ./catalog -opm "$$tools/opm" \
		-bundle bundle$(if $(BUNDLE_IMG),=$(BUNDLE_IMG)) $(if $(CHANNELS),-channels $(CHANNELS)) $(if $(TEMPLATE),-template $(TEMPLATE))

.PHONY: chart
chart: ## Generate the Helm chart in dist/: make chart VERSION=1.2.3 IMG=registry/listener-operator:1.2.3
	@test "$(origin VERSION)" = "command line" -a -n "$(IMG)" || \
		{ echo "error: VERSION and IMG are required: make chart VERSION=1.2.3 IMG=registry/listener-operator:1.2.3" >&2; exit 1; }
	$(KUSTOMIZE) build config/default | go -C hack run ./chart -version $(VERSION) -image $(IMG)

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w $(shell git ls-files '*.go')

.PHONY: lint
lint: ## Run the linters in all modules, and that of the workflows.
	$(ACTIONLINT)
	@$(call each,$(MODULES),$(GOLANGCI_LINT) run ./...)

# The database is a Go module, and available wherever modules are: go -C hack/tools/vuln get golang.org/x/vulndb@master
# updates it.
.PHONY: vulncheck
vulncheck: ## Report known vulnerabilities that the operator, the node agent or the kubectl plugin can reach.
	@database=$$(mktemp -d); trap 'rm -rf "$$database"' EXIT; \
		go tool -modfile=hack/tools/vuln/go.mod indexdb -out "$$database" \
			-vulns "$$(go list -modfile=hack/tools/vuln/go.mod -m -f '{{.Dir}}' golang.org/x/vulndb)/data/osv"; \
		go tool -modfile=hack/tools/vuln/go.mod govulncheck -db "file://$$database" ./cmd/...; \
		cd cmd/kubectl-listener; go tool -modfile=$(CURDIR)/hack/tools/vuln/go.mod govulncheck -db "file://$$database" ./...

.PHONY: verify
verify: generate bundle lint ## Check that generated files are current, and that code is formatted, linted and tidy, in all modules.
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "error: these files are not formatted; run 'make fmt':" $$files >&2; exit 1; }
	@git ls-files '*.go' '*.md' | LC_ALL=C xargs awk -f hack/width.awk || { echo "error: wrap these comments and pages at 120 columns" >&2; exit 1; }
	@git diff --exit-code -- api config bundle bundle.Dockerfile docs/api.md docs/reasons.md docs/volumes.md || { echo "error: generated files are not current; run 'make generate bundle' and commit" >&2; exit 1; }
	@$(call each,$(MODULES),go mod tidy -diff)
	@for dir in default samples dashboard injection; do $(KUSTOMIZE) build config/$$dir >/dev/null; done
	@# Another architecture, of the program that makes system calls; make release builds both for all.
	CGO_ENABLED=0 GOARCH=s390x go vet -trimpath -tags $(TAGS) ./cmd/node-agent

##@ Test

# Tests wait more than they compute, so two sets of them run at a time.
PARALLEL := $(MAKE) -j2

# RACE=-race runs tests with the race detector, as .ci/run does. It needs a C compiler, and about twice the time.
RACE ?=

# Linked without what debuggers read, which takes half the time.
GO_TEST := go test $(RACE) -vet=off -ldflags=-w

# TESTS follow those that need no cluster.
TESTS := test-e2e validate-bundle validate-chart

.PHONY: test
test: test-apiserver ## Run all tests but those of OLM and Helm: unit, API server, CSI, end to end, bundle and chart.
	$(PARALLEL) $(TESTS)

.PHONY: test-all
test-all: test-apiserver ## Run all tests, with those of OLM, its scorecard, and Helm, as CI does.
	$(PARALLEL) $(TESTS) test-olm test-helm

.PHONY: tools
tools: ## Build all programs of test clusters from Go modules; about twenty minutes, once.
	go -C test run ./cmd/cluster build-tools

.PHONY: cc
cc:
	@[ -z "$(RACE)" ] || command -v $${CC:-gcc} >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install --yes gcc libc6-dev; } || \
		{ echo "error: the race detector needs a C compiler: install the packages gcc and libc6-dev" >&2; exit 1; }

.PHONY: test-unit
test-unit: cc ## Run unit and CSI conformance tests of all modules. Without KUBEBUILDER_ASSETS, tests that need an API server are skipped.
	$(PARALLEL) test-operator test-modules

# make lint vets. To do it here, too, would analyse all dependencies, which takes minutes if nothing is in the cache.
.PHONY: test-operator
test-operator:
	@# What controllers read from the cache, they must not change.
	KUBE_CACHE_MUTATION_DETECTOR=true $(GO_TEST) -timeout 30m ./...

.PHONY: test-modules
test-modules:
	@# The test cache ignores changes of files outside a module, which these tests read.
	@$(call each,$(filter-out . test/scc,$(MODULES)),$(GO_TEST) -timeout 30m -count 1 ./...)
	go -C test/scc test -vet=off ./... # not with $(RACE), which would compile Kubernetes again

# The page of kubectl listener map is tested in a browser.
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install --yes chromium fonts-dejavu-core; } || \
		{ echo "error: the tests of kubectl listener map need a browser: install the packages chromium and fonts-dejavu-core" >&2; exit 1; }

.PHONY: test-apiserver
test-apiserver: chromium ## Run the tests of test-unit, and those that need an API server. Builds etcd and Kubernetes first; about ten minutes, once.
	sets=($$(go -C test run ./cmd/cluster build-tools etcd kubernetes)); \
		export TEST_ASSET_ETCD=$${sets[0]}/etcd TEST_ASSET_KUBE_APISERVER=$${sets[1]}/kube-apiserver; \
		$(MAKE) test-unit

.PHONY: test-e2e
test-e2e: test-scenarios test-faulty-scenarios ## Run the tests of the test cluster, and the end-to-end tests of the operator on two: make -j2 test-e2e

E2E = MAKEFLAGS= go -C test test -vet=off -tags e2e -count 1 -parallel 6 -timeout 40m -v

.PHONY: test-scenarios
test-scenarios:
	@# Scenarios build what is missing, but have little time.
	go -C test run ./cmd/cluster build-tools metallb traefik external-dns
	$(E2E) ./e2e -scenarios '!faulty'

.PHONY: test-faulty-scenarios
test-faulty-scenarios:
	@# As a prerequisite it would let make test-all start other targets before this one.
	@$(MAKE) --no-print-directory cc
	cd test && MAKEFLAGS= $(GO_TEST) -tags e2e -p 1 ./cluster/... ./router/...
	CLUSTER=$(or $(CLUSTER),e2e)-faulty $(E2E) ./e2e -scenarios faulty

.PHONY: test-products
test-products: ## Run the products of docs/recipes unmodified, and use each replica from outside the cluster while replicas come and go.
	go -C test run ./cmd/cluster build-tools metallb envoy-gateway cert-manager
	go -C test test -tags e2e -count 1 -timeout 70m -v -run '^TestProduct|^TestCertManager' ./e2e -products

.PHONY: test-operators
test-operators: ## Run RabbitMQ, Redis and PostgreSQL by operators of others, and a Pod as Strimzi makes it, and use them from outside the cluster while they are replaced.
	go -C test run ./cmd/cluster build-tools rabbitmq-operator redis-operator cloudnative-pg
	go -C test test -tags e2e -count 1 -timeout 40m -v -run '^TestOperatorOf' ./e2e -operators

.PHONY: test-envoy-gateway
test-envoy-gateway: ## Run the scenarios with Envoy Gateway, as a second implementation of the Gateway API. Builds it first; about ten minutes, once.
	go -C test run ./cmd/cluster build-tools metallb envoy-gateway
	go -C test test -tags e2e -count 1 -timeout 40m -v -run '^TestEnvoyGateway' ./e2e -envoy-gateway

.PHONY: test-bgp
test-bgp: ## Let all nodes announce a range of cluster IPs to a router by BGP, and lose a node under load, with and without BFD.
	go -C test test -tags e2e -count 1 -timeout 30m -v -run '^TestReplicasAreReachedAtARange|^TestOtherServices' ./e2e -bgp

.PHONY: test-faults
test-faults: ## Let parts of a cluster fail under load, and write the table in docs/reliability.md; about half an hour.
	go -C test test -tags e2e -count 1 -timeout 60m -v -run '^TestFaultsUnderLoad$$|^TestASharedAddress' ./e2e -faults all -faults.report

.PHONY: test-floods
test-floods: ## Measure how long a tenant waits while another one floods the operator and the node agents; about twenty minutes.
	go -C test test -tags e2e -count 1 -timeout 40m -v -run '^TestFloodsOfATenant' ./e2e -floods

.PHONY: test-renewals
test-renewals: ## Wait until the kubelet has renewed certificates after the change of an address and of all authorities; up to an hour.
	go -C test test -tags e2e -count 1 -timeout 90m -v -run '^TestCertificatesAreRenewed$$' ./e2e -renewals

# Building one version takes about six minutes, once.
KUBERNETES_VERSIONS ?= 1.32 1.33 1.34 1.35 1.36 1.37

.PHONY: test-matrix
test-matrix: ## Run the core scenarios on each supported version of Kubernetes: make test-matrix [KUBERNETES_VERSIONS="1.33 1.34"]
	@for version in $(KUBERNETES_VERSIONS); do echo "Kubernetes $$version"; \
		KUBERNETES=$$version CLUSTER=matrix go -C test test -tags e2e -count 1 -parallel 6 -timeout 40m ./e2e -scenarios core; done

.PHONY: test-openshift
test-openshift: ## Run the scenarios of OpenShift with its API server, built from a checkout of github.com/openshift/microshift: make test-openshift MICROSHIFT=DIR
	@test -f "$(MICROSHIFT)/Makefile.kube_git.var" || { echo "error: MICROSHIFT is required, a clone of github.com/openshift/microshift: make test-openshift MICROSHIFT=DIR" >&2; exit 1; }
	export MAKEFLAGS= MICROSHIFT=$(abspath $(MICROSHIFT)) CLUSTER=$(or $(CLUSTER),openshift); \
		go -C test test -tags e2e -count 1 -parallel 6 -timeout 40m -v ./e2e -scenarios openshift && \
		INSTALL=olm go -C test test -tags e2e -count 1 -timeout 30m -v -run OperatorUnderOLM ./e2e

.PHONY: validate-bundle
validate-bundle: ## Validate bundle/ with the Operator SDK. Builds the SDK first; about eight minutes, once.
	OPERATOR_SDK=$$(go -C test run ./cmd/cluster build-tools operator-sdk)/operator-sdk \
		go -C test test -count 1 -run '^TestOperatorSDKValidatesBundle$$' ./bundle

.PHONY: validate-chart
validate-chart: ## Lint the Helm chart, and compare what it installs with config/. Builds Helm first; about a minute, once.
	HELM=$$(go -C test run ./cmd/cluster build-tools helm)/helm go -C test test -count 1 ./chart

.PHONY: test-olm
test-olm: ## Install, upgrade and uninstall the operator with both generations of the Operator Lifecycle Manager on a separate cluster; run the scorecard.
	MAKEFLAGS= INSTALL=olm CLUSTER=$(or $(CLUSTER),e2e-olm) go -C test test -tags e2e -count 1 -timeout 30m -run '$(or $(RUN),OperatorUnderOLM)' -v ./e2e

.PHONY: test-helm
test-helm: ## Install, upgrade and uninstall the operator with Helm on a separate cluster.
	MAKEFLAGS= INSTALL=helm CLUSTER=$(or $(CLUSTER),e2e-helm) go -C test test -tags e2e -count 1 -timeout 30m -run 'OperatorInstalledByHelm$$' -v ./e2e

.PHONY: scorecard
scorecard: ## Run only the scorecard of test-olm.
	$(MAKE) test-olm CLUSTER=$(or $(CLUSTER),scorecard) RUN='OperatorUnderOLM$$$$/scorecard'

# A number of inputs, because a duration makes go test fail once in a while when it ends (golang/go#75804).
.PHONY: fuzz
FUZZTIME ?= 10000x
fuzz: ## Run each fuzz test with new inputs: make fuzz [FUZZTIME=10000x]
	@grep -rl --include='*_test.go' '^func Fuzz' internal controllers node-agent cmd | while read -r file; do \
		sed -n 's/^func \(Fuzz[A-Za-z0-9]*\).*/\1/p' $$file | while read -r target; do \
			go test -C $$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .; done; done

# A part that was measured before is not measured again, without BENCH=-again. `go -C test run ./bench -help` lists the options.
.PHONY: bench
bench: build ## Measure the start of Pods, and the operator with up to 10,000 Listeners, in parts; generate docs/performance.md: make bench [BENCH="-again -parts starts,bursts"]
	go -C test run ./bench $(BENCH)

.PHONY: bench-quick
bench-quick: build ## Measure a few values of each kind in less than five minutes, and change no page.
	go -C test run ./bench -quick -again -out dist/bench-quick -docs ""

.PHONY: cluster-up
cluster-up: ## Create a cluster without the operator.
	go -C test run ./cmd/cluster up

.PHONY: cluster-down
cluster-down: ## Delete that cluster.
	go -C test run ./cmd/cluster down

##@ Build and install

.PHONY: build
build: ## Build the static programs bin/operator and bin/node-agent.
	$(GO_BUILD) -o $(BIN)/operator ./cmd/operator
	$(GO_BUILD) -o $(BIN)/node-agent ./cmd/node-agent

.PHONY: build-plugin
build-plugin: ## Build bin/kubectl-listener, the plugin `kubectl listener`.
	cd cmd/kubectl-listener; $(GO_BUILD) -o $(CURDIR)/bin/kubectl-listener .

.PHONY: krew
krew: ## Build dist/plugin with the plugin for each platform and its manifest for krew: make krew VERSION=1.2.3 URL=https://…/v1.2.3
	go -C hack run ./krew -version $(VERSION) -url "$(URL)"

.PHONY: licenses
licenses: ## Collect the licenses of all linked modules in bin/licenses, and fail if one is not allowed.
	go -C hack run ./licenses -output $(BIN)/licenses ./cmd/operator ./cmd/node-agent

.PHONY: image
image: ## Build the image IMG with docker; BASE sets its base image.
	@test -n "$(IMG)" || { echo "error: IMG is required: make image IMG=registry/listener-operator:tag" >&2; exit 1; }
	docker build --build-arg VERSION=$(VERSION) $(if $(BASE),--build-arg BASE=$(BASE)) -t $(IMG) .

.PHONY: must-gather-image
must-gather-image: ## Build the image IMG for `oc adm must-gather` with docker; BASE sets its base image.
	@test -n "$(IMG)" || { echo "error: IMG is required: make must-gather-image IMG=registry/listener-operator-must-gather:tag" >&2; exit 1; }
	docker build -f cmd/kubectl-listener/Dockerfile --build-arg VERSION=$(VERSION) $(if $(BASE),--build-arg BASE=$(BASE)) -t $(IMG) .

.PHONY: release
release: ## Create dist/VERSION with everything that is published, on a release's commit: make release VERSION=1.2.3 IMG=registry/listener-operator [URL=https://…]
	@test "$(origin VERSION)" = "command line" -a -n "$(IMG)" || \
		{ echo "error: VERSION and IMG (a repository) are required: make release VERSION=1.2.3 IMG=registry/listener-operator" >&2; exit 1; }
	go -C test test ./bundle
	go -C hack test ./...
	tools=$$(go -C test run ./cmd/cluster build-tools olm); go -C hack run ./release -version $(VERSION) -image $(IMG) -url "$(URL)" -opm "$$tools/opm"

.PHONY: deploy
deploy: ## Install the operator with image IMG on the cluster that kubectl talks to.
	@test -n "$(IMG)" || { echo "error: IMG is required: make deploy IMG=registry/listener-operator:tag" >&2; exit 1; }
	KUBECTL="$(KUBECTL)" hack/deploy.sh $(IMG)

.PHONY: undeploy
undeploy: ## Remove the operator, everything that it installed, and its certificate authorities; fails while volumes are in use.
	KUBECTL="$(KUBECTL)" hack/undeploy.sh

.PHONY: clean
clean: ## Remove bin and dist.
	rm -rf bin dist
