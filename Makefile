# delegated-ipam. "make help" lists the targets. Needs Go, make and git.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || cat VERSION 2>/dev/null || echo unknown)
# Inputs for each fuzz target. Not a time: "go test" sometimes reports its end as a failure.
FUZZTIME ?= 30000x
# The coverage of internal/, pkg/ and cmd/ below which "make cover" fails, in percent.
MIN_COVERAGE ?= 95.0
# The tag in the manifests of deploy/.
IMAGE_TAG ?= local
# The commit of the images and its time in seconds since 1970.
REVISION   ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGE_TIME ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

BIN         := bin
CACHE       := .cache
TOOLS       := $(CACHE)/tools
PLUGINS     := $(CACHE)/plugins
OLD_PLUGINS := $(CACHE)/plugins-old
TEST_BIN    := $(CACHE)/test/delegated-ipam
TEST_CNI    := $(CACHE)/test/delegated-ipam-cni
SCRIPTED    := $(CACHE)/test/scripted
FAILPOINTS  := $(CACHE)/test/delegated-ipam-failpoints
COVER       := $(CACHE)/cover
BENCH       := $(CACHE)/bench
BENCH_NODES := $(CACHE)/bench-bridge
# The real programs of the suites, in the versions of test/versions/versions.txt: RELEASES=older takes the
# older line of Cilium and Kubernetes.
RELEASES     ?=
export RELEASES
AGENT_TEST   := $(CACHE)/agent-test$(RELEASES:%=-%)
CLUSTER_TEST := $(CACHE)/cluster-test$(RELEASES:%=-%)

PROGRAMS       := delegated-ipam delegated-ipam-bridge delegated-ipam-cni delegated-ipam-cri
IMAGES         := delegated-ipam delegated-ipam-bridge
IMAGE_ARCHES   := amd64 arm64
IMAGE_PROGRAMS := $(foreach arch,$(IMAGE_ARCHES),$(PROGRAMS:%=$(CACHE)/image/$(arch)/%))

MODULE    := github.com/delegated-ipam/delegated-ipam
MODULES   := $(sort $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './.*'))))
GENERATED := api/models server client

# go.mod pins the version of Go that builds a release, and whose vulnerabilities are checked. The other
# targets use a newer one if it is installed.
release reproducible image sbom vulncheck: export GOTOOLCHAIN := $(shell awk '$$1 == "go" { v = "go" $$2 } $$1 == "toolchain" { v = $$2 } END { print v }' go.mod)

# Without paths in the results, Go's build cache serves each clone of the repository.
export GOFLAGS += -trimpath -buildvcs=false

# RACE=-race runs tests with the race detector, which needs a C compiler: without one "go env CGO_ENABLED"
# is 0. In CI a missing compiler is an error.
RACE ?=
DETECTOR := $(if $(filter 1,$(shell go env CGO_ENABLED))$(filter true,$(CI)),-race)
# In CI the tests of the packages have it at once; by hand "make checks" runs them again with it.
UNIT_RACE := $(if $(filter true,$(CI)),$(DETECTOR),$(RACE))

# The binaries of tests (test/harness). The daemon under test writes its coverage to GOCOVERDIR.
PLUGIN_ENV := DELEGATED_IPAM_TEST_PLUGINS=$(CURDIR)/$(PLUGINS) DELEGATED_IPAM_TEST_OLD_PLUGINS=$(CURDIR)/$(OLD_PLUGINS)
TEST_ENV   := DELEGATED_IPAM_TEST_BIN=$(CURDIR)/$(TEST_BIN) DELEGATED_IPAM_TEST_SCRIPTED=$(CURDIR)/$(SCRIPTED) \
  DELEGATED_IPAM_TEST_FAILPOINTS=$(CURDIR)/$(FAILPOINTS) DELEGATED_IPAM_TEST_CNI=$(CURDIR)/$(TEST_CNI) $(PLUGIN_ENV) GOCOVERDIR=$(CURDIR)/$(COVER)/binary

