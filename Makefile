# Everything a developer runs. "make check" is exactly what CI runs.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory

PKG       ?= ./...
FUZZTIME  ?= 10s
BENCH     ?= .
FAULT_SEEDS ?= 20
MINUTES   ?= 30
SEED      ?= 1
SEEDS     ?=
# How long the tests of one package may take, on a machine that has other things to do as well.
MOST      := 40m
STEPS     := setup gofmt vet cross lint mod generated test
# The systems beside Linux that a release is built for, each on one of its two architectures: no code of ours depends
# on them.
FOREIGN   := darwin/arm64 windows/amd64
# GoReleaser is no tool of tools/go.mod: it has 330 modules, 3 GB of them, and needs four minutes to build. 2.16 is the
# last that Go 1.26 can build.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.16.0
# The modules beside the main one: what only they need, nobody else downloads. go.work is for
# editors and for "go run ./examples/..."; what is checked here does not need it.
MODULES   := tools examples examples/cedar examples/count-words test/agents test/bench test/clients test/conformance test/console test/deploy test/install test/kube test/observe test/sdk
export GOWORK := off
# Without it the directory of a checkout is part of what the build cache looks for: each clone would compile, vet and
# lint everything anew. What tests build has it as well, so all compile a package once, as "make build" does.
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
# Whether everything is meant, and so the other modules too.
ALL       := $(filter ./...,$(PKG))

# The race detector makes what it looks at five to ten times as slow. A package runs with it unless it is named here:
# - pure packages start no goroutine (TestPure), and the model of a ticket key plays in one thread; the same holds for
#   the other modules;
# - tests of files, and those of processes: what they start is built without the detector, and they only wait for it;
# - brokertest compares nats-server with membroker, whose goroutines test/sim runs with the detector;
# - wasm, which starts no goroutine either: with the detector wazero takes five times as long to compile a module;
# - sandbox, which starts itself again for each command, test/sim, which plays many histories, and schema and tokens,
#   which mostly compute. RACED are their tests of our own goroutines, which run with the detector besides.
PLAIN     := . ./internal/access ./internal/admission ./internal/archive ./internal/archtest ./internal/batch ./internal/broker/brokertest \
	./internal/catalog ./internal/display ./internal/events ./internal/history ./internal/manifest ./internal/outcome \
	./internal/parquet ./internal/partition ./internal/pattern ./internal/policy ./internal/presence ./internal/protect \
	./internal/provider/... ./internal/redact ./internal/registry ./internal/repair ./internal/replay ./internal/report ./internal/sandbox ./internal/schema ./internal/shard \
	./internal/shell ./internal/sse ./internal/submission ./internal/suggest ./internal/ticket ./internal/tokens ./internal/wasm ./test/docs ./test/e2e ./test/faults ./test/sim ./test/wire
# A program with the race detector waits for a second before it ends, for races of goroutines that are about to end.
# Ours have ended.
export GORACE := atexit_sleep_ms=50
RACED_TOO := ./internal/sandbox ./internal/schema ./internal/tokens ./test/sim
RACED     := TestEndsAreToldApart TestOneWriterAtATime TestTheNetworkIsTheProxy TestTheProxyConnectsToWhatIsListed \
	TestALostSpawner TestACommandIsToldToStop TestALaunchedProgramEndsWithItsContext TestAProgramIsToldToStop \
	TestSimulation TestFound TestOnARealServer TestChecksShareASchema TestCount
# What takes longest begins first, so that no core waits for it at the end.
SLOWEST   := ./test/faults ./test/sim ./test/e2e ./internal/sandbox ./test/pool ./internal/wasm ./test/http \
	./internal/broker/natsbroker ./internal/dispatcher ./test/mcp ./internal/worker ./test/toolsets ./internal/lock

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile
	@echo "  PKG=./internal/batch narrows test, lint, fuzz and bench."
	@echo "  FUZZTIME=1m, BENCH=Fold and FAULT_SEEDS=5 are for fuzz, bench and faults."

