# delegated-ipam. "make help" lists what can be made. Needs Go, make and git.

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || cat VERSION 2>/dev/null || echo unknown)
# A number of inputs: a time limit that is hit in the middle of one is reported as
# a failure now and then.
FUZZTIME    ?= 30000x
COVER_LEAST ?= 85.0
# The tag that the manifests in deploy/ name.
IMAGE_TAG   ?= local

BIN     := bin
CACHE   := .cache
TOOLS   := $(CACHE)/tools
PLUGINS := $(CACHE)/plugins
OLD_PLUGINS := $(CACHE)/plugins-v1.4
TESTBIN := $(CACHE)/test/delegated-ipam
SCRIPTED := $(CACHE)/test/scripted
CILIUM_DBG := $(CACHE)/test/cilium-dbg
FAILPOINTS := $(CACHE)/test/delegated-ipam-failpoints
COVER   := $(CACHE)/cover
MODULE  := github.com/delegated-ipam/delegated-ipam

MODULES     := . test/agent/cilium-cni test/external test/programs tools tools/plugins tools/plugins-v1.4
GENERATED   := api/models server client
HANDWRITTEN  = $(shell go list ./... | grep -Ev '^$(MODULE)/(api/models|server|client)(/|$$)')
GOFILES      = $(shell git ls-files --cached --others --exclude-standard '*.go' | grep -Ev '^(api/models|server|client)/')

# The race detector needs a C compiler: without one "go env CGO_ENABLED" is 0.
# CI must have one: there its lack is an error, not a reason to test less.
ifneq ($(filter 1,$(shell go env CGO_ENABLED))$(filter true,$(CI)),)
RACE := -race
endif

# Tests run a binary that counts what it covers. Without cmd/ among the counted
# packages it would not write the counts at its end.
PLUGINENV = DELEGATED_IPAM_TEST_PLUGINS=$(CURDIR)/$(PLUGINS) DELEGATED_IPAM_TEST_OLD_PLUGINS=$(CURDIR)/$(OLD_PLUGINS)
TESTENV = DELEGATED_IPAM_TEST_BIN=$(CURDIR)/$(TESTBIN) DELEGATED_IPAM_TEST_SCRIPTED=$(CURDIR)/$(SCRIPTED) \
  DELEGATED_IPAM_TEST_FAILPOINTS=$(CURDIR)/$(FAILPOINTS) \
  $(PLUGINENV) GOCOVERDIR=$(CURDIR)/$(COVER)/binary

# "go test" knows nothing of the binaries that a test starts: a result of before
# would pass for one of now.
AFRESH := -count=1

# Faults take more time waiting for processes than working: four at once.
CAMPAIGN := test/faults/campaign.sh $(AFRESH) -parallel 4

# What an operation costs in numbers that no clock changes. The race detector
# would allocate by itself.
COUNTERS := go test $(AFRESH) -bench . -benchtime 20x ./test/bench

# The tests that start isc-dhcp-server.
WITH_DHCPD := RealDHCP

.DEFAULT_GOAL := help

.PHONY: help
help: ## list every target
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
	  while IFS='|' read -r name does; do printf '  %-16s %s\n' "$$name" "$$does"; done

# --- build and run

.PHONY: build
build: $(BIN)/delegated-ipam $(BIN)/delegated-ipam-bridge ## build bin/delegated-ipam and bin/delegated-ipam-bridge, static binaries

# The bridge brings the Kubernetes client, which takes minutes to build: who only
# wants the sidecar does not wait for it.
.PHONY: $(BIN)/delegated-ipam $(BIN)/delegated-ipam-bridge
$(BIN)/delegated-ipam $(BIN)/delegated-ipam-bridge: $(BIN)/%:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./cmd/$*

.PHONY: image
image: build ## build the images delegated-ipam:IMAGE_TAG and delegated-ipam-bridge:IMAGE_TAG with buildah into bin/*.tar; needs root, no network
	deploy/image/build.sh $(CACHE)/image $(IMAGE_TAG) $(VERSION)