# One line for a group of packages, and the output of those that fail.
GOTEST := $(CURDIR)/tools/gotest.sh
# "go test" caches results, but does not know the binaries that a test starts.
NOCACHE := -count=1
# Most of the time of these tests is waiting for processes.
FAULTS := test/faults/campaign.sh $(NOCACHE) -parallel 6
# Without the race detector, which allocates.
COUNTS := go test $(NOCACHE) ./test/bench
# The packages of Cilium whose tests the patch of deploy/cilium/agent changes.
PATCHED := pkg/ipam pkg/ipam/cell pkg/option daemon/infraendpoints
# The tests that start isc-dhcp-server.
DHCP_TESTS := RealDHCP

.DEFAULT_GOAL := help

.PHONY: help
help: # list the targets
	@awk -F ':.*## ' '/^# --- / { print "\n" substr($$0, 7) ":" } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- build and run

.PHONY: build
build: $(PROGRAMS:%=$(BIN)/%) ## build the programs of cmd/ into bin/, static binaries

LDFLAGS = -s -w -X main.version=$(VERSION)
# gRPC's traces import text/template, with which the linker keeps 5 MB more of delegated-ipam-cri.
BUILD   = CGO_ENABLED=0 go build -tags grpcnotrace -ldflags '$(LDFLAGS)'

# A rule for each program: the Kubernetes client of the bridge takes minutes to build.
.PHONY: $(PROGRAMS:%=$(BIN)/%)
$(PROGRAMS:%=$(BIN)/%): $(BIN)/%:
	$(BUILD) -o $@ ./cmd/$*

# Not in bin/, whose programs are for the architecture of this machine.
.PHONY: $(IMAGE_PROGRAMS)
$(IMAGE_PROGRAMS):
	GOOS=linux GOARCH=$(notdir $(@D)) $(BUILD) -o $@ ./cmd/$(@F)

.PHONY: sbom
sbom: $(IMAGE_PROGRAMS) # write the bill of materials of each program of an image to bin/NAME-ARCHITECTURE.cdx.json, and the licences of its modules beside the program
	@mkdir -p $(BIN)
	@for arch in $(IMAGE_ARCHES); do for name in $(PROGRAMS); do \
	  go run -C tools ./sbom $(CURDIR)/$(CACHE)/image/$$arch/$$name $(VERSION) >$(BIN)/$$name-$$arch.cdx.json || exit 1; done; done

.PHONY: image
image: sbom ## build both images for amd64 and arm64 into bin/*.tar, tagged IMAGE_TAG; needs neither root nor a network
	@for name in $(IMAGES); do \
	  go run -C tools ./image -name $$name -tag $(IMAGE_TAG) -version $(VERSION) -revision $(REVISION) -time $(IMAGE_TIME) \
	    -license $(CURDIR)/LICENSE -out $(CURDIR)/$(BIN)/$$name.tar $(IMAGE_ARCHES:%=$(CURDIR)/$(CACHE)/image/%/$$name) || exit 1; done

# Programs, images and bills of materials of the release, before they get their names on the page.
RELEASE_PARTS := $(CACHE)/release

# The check comes first: the builds take minutes.
.PHONY: release
release: ## write what the release page of VERSION needs to bin/release/VERSION: programs, images, manifests, chart, checksums, notes; needs no network
	@go run -C tools ./release -check -version '$(VERSION)' -root $(CURDIR)
	@$(MAKE) --no-print-directory image BIN=$(RELEASE_PARTS) IMAGE_TAG=$(VERSION)
	@go run -C tools ./release -version $(VERSION) -time $(IMAGE_TIME) -root $(CURDIR) -programs $(CURDIR)/$(CACHE)/image \
	  -parts $(CURDIR)/$(RELEASE_PARTS) -out $(CURDIR)/$(BIN)/release/$(VERSION)

.PHONY: run
run: $(BIN)/delegated-ipam ## serve in the foreground from ./run with host-local, and print curl lines to try
	@tools/run.sh $(BIN)/delegated-ipam