.PHONY: check
check: ## All that CI checks except MCP's suites, openapi and the release: setup, gofmt, vet, lint, mod, generated, test
	@for step in $(STEPS); do \
		echo "== $$step"; begin=$$SECONDS; \
		$(MAKE) $$step; \
		[ $$step = test ] || echo "   ok, $$((SECONDS - begin)) s"; \
	done

.PHONY: setup
setup: ## Name the tools that are missing, with the command that installs each
	@.ci/setup

.PHONY: build
build: ## Build the commands into bin/, without what only debuggers read
	go build -trimpath -ldflags "-s -w" -o bin/ ./cmd/...

# OTHERS tests the other modules. What is said of one is read when it is over, from a file that is named then.
define OTHERS
said=$$(mktemp -d); trap 'rm -rf "$$said"' EXIT; \
		printf '%s\n' $(MODULES) | xargs -P $$at_once -I {} bash -c \
			'go test -C "$$2" -p 1 -timeout $(MOST) -vet=off -json ./... >"$$1/$${2//\//-}" || failed=1; \
			echo "$$1/$${2//\//-}"; exit $${failed:-0}' module "$$said" {} | \
		while read -r file; do cat "$$file"; done
endef

# As many packages at a time as there are processors: with one more, programs that are linked keep tests with time limits
# waiting for seconds. For the same reason what many tests link is compiled before any of them runs. As many of the other
# modules are tested at a time, each a package at a time: most of them have one, and wait for browsers, installers and
# the like. vet is a step of its own.
.PHONY: test
test: ## Run the tests, those of goroutines with the race detector, and count them
	@all=$$(go list $(if $(ALL),$(SLOWEST)) $(PKG)); plain=$$(go list $(PLAIN)); \
	raced=$$(grep -Fxv "$$plain" <<<"$$all" || true); plain=$$(grep -Fx "$$plain" <<<"$$all" || true); \
	at_once=$$(getconf _NPROCESSORS_ONLN); \
	failed=0; run() { go test -p $$at_once -timeout $(MOST) -vet=off -json "$$@" || failed=1; }; \
	{ \
		$(if $(ALL),go build -race ./... >&2 || failed=1;) \
		[[ -z $$raced ]] || run -race $$raced; \
		[[ -z $$plain ]] || run $$plain; \
		$(if $(ALL),run -race -run "^($$(tr ' ' '|' <<<'$(RACED)'))$$" $(RACED_TOO);) \
		$(if $(ALL),$(OTHERS) || failed=1;) \
		exit $$failed; \
	} | go run -C $(CURDIR)/tools ./testsum

.PHONY: sim
sim: ## Play some histories of the real code and all of a ticket key; SEED=n draws one, SEEDS=n plays n, TEETH=n tries n without each fence
ifneq ($(origin SEED),file)
	@go test ./test/sim -run '^TestSeed$$' -count=1 -v -seed $(SEED)
else ifneq ($(SEEDS),)
	@go test ./test/sim -run '^TestSimulation$$' -count=1 -v -timeout 0 -seeds $(SEEDS)
else ifneq ($(TEETH),)
	@go test ./test/sim -run '^TestTeeth$$' -count=1 -v -timeout 0 -teeth $(TEETH)
else
	@go test ./internal/ticket ./test/sim
endif

.PHONY: conformance
conformance: ## Run MCP's conformance suite against a pool, and print its score (needs npm)
	@test/conformance/run

.PHONY: mcp-everything
mcp-everything: ## Call all tools of MCP's reference server through a pool (needs npm)
	@test/everything/run

.PHONY: openapi
openapi: ## Check the OpenAPI document, what is generated from it, and the clients beside the providers' SDKs (needs npm)
	@test/openapi/run

.PHONY: openapi-types
openapi-types: ## Write the OpenAPI document, and the clients' types that are made from it, again (needs npm)
	@go test ./internal/api -run '^TestCommittedDocument$$' -count=1 -update
	@test/openapi/run --update

.PHONY: deploy-test
deploy-test: ## Run the fleet of deploy/compose.yaml in Docker, break it, scale it and upgrade it (not in CI)
	@test/deploy/run