.PHONY: run
run: $(BIN)/delegated-ipam plugins ## serve in the foreground from ./run with the real host-local, and print curl lines to try
	@tools/run.sh $(BIN)/delegated-ipam $(PLUGINS)

.PHONY: plugins
plugins: ## build the real host-local, static and dhcp that tools/plugins pins, and the old host-local of tools/plugins-v1.4
	@mkdir -p $(PLUGINS) $(OLD_PLUGINS)
	CGO_ENABLED=0 go build -C tools/plugins -trimpath -buildvcs=false -o $(CURDIR)/$(PLUGINS)/ tool
	CGO_ENABLED=0 go build -C tools/plugins-v1.4 -trimpath -buildvcs=false -o $(CURDIR)/$(OLD_PLUGINS)/ tool

# --- test

.PHONY: test
test: test-contract test-go cover fuzz-short ## run every test (contract with the real Cilium client, unit, engine, end to end), then check the coverage

.PHONY: test-go
test-go: plugins test-binary explain ## run the unit, engine and end-to-end tests
	@rm -rf $(COVER)/unit && mkdir -p $(COVER)/unit $(COVER)/binary
	$(TESTENV) go test $(RACE) $(AFRESH) -skip '$(WITH_DHCPD)' $$(go list ./test/... | grep -Ev '/test/(faults|image|bench)$$')
	$(TESTENV) $(CAMPAIGN) $(RACE) ./test/faults
	$(TESTENV) $(COUNTERS)
	$(PLUGINENV) go test $(RACE) -skip '$(WITH_DHCPD)' -cover -covermode=atomic -coverpkg=./pkg/... ./pkg/... ./cmd/... -args -test.gocoverdir=$(CURDIR)/$(COVER)/unit

# In CI a skipped one is an error: "go test" alone would call it a success.
.PHONY: test-dhcp
test-dhcp: plugins ## run the tests with a real isc-dhcp-server; they need root, network namespaces and its dhcpd
	@$(PLUGINENV) go test $(RACE) $(AFRESH) -v -run '$(WITH_DHCPD)' ./pkg/delegate ./test/e2e >$(CACHE)/dhcp.log || { cat $(CACHE)/dhcp.log; exit 1; }
	@grep -E '^(--- SKIP|ok)' -B1 $(CACHE)/dhcp.log
	@! grep -q '^--- SKIP' $(CACHE)/dhcp.log || test "$(CI)" != true || { echo "skipped, which must not be in CI" >&2; exit 1; }

.PHONY: test-image
test-image: image plugins ## run the images with buildah: what they hold, their size, and the sidecar over the real host-local; needs root
	$(PLUGINENV) DELEGATED_IPAM_TEST_IMAGES=$(CURDIR)/$(BIN) go test $(AFRESH) ./test/image

.PHONY: test-deploy
test-deploy: plugins test-binary ## render Cilium's chart, the manifests and the systemd unit, and run the sidecar with what they give it
	@mkdir -p $(COVER)/binary
	cd test/external/deploy && $(TESTENV) go test $(AFRESH) ./...

.PHONY: test-contract
test-contract: plugins test-binary explain ## run the contract tests: swagger.yaml, the real Cilium client, the curl lines of the docs
	@mkdir -p $(COVER)/binary
	cd test/external/contract && $(TESTENV) go test $(RACE) $(AFRESH) ./...

# The real cilium-dbg is some minutes of building the first time: test-contract skips it.
.PHONY: test-cilium-dbg
test-cilium-dbg: $(CILIUM_DBG) plugins test-binary ## run the test with the real cilium-dbg v1.19.0, which it builds
	@mkdir -p $(COVER)/binary
	cd test/external/contract && DELEGATED_IPAM_TEST_CILIUM_DBG=$(CURDIR)/$(CILIUM_DBG) $(TESTENV) go test $(RACE) $(AFRESH) -run CiliumDbg ./...

$(CILIUM_DBG): test/programs/go.mod test/programs/go.sum
	go build -C test/programs -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$@ github.com/cilium/cilium/cilium-dbg

# Without the race detector: Prometheus' rule engine is much to build, and nothing of ours runs at once there.
.PHONY: test-observe
test-observe: ## try the dashboard and each alert with Prometheus' own parsers and rule engine
	cd test/external/observe && go test $(AFRESH) ./...