.PHONY: plugins
plugins: # build the CNI plugins of tools/plugins, and old ones, tools/plugins-v1.9, -v1.4 and -v1.0
	@mkdir -p $(PLUGINS) $(OLD_PLUGINS)/v1.9 $(OLD_PLUGINS)/v1.4 $(OLD_PLUGINS)/v1.0
	@CGO_ENABLED=0 go build -C tools/plugins -o $(CURDIR)/$(PLUGINS)/ tool
	@CGO_ENABLED=0 go build -C tools/plugins-v1.9 -o $(CURDIR)/$(OLD_PLUGINS)/v1.9/ tool
	@CGO_ENABLED=0 go build -C tools/plugins-v1.4 -o $(CURDIR)/$(OLD_PLUGINS)/v1.4/ tool
	@CGO_ENABLED=0 go build -C tools/plugins-v1.0 -o $(CURDIR)/$(OLD_PLUGINS)/v1.0/ tool

# --- tests of each change (workflow test)

.PHONY: test
test: ## run the tests without the long runs of "make checks", then check the coverage
	@$(GOTEST) -
	@$(MAKE) --no-print-directory test-contract test-system test-unit cover
	@$(GOTEST)
	@echo "the rest: make checks (races, faults, model); each night: the suites of test/README.md"

.PHONY: test-unit
test-unit: plugins skipped ## run the tests of internal/, pkg/ and cmd/, property tests with a fifth of their cases
	@rm -rf $(COVER)/unit && mkdir -p $(COVER)/unit
	@$(PLUGIN_ENV) $(GOTEST) unit go test $(UNIT_RACE) -timeout 30m -short -skip '$(DHCP_TESTS)' -cover -covermode=atomic -coverpkg=./internal/...,./pkg/...,./cmd/... ./internal/... ./pkg/... ./cmd/... \
	  -args -test.gocoverdir=$(CURDIR)/$(COVER)/unit

.PHONY: test-system
test-system: plugins test-binaries skipped ## run the tests of test/ with the real binary: end to end, bridge, counts
	@mkdir -p $(COVER)/binary
	@$(TEST_ENV) $(GOTEST) system go test $(NOCACHE) $(RACE) -parallel 6 -timeout 30m -short -skip '$(DHCP_TESTS)' -p 3 $$(go list ./test/... | grep -Ev '/test/(image|bench|faults|layers)$$')
	@$(TEST_ENV) $(GOTEST) counts $(COUNTS)

.PHONY: test-contract
test-contract: plugins test-binaries skipped ## run the contract tests: swagger.yaml, the real Cilium client, the curl lines of the docs
	@mkdir -p $(COVER)/binary
	@cd test/external && $(TEST_ENV) $(GOTEST) contract go test $(RACE) $(NOCACHE) -timeout 30m ./contract

.PHONY: test-deploy
test-deploy: plugins test-binaries ## render both charts, the manifests and the systemd unit, and run the daemon with the results
	@mkdir -p $(COVER)/binary
	cd test/external && $(TEST_ENV) go test $(NOCACHE) ./deploy

.PHONY: test-observe
test-observe: ## test the dashboard and each alert with Prometheus' parsers and rule engine
	cd test/external && go test $(NOCACHE) ./observe

.PHONY: test-image
test-image: image plugins # import the images into containerd and run them with buildah over the real host-local; needs root
	$(PLUGIN_ENV) DELEGATED_IPAM_TEST_IMAGES=$(CURDIR)/$(BIN) go test $(NOCACHE) ./test/image

.PHONY: test-layers
test-layers: # check the links of the pages, and that one function reads each fact of a profile
	go test $(NOCACHE) ./test/layers

.PHONY: test-tools
test-tools: # run the tests of tools/
	go test -C tools $(NOCACHE) ./goinstall ./image ./release ./sbom

.PHONY: test-race
test-race: plugins # run the tests of internal/, pkg/ and cmd/ with the race detector
	$(PLUGIN_ENV) go test $(DETECTOR) $(NOCACHE) -timeout 30m -short -skip '$(DHCP_TESTS)' ./internal/... ./pkg/... ./cmd/...

.PHONY: test-property
test-property: # run the packages that have property tests again, with all cases
	go test $(RACE) $(NOCACHE) $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./internal/... ./pkg/... ./cmd/... | sed -n 's/ .*pgregory.net.rapid.*//p')