.PHONY: brokertest
brokertest: ## Hold what is measured of NATS on a cluster of three servers, and compare random operations that expire
	go test ./internal/broker/brokertest -count=1 -v -run 'RealServer|RandomOperations' -cluster -timed

.PHONY: faults
faults: ## Break real processes in every way of docs/faults.md, with FAULT_SEEDS seeds each
	go test ./test/faults -count=1 -timeout 4h -seeds $(FAULT_SEEDS)

.PHONY: soak
soak: ## Break everything at random for MINUTES, beginning with SEED: killed, restarted, stopped and cut off
	go test ./test/faults -run '^TestSoak$$' -count=1 -v -timeout 0 -soak $(MINUTES)m -seed $(SEED)

.PHONY: lint
lint: ## Run staticcheck, at the version of tools/go.mod
	@go tool -modfile=tools/go.mod staticcheck $(PKG)
	@for m in $(if $(ALL),$(MODULES)); do (cd $$m && go tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...); done

.PHONY: vet
vet: ## Run go vet
	@go vet ./...
	@for m in $(MODULES); do go -C $$m vet ./...; done

.PHONY: cross
cross: ## Vet everything and link toolyard for macOS and Windows
	@for t in $(FOREIGN); do \
		GOOS=$${t%/*} GOARCH=$${t#*/} go vet ./... && GOOS=$${t%/*} GOARCH=$${t#*/} go build -o /dev/null ./cmd/toolyard || \
			{ echo "above: $$t"; exit 1; }; \
	done

.PHONY: release-check
release-check: ## Check .goreleaser.yaml with GoReleaser (builds it the first time: minutes)
	@$(GORELEASER) check

.PHONY: snapshot
snapshot: ## Make all of a release in dist/ but the image, and publish nothing
	@$(GORELEASER) release --snapshot --clean --skip=docker

.PHONY: release-dry-run
release-dry-run: ## Make a snapshot and the npm packages of it, and check that they are whole (needs npm)
	@test/install/dry-run

.PHONY: npm
npm: ## Make npm packages of the binaries in dist/ (needs npm)
	@node npm/build.mjs dist bin/npm

.PHONY: gofmt
gofmt: ## Check that the code is formatted
	@unformatted=$$(gofmt -s -l .); [ -z "$$unformatted" ] || { echo "not formatted; run make fmt:"; echo "$$unformatted"; exit 1; }

.PHONY: fmt
fmt: ## Format the code
	@gofmt -s -w .

.PHONY: mod
mod: ## Check that go.mod and go.sum are tidy and the modules unchanged
	@GOWORK=$(CURDIR)/go.work go mod verify >/dev/null
	@for m in . $(MODULES); do go -C $$m mod tidy -diff; done

.PHONY: generated
generated: ## Check that go generate changes nothing
	@sums() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null || true; }; \
	before=$$(sums); go generate ./...; \
	diff <(echo "$$before") <(sums) || { echo "go generate changed the files above; commit them with what they are made from"; exit 1; }

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME, one after the other
	@files='{{$$d := .Dir}}{{range .TestGoFiles}}{{$$d}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$d}}/{{.}} {{end}}'; \
		{ go list -f "$$files" $(PKG); for m in $(if $(ALL),$(MODULES)); do go -C $$m list -f "$$files" ./...; done; } | tr -s ' ' '\n' | \
		xargs -r awk 'match($$0, /^func Fuzz[A-Za-z0-9_]*/) {f = FILENAME; sub(/\/[^\/]*$$/, "", f); print f, substr($$0, 6, RLENGTH - 5)}' | \
		while read -r dir name; do \
			echo "== $$name in $${dir#$$PWD/}"; \
			go -C "$$dir" test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) . </dev/null; \
		done

.PHONY: bench
bench: ## Run the benchmarks that match BENCH
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

.PHONY: bench-peers
bench-peers: ## Measure Toolyard beside a floor and its peers; QUICK=1 is one short round
	@test/bench/run

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist
	find . -name '*.test' -type f -not -path './.git/*' -delete