.PHONY: test-binary
test-binary: ## build the binary under test, with the race detector where it can be had, and the plugin that it is tried with
	@rm -rf $(COVER)/binary
	go build $(RACE) -buildvcs=false -cover -covermode=atomic -coverpkg=./pkg/...,./cmd/... -o $(TESTBIN) ./cmd/delegated-ipam
	go build -buildvcs=false -o $(SCRIPTED) ./test/scripted
	go build -buildvcs=false -tags failpoints -o $(FAILPOINTS) ./cmd/delegated-ipam

.PHONY: faults
faults: plugins test-binary explain ## break disks, plugins and processes for minutes, also at random; print what was broken, class by class
	@mkdir -p $(COVER)/binary
	@seed="$${DELEGATED_IPAM_FAULTS_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"; \
	  DELEGATED_IPAM_FAULTS=full DELEGATED_IPAM_FAULTS_SEED="$$seed" $(TESTENV) $(CAMPAIGN) -timeout 2h ./test/faults

# What else the campaign has is the same in "make test".
.PHONY: faults-every
faults-every: plugins test-binary ## kill the sidecar and the plugin at every point once
	@mkdir -p $(COVER)/binary
	@DELEGATED_IPAM_FAULTS=every $(TESTENV) $(CAMPAIGN) -timeout 20m -run '^TestThe(Sidecar|Plugin).*Killed' ./test/faults

# Root, BPF and time: no part of "make ci". test/agent/README.md says what it builds and needs.
.PHONY: agent-test
agent-test: build plugins ## run a real, unmodified cilium-agent over the bridge; needs root, and the first time most of an hour
	test/agent/build.sh $(CACHE)/agent-test
	go test -c -o $(CACHE)/agent-test/agent.test ./test/agent
	AGENT_TEST_CHAOS=$${AGENT_TEST_CHAOS:-10m} test/agent/run.sh $(CACHE)/agent-test/agent.test

.PHONY: explain
explain:
	@$(if $(RACE),:,echo "skipped: the race detector, because no C compiler ($$(go env CC)) was found")
	@command -v strace >/dev/null || echo "skipped: faults at single system calls, because strace was not found; plugins are killed after delays"
	@command -v curl >/dev/null || echo "skipped: the curl lines of the docs, because curl was not found"
	@test "$$(id -u)" = 0 || echo "skipped: calls by another user, because only root can make them"

.PHONY: cover
cover: ## show the coverage of pkg/ in the last tests; fail below COVER_LEAST percent
	@test -d $(COVER)/unit || { echo "no test has counted anything; run 'make test' first" >&2; exit 1; }
	@go tool covdata textfmt -pkg=$(MODULE)/pkg/... -i=$(COVER)/unit,$(COVER)/binary -o $(COVER)/all.txt
	@go tool cover -func=$(COVER)/all.txt | awk -v least=$(COVER_LEAST) '/^total:/ { got = $$3; sub("%", "", got); \
	  printf "coverage of pkg/: %s %%, at least %s %% wanted\n", got, least; exit (got + 0 < least) }'

.PHONY: fuzz-short
fuzz-short: ## fuzz every target with 3,000 inputs each
	@$(MAKE) --no-print-directory fuzz FUZZTIME=3000x

.PHONY: fuzz
fuzz: ## fuzz every target with FUZZTIME inputs each, or for that time
	@grep -rl --include='*_test.go' '^func Fuzz' pkg | while read -r file; do \
	  sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r name; do \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" || exit 1; \
	  done || exit 1; \
	done

# --- what it costs

BENCH := $(CACHE)/bench
BENCH_PAIRS ?= 300

# State and store lie below the checkout, on its disk: /tmp may be memory.
.PHONY: bench
bench: $(BIN)/delegated-ipam plugins ## measure what it costs beside the bare plugin, and beside Cilium if bench-cilium has been made; minutes, on a quiet machine
	@mkdir -p $(BENCH)
	go build -buildvcs=false -o $(BENCH)/bench ./test/bench
	$(BENCH)/bench -binary $(BIN)/delegated-ipam -plugins $(PLUGINS) -cilium $(BENCH)/cilium -dir $(BENCH)/run \
	  -pairs $(BENCH_PAIRS) -page docs/performance.md -charts docs/performance