.PHONY: race
race: # run the tests and the sample of the faults with the race detector in all programs
	@$(MAKE) --no-print-directory test test-property faults-sample RACE=$(DETECTOR)

# In CI a skipped test is an error: "go test" alone would call it a success.
.PHONY: test-dhcp
test-dhcp: plugins # run the tests with a real isc-dhcp-server; needs root, network namespaces and dhcpd
	@$(PLUGIN_ENV) go test $(DETECTOR) $(NOCACHE) -v -run '$(DHCP_TESTS)' ./internal/plugin ./test/e2e >$(CACHE)/dhcp.log || { cat $(CACHE)/dhcp.log; exit 1; }
	@grep -E '^(--- SKIP|ok)' -B1 $(CACHE)/dhcp.log
	@! grep -q '^--- SKIP' $(CACHE)/dhcp.log || test "$(CI)" != true || { echo "skipped, which is an error in CI" >&2; exit 1; }

.PHONY: faults-sample
faults-sample: plugins test-binaries skipped # run a sample of the faults, with a kill at each failpoint
	@mkdir -p $(COVER)/binary
	$(TEST_ENV) $(FAULTS) $(RACE) -timeout 30m ./test/faults

.PHONY: faults-every
faults-every: plugins test-binaries ## kill the daemon and the plugin once at every visit of every failpoint
	@mkdir -p $(COVER)/binary
	@DELEGATED_IPAM_FAULTS=every $(TEST_ENV) $(FAULTS) -timeout 30m -run '^TestKill$$' ./test/faults

# A third of the time is garbage collection otherwise.
MODEL := GOGC=400 GOMEMLIMIT=2GiB go run ./test/model

.PHONY: explore
explore: # explore the protocols of attachments and of the bridge exhaustively within bounds
	go test $(NOCACHE) -run '^TestExplore' ./internal/bridge/planner
	$(MODEL) -rules=false $(DRAW)

# Takes a quarter of an hour.
.PHONY: model
model: ## explore, and show that the exploration fails without each rule (test/model/explore)
	$(MODEL) $(DRAW)

.PHONY: fuzz
fuzz: # run each fuzz target with FUZZTIME inputs, or for that time
	@grep -rl --include='*_test.go' '^func Fuzz' internal pkg cmd | while read -r file; do \
	  sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file" | while read -r name; do \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" || exit 1; \
	  done || exit 1; \
	done

.PHONY: reproducible
reproducible: # build the programs and a release twice and compare them
	tools/reproducible.sh

.PHONY: test-binaries
test-binaries: # build the binaries that tests run: one that counts its coverage, one with failpoints, the scripted plugin
	@rm -rf $(COVER)/binary
	@go build $(RACE) -cover -covermode=atomic -coverpkg=./internal/...,./pkg/...,./cmd/... -o $(TEST_BIN) ./cmd/delegated-ipam
	@go build -cover -covermode=atomic -coverpkg=./internal/...,./cmd/... -o $(TEST_CNI) ./cmd/delegated-ipam-cni
	@go build -o $(SCRIPTED) ./test/scripted
	@go build -tags failpoints -o $(FAILPOINTS) ./cmd/delegated-ipam

.PHONY: skipped
skipped: # print which tests this machine skips, and why
	@$(if $(DETECTOR),:,echo "skipped: the race detector, because no C compiler ($$(go env CC)) was found")
	@command -v strace >/dev/null || echo "skipped: faults at single system calls, because strace was not found; plugins are killed after delays"
	@command -v curl >/dev/null || echo "skipped: the curl lines of the docs, because curl was not found"
	@test "$$(id -u)" = 0 || echo "skipped: requests by another user, because only root can make them"

.PHONY: cover
cover: # print the coverage of the product in the last tests; fail below MIN_COVERAGE percent
	@test -d $(COVER)/unit || { echo "no coverage data in $(COVER)/unit; run 'make test' first" >&2; exit 1; }
	@go tool covdata textfmt -pkg=$(MODULE)/internal/...,$(MODULE)/pkg/...,$(MODULE)/cmd/... -i=$(COVER)/unit,$(COVER)/binary -o $(COVER)/all.txt
	@go tool cover -func=$(COVER)/all.txt | awk -v min=$(MIN_COVERAGE) '/^total:/ { got = $$3; sub("%", "", got); \
	  printf "coverage: %s %%, minimum %s %%\n", got, min; exit (got + 0 < min) }'

# --- suites of each night (workflow nightly)

.PHONY: faults
faults: plugins test-binaries skipped ## run the whole fault campaign, with random cases from a new seed, and print a table; takes an hour
	@mkdir -p $(COVER)/binary
	@seed="$${DELEGATED_IPAM_FAULTS_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"; \
	  DELEGATED_IPAM_FAULTS=full DELEGATED_IPAM_FAULTS_SEED="$$seed" $(TEST_ENV) $(FAULTS) -timeout 2h ./test/faults

.PHONY: agent-test
agent-test: build plugins ## run a real cilium-agent, unmodified over the bridge and patched over the daemon; needs root; the first build takes most of an hour
	test/agent/build.sh $(AGENT_TEST)
	go build -o $(SCRIPTED) ./test/scripted
	go test -C test/programs/cilium$(RELEASES:%=-%) -modfile $(CURDIR)/$(AGENT_TEST)/patched/patched.mod $(PATCHED:%=github.com/cilium/cilium/%)
	go test -c -o $(AGENT_TEST)/agent.test ./test/agent
	AGENT_TEST_DIR=$${AGENT_TEST_DIR:-$(CURDIR)/$(AGENT_TEST)} AGENT_TEST_CHAOS=$${AGENT_TEST_CHAOS:-10m} DELEGATED_IPAM_TEST_SCRIPTED=$(CURDIR)/$(SCRIPTED) \
	  test/agent/run.sh $(AGENT_TEST)/agent.test

# Each is pinned by the module tools/plugins-NAME, in a version that Go's module proxy serves.
OTHER_PLUGINS := azure-vnet-ipam calico-ipam spiderpool

.PHONY: plugin-test
plugin-test: plugins test-binaries ## run the daemon over the real whereabouts, two versions with their controllers, a real kube-apiserver, and over three other plugins; needs root; the first build takes minutes
	@mkdir -p $(COVER)/binary
	test/programs/build.sh $(AGENT_TEST)/bin etcd kube-apiserver
	@mkdir -p $(CACHE)/plugin-test
	go test -c -o $(CACHE)/plugin-test/plugin.test ./test/whereabouts
	for module in plugins-whereabouts plugins-whereabouts-v0.9; do \
	  test/whereabouts/build.sh $$module $(CACHE)/plugin-test/$$module && \
	  PLUGIN_TEST_DIR=$(CURDIR)/$(CACHE)/plugin-test/$$module PLUGIN_TEST_APISERVER=$(CURDIR)/$(AGENT_TEST)/bin/kube-apiserver $(TEST_ENV) \
	    test/whereabouts/run.sh $(CACHE)/plugin-test/plugin.test -test.run "$${PLUGIN_TEST_RUN:-.}" || exit 1; done
	for plugin in $(OTHER_PLUGINS); do \
	  CGO_ENABLED=0 go build -C tools/plugins-$$plugin -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$(CACHE)/plugin-test/other/$$plugin tool || exit 1; done
	go test -c -o $(CACHE)/plugin-test/plugins.test ./test/plugins
	PLUGIN_TEST_DIR=$(CURDIR)/$(CACHE)/plugin-test/other PLUGIN_TEST_ETCD=$(CURDIR)/$(AGENT_TEST)/bin/etcd $(TEST_ENV) \
	  test/plugins/run.sh $(CACHE)/plugin-test/plugins.test -test.run "$${PLUGIN_TEST_RUN:-.}"