# Cilium's server with all that it needs takes minutes to build the first time.
.PHONY: bench-cilium
bench-cilium: ## bench, beside Cilium's own server and allocator too
	@mkdir -p $(BENCH)
	CGO_ENABLED=0 go build -C test/programs -trimpath -buildvcs=false -o $(CURDIR)/$(BENCH)/cilium ./cilium-ipam
	@$(MAKE) --no-print-directory bench

.PHONY: bench-short
bench-short: plugins test-binary ## count heap allocations, processes, fsyncs and bytes of each operation; fail if there are more than before
	$(TESTENV) $(COUNTERS)

# --- checks

# Needs spin and gcc, and some minutes.
.PHONY: model
model: ## check the model of the protocol exhaustively, and that it fails without each rule (docs/model.md)
	go run ./test/model test/model/protocol.pml

.PHONY: ci
ci: test checks ## everything: the tests, then the checks

.PHONY: checks
checks: lint tidy-check generate-check model faults-every test-dhcp test-observe test-deploy test-image fuzz ## everything besides the tests

.PHONY: fmt
fmt: $(TOOLS)/gofumpt ## format the hand-written code
	$(TOOLS)/gofumpt -w $(GOFILES)

.PHONY: lint
lint: $(TOOLS)/gofumpt $(TOOLS)/staticcheck ## check format, go vet and staticcheck of the hand-written code
	@unformatted="$$($(TOOLS)/gofumpt -l $(GOFILES))"; test -z "$$unformatted" || \
	  { echo "not formatted; run 'make fmt':" >&2; echo "$$unformatted" >&2; exit 1; }
	go vet ./...
	$(TOOLS)/staticcheck $(HANDWRITTEN)
	@for module in test/external; do \
	  echo "$$module: go vet, staticcheck" && (cd $$module && go vet ./... && $(CURDIR)/$(TOOLS)/staticcheck ./...) || exit 1; done

.PHONY: tidy-check
tidy-check: ## fail if a go.mod or go.sum is not what "go mod tidy" makes of it
	@for module in $(MODULES); do go -C $$module mod tidy -diff || { echo "$$module is not tidy; run 'go mod tidy' there" >&2; exit 1; }; done

$(TOOLS)/gofumpt: tools/go.mod tools/go.sum
	go build -C tools -buildvcs=false -o $(CURDIR)/$@ mvdan.cc/gofumpt

$(TOOLS)/staticcheck: tools/go.mod tools/go.sum
	go build -C tools -buildvcs=false -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

# --- generated code

$(TOOLS)/swagger: tools/go.mod tools/go.sum
	go build -C tools -buildvcs=false -o $(CURDIR)/$@ github.com/go-swagger/go-swagger/cmd/swagger

SWAGGER       := $(TOOLS)/swagger
SWAGGER_FLAGS := --quiet --spec=swagger.yaml --name=delegated-ipam --target=. --model-package=api/models --api-package=operations

.PHONY: generate
generate: $(SWAGGER) ## make the wire models, the server and the client from swagger.yaml
	$(SWAGGER) validate --quiet swagger.yaml
	rm -rf $(GENERATED)
	$(SWAGGER) generate server $(SWAGGER_FLAGS) --server-package=server --exclude-main --config-file=tools/swagger/server.yml
	$(SWAGGER) generate client $(SWAGGER_FLAGS) --client-package=client --skip-models --config-file=tools/swagger/client.yml

.PHONY: generate-check
generate-check: generate ## fail if the generated code differs from what swagger.yaml says
	@differs="$$(git status --porcelain -- $(GENERATED))" || exit 1; test -z "$$differs" || \
	  { echo "$$differs" >&2; echo "generated code differs from swagger.yaml; run 'make generate' and commit the result" >&2; exit 1; }

# --- rest

.PHONY: clean
clean: ## remove what was built, and ./run with its state
	rm -rf $(BIN) $(CACHE) run