.PHONY: network-test
network-test: $(BIN)/delegated-ipam-bridge ## run delegated-ipam-bridge network with a real kube-apiserver; needs root; the first build takes minutes
	test/programs/build.sh $(AGENT_TEST)/bin etcd kube-apiserver
	@test/cluster/crds.sh $(CACHE)/network-test/crds
	go test -c -o $(CACHE)/network-test/network.test ./test/network
	NETWORK_TEST_APISERVER=$(CURDIR)/$(AGENT_TEST)/bin/kube-apiserver \
	  NETWORK_TEST_BRIDGE=$(CURDIR)/$(BIN)/delegated-ipam-bridge NETWORK_TEST_MANIFESTS=$(CURDIR)/deploy/kubernetes/base \
	  NETWORK_TEST_CRDS=$(CURDIR)/$(CACHE)/network-test/crds \
	  test/network/run.sh $(CACHE)/network-test/network.test

.PHONY: audit-test
audit-test: $(BIN)/delegated-ipam-bridge ## run the audit of 1,200 nodes with a real kube-apiserver; needs root; the first build takes minutes
	test/programs/build.sh $(AGENT_TEST)/bin etcd kube-apiserver
	test/audit/build.sh $(CACHE)/audit-test
	go test -c -o $(CACHE)/audit-test/audit.test ./test/audit
	AUDIT_TEST_DIR=$(CURDIR)/$(CACHE)/audit-test AUDIT_TEST_APISERVER=$(CURDIR)/$(AGENT_TEST)/bin/kube-apiserver \
	  AUDIT_TEST_BRIDGE=$(CURDIR)/$(BIN)/delegated-ipam-bridge AUDIT_TEST_MANIFEST=$(CURDIR)/deploy/kubernetes/base/audit/audit.yaml \
	  test/audit/run.sh $(CACHE)/audit-test/audit.test

.PHONY: client-test
client-test: cilium-dbg-test ## run Cilium's Go clients of v1.15 to v1.20 and its cilium-dbg against the daemon; needs the network
	@mkdir -p $(CACHE)/client-test $(COVER)/binary
	CLIENT_TEST_DIR=$(CURDIR)/$(CACHE)/client-test $(TEST_ENV) go test $(NOCACHE) -timeout 1h ./test/clients

.PHONY: cilium-dbg-test
cilium-dbg-test: plugins test-binaries # build the real cilium-dbg and run its test
	@mkdir -p $(COVER)/binary
	test/programs/build.sh $(AGENT_TEST)/bin cilium-dbg
	cd test/external && DELEGATED_IPAM_TEST_CILIUM_DBG=$(CURDIR)/$(AGENT_TEST)/bin/cilium-dbg $(TEST_ENV) go test $(RACE) $(NOCACHE) -run CiliumDbg ./contract

.PHONY: allocator-test
allocator-test: # run the planner of the bridge with Cilium's allocator in random order
	go test -C test/allocator $(NOCACHE) ./...

# --- by hand

.PHONY: cluster-test
cluster-test: build plugins ## run images and manifests on two real nodes with kubelet, containerd and cilium-agent; needs root; the first build takes most of an hour
	@$(MAKE) --no-print-directory image IMAGE_ARCHES=$$(go env GOARCH) BIN=$(CLUSTER_TEST)/images
	@$(MAKE) --no-print-directory release VERSION=v0.0.0-snapshot BIN=$(CLUSTER_TEST)
	test/kubernetes/build.sh $(CLUSTER_TEST) $(AGENT_TEST)
	go test -c -o $(CLUSTER_TEST)/cluster.test ./test/kubernetes
	CLUSTER_TEST_DIR=$(CURDIR)/$(CLUSTER_TEST) CLUSTER_TEST_AGENT_DIR=$(CURDIR)/$(AGENT_TEST) test/kubernetes/run.sh $(CLUSTER_TEST)/cluster.test

.PHONY: runtime-test
runtime-test: build plugins ## run delegated-ipam-cni under a real containerd with runc; needs root
	test/runtime/build.sh $(CACHE)/runtime-test $(CLUSTER_TEST)/bin
	go test -c -o $(CACHE)/runtime-test/runtime.test ./test/runtime
	$(PLUGIN_ENV) DELEGATED_IPAM_TEST_BIN=$(CURDIR)/$(BIN)/delegated-ipam RUNTIME_TEST_BIN=$(CURDIR)/$(BIN) \
	  RUNTIME_TEST_DIR=$(CURDIR)/$(CACHE)/runtime-test RUNTIME_TEST_PROGRAMS=$(CURDIR)/$(CLUSTER_TEST)/bin \
	  test/runtime/run.sh $(CACHE)/runtime-test/runtime.test -test.run "$${RUNTIME_TEST_RUN:-.}"

.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck ## check all modules, but plugins whose old versions are run, for known vulnerabilities in code that is called; needs the network
	@for module in $(filter-out $(OTHER_PLUGINS:%=./tools/plugins-%),$(MODULES)); do $(TOOLS)/govulncheck -C $$module ./... tool || exit 1; done

.PHONY: mutants
mutants: plugins ## test 200 mutants of engine, journal, runner and planner; print the share that the tests detect
	$(PLUGIN_ENV) go run ./test/mutants internal/daemon/engine internal/daemon/journal internal/plugin internal/bridge/planner

BENCH_PAIRS ?= 300

# State and store are below the checkout, on its disk: /tmp may be memory.
.PHONY: bench
bench: $(BIN)/delegated-ipam $(BIN)/delegated-ipam-cni plugins ## compare the cost with the bare plugin, and after bench-cilium with Cilium; takes minutes, on a quiet machine
	@mkdir -p $(BENCH)
	go build -o $(BENCH)/bench ./test/bench
	$(BENCH)/bench -binary $(BIN)/delegated-ipam -cni $(BIN)/delegated-ipam-cni -plugins $(PLUGINS) -cilium $(BENCH)/cilium -dir $(BENCH)/run \
	  -pairs $(BENCH_PAIRS) -page docs/reference/performance.md

# Cilium's server with all its dependencies takes minutes to build the first time.
.PHONY: bench-cilium
bench-cilium: # bench, also with Cilium's own server and allocator
	@mkdir -p $(BENCH)
	CGO_ENABLED=0 go build -C test/programs/cilium -o $(CURDIR)/$(BENCH)/cilium ./cilium-ipam
	@$(MAKE) --no-print-directory bench

.PHONY: bench-bridge
bench-bridge: $(BIN)/delegated-ipam-bridge ## measure the bridge with many nodes over a real kube-apiserver; the first build takes minutes
	test/benchbridge/build.sh $(BENCH_NODES) $(AGENT_TEST)
	go test -c -o $(BENCH_NODES)/bench.test ./test/benchbridge
	BENCH_BRIDGE_ROOT=$(CURDIR) BENCH_BRIDGE_DIR=$(CURDIR)/$(BENCH_NODES)/run \
	  BENCH_BRIDGE_BIN=$${BENCH_BRIDGE_BIN:-$(CURDIR)/$(BIN)/delegated-ipam-bridge} BENCH_BRIDGE_OPERATOR=$(CURDIR)/$(BENCH_NODES)/cilium-operator-ipam \
	  BENCH_BRIDGE_APISERVER=$(CURDIR)/$(AGENT_TEST)/bin/kube-apiserver BENCH_BRIDGE_CRDS=$(CURDIR)/$(AGENT_TEST)/crds \
	  test/benchbridge/run.sh $(BENCH_NODES)/bench.test -test.run "$${BENCH_BRIDGE_RUN:-.}"

.PHONY: bench-counts
bench-counts: plugins test-binaries # count heap allocations, processes, fsyncs and writes of each operation; fail if they grew
	$(TEST_ENV) $(COUNTS)

.PHONY: tour
tour: # play the sessions of docs/operate/tour.md again and draw their pictures; needs Node.js and npm
	tools/tour.sh $(CACHE)/tour

.PHONY: screenshot
screenshot: plugins test-binaries $(BIN)/delegated-ipam-bridge # run daemons and a bridge under Prometheus and draw the dashboard; needs prometheus, Node.js, chromium, pngquant
	$(TEST_ENV) tools/screenshot.sh $(CACHE)/screenshot $(CURDIR)/$(BIN)/delegated-ipam-bridge

# --- checks of each change (workflow test)

.PHONY: ci
ci: # run the tests, then the checks
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory checks

.PHONY: checks
checks: check-code check-faults check-images ## run the checks that "make test" omits

# The groups are the jobs of .github/workflows/test.yml.
.PHONY: check-code check-faults check-images
check-code: lint lint-workflows tidy-check generate-check test-tools test-layers
check-faults: $(if $(filter true,$(CI)),,test-race) test-property faults-sample explore test-dhcp fuzz
check-images: test-observe test-deploy test-image reproducible

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## format the hand-written code
	$(TOOLS)/golangci-lint fmt

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## check imports, format and code (.golangci.yml)
	$(TOOLS)/golangci-lint run --allow-parallel-runners ./...
	$(TOOLS)/golangci-lint run --allow-parallel-runners --build-tags failpoints ./internal/failpoint
	cd test/external && $(CURDIR)/$(TOOLS)/golangci-lint run --allow-parallel-runners ./...
	cd tools && $(CURDIR)/$(TOOLS)/golangci-lint run --allow-parallel-runners ./...

.PHONY: lint-workflows
lint-workflows: $(TOOLS)/actionlint # check .github/workflows: syntax, each action at a commit, only the release may write
	$(TOOLS)/actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	@! grep -n 'uses:' .github/workflows/*.yml | grep -vE '@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$$'
	@! grep -LE '^permissions:( \{\})?$$' .github/workflows/*.yml | grep .
	@! grep -nE 'write-all|: write$$' .github/workflows/*.yml | grep -vE 'release.yml:.*(contents|id-token|attestations|packages): write'

.PHONY: tidy-check
tidy-check: # fail if "go mod tidy" would change a go.mod or go.sum
	@for module in $(MODULES); do go -C $$module mod tidy -diff || { echo "$$module is not tidy; run 'go mod tidy' there" >&2; exit 1; }; done

$(TOOLS)/golangci-lint: tools/go.mod tools/go.sum
	go build -C tools -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Not in tools/go.mod: actionlint needs an older YAML library than other tools.
$(TOOLS)/actionlint $(TOOLS)/govulncheck: tools/checks/go.mod tools/checks/go.sum
	go build -C tools/checks -o $(CURDIR)/$(TOOLS)/ tool

# --- generated files

$(TOOLS)/swagger: tools/go.mod tools/go.sum
	go build -C tools -o $(CURDIR)/$@ github.com/go-swagger/go-swagger/cmd/swagger

SWAGGER       := $(TOOLS)/swagger
SWAGGER_FLAGS := --quiet --spec=swagger.yaml --name=delegated-ipam --target=. --model-package=api/models --api-package=operations

.PHONY: generate
generate: $(SWAGGER) ## generate models, server and client from swagger.yaml, and parts of the pages
	$(SWAGGER) validate --quiet swagger.yaml
	rm -rf $(GENERATED)
	$(SWAGGER) generate server $(SWAGGER_FLAGS) --server-package=server --exclude-main --config-file=tools/swagger/server.yml
	$(SWAGGER) generate client $(SWAGGER_FLAGS) --client-package=client --skip-models --config-file=tools/swagger/client.yml
	go run ./test/reference

.PHONY: versions
versions: ## pin the versions of test/versions/versions.txt in all modules, and generate README's table of them; needs the network
	test/versions/pin.sh
	go run ./test/reference

$(TOOLS)/helm: test/external/go.mod test/external/go.sum
	go build -C test/external -o $(CURDIR)/$@ helm.sh/helm/v3/cmd/helm

.PHONY: manifests
manifests: $(TOOLS)/helm ## render deploy/kubernetes, deploy/prometheus and deploy/grafana from the chart of deploy/chart
	tools/manifests.sh $(TOOLS)/helm

.PHONY: generate-check
generate-check: generate manifests ## fail if a generated file differs from its source
	@differs="$$(git status --porcelain -- $(GENERATED) README.md docs/reference docs/operate/doctor.md docs/design/development.md deploy)" || exit 1; test -z "$$differs" || \
	  { echo "$$differs" >&2; echo "generated files differ from their sources; run 'make generate manifests' and commit the result" >&2; exit 1; }

# --- rest

.PHONY: clean
clean: ## remove bin/, .cache/ and run/
	rm -rf $(BIN) $(CACHE) run
