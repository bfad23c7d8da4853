# Triphammer. `make help` lists what can be asked for.

GO      ?= go
BIN     := bin/triphammer
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Names and addresses are looked up without the C library, and SQLite loads no code, so that
# the program can have the C library linked in (make dist).
# nomsgpack: gin's MessagePack, which nothing here speaks, would be a seventh of the program.
TAGS    := netgo,osusergo,sqlite_omit_load_extension,nomsgpack
FUZZTIME ?= 20s
# A PostgreSQL server beside a command, and the packages whose tests keep something in a store.
WITH_POSTGRES := $(GO) run ./server/store/storetest/withpostgres
KEPT    := ./server ./server/access ./server/answer ./server/delivery ./server/ledger ./server/lookup ./server/notify ./server/run ./server/socket ./server/store ./server/worker
DEMO    ?= .triphammer/demo

export CGO_ENABLED := 1

.DEFAULT_GOAL := help
.PHONY: build supervisor build-darwin dist tags test test-full test-postgres soak lint fmt screenshots bench loadtest sizing fuzz demo check help

build: supervisor ## build bin/triphammer
	$(GO) build -trimpath -tags $(TAGS),supervisor -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/triphammer

# What the program contains to start runs with: cmd/supervisor, without the C library, for GOOS and GOARCH.
supervisor:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags $(TAGS) -ldflags '-s -w' -o bin/supervisor ./cmd/supervisor
	GOOS= GOARCH= $(GO) run cmd/supervisor/pack.go bin/supervisor server/worker/executor/supervisor.gz

build-darwin: ## what macOS can have, into bin: checking definitions, and the client of a server elsewhere
	for arch in amd64 arm64; do CGO_ENABLED=0 GOOS=darwin GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)-darwin-$$arch ./cmd/triphammer || exit 1; done

dist: ## what people install, into dist: archives, .deb, .rpm, images, checksums (needs gcc-aarch64-linux-gnu and mmdebstrap)
	cd deploy/dist && $(GO) run . -version '$(VERSION)' -out '$(CURDIR)/dist' $(DISTFLAGS)

tags: # what make dist builds with
	@echo $(TAGS),supervisor

test: ## every test that needs Go, gcc, git and make alone (under 10 minutes on 2 cores)
	$(GO) test -count=1 -timeout 15m ./...

# Tests that compute for long, in one goroutine: the race detector makes them six times as slow, and sees nothing.
COMPUTING := ^(TestSchemaEveryPlace|TestSchemaMutants|TestSchemaFilterKeys|TestHostileRepositories|TestStrangerTrees|TestCronYear|TestCacheDamage)$$

# Tests of the program start it thousands of times: only its servers and workers have the race detector there.
# Most of them wait more than they compute.
PROGRAM := ./cmd/triphammer

test-full: supervisor ## the same under the race detector, what needs more than that, and every fuzz target for 5 seconds
	$(WITH_POSTGRES) $(GO) test -count=1 -race -tags full,supervisor -timeout 40m -skip '$(COMPUTING)' $$($(GO) list ./... | grep -v '/cmd/triphammer$$')
	$(WITH_POSTGRES) $(GO) test -count=1 -tags full,raced -parallel 3 -timeout 40m $(PROGRAM)
	$(GO) test -count=1 -tags full -run '$(COMPUTING)' ./factory ./applier/gitrepo
	$(MAKE) test-postgres
	$(MAKE) fuzz FUZZTIME=5s

test-postgres: ## every test of what a server keeps, on PostgreSQL instead of SQLite (needs PostgreSQL's programs)
	TRIPHAMMER_TEST_STORE=postgres $(WITH_POSTGRES) $(GO) test -count=1 -timeout 20m $(KEPT)

# Tests of docs/reliability.md that make test-full runs in part.
SOAK := ^(TestOutputsKilled|TestCampaign|TestPowerLoss|TestKillAtCall|TestFirstStartCut|TestIOFaults|TestUpgradeKilled)$$

soak: ## what test-full does in part: all kills, crash states and faults of docs/reliability.md (20 minutes; needs PostgreSQL's programs)
	$(WITH_POSTGRES) $(GO) test -count=1 -tags full -timeout 90m -run '$(SOAK)' $(PROGRAM) -campaign -v

lint: ## gofumpt, go vet, staticcheck
	@out=$$($(TOOL) gofumpt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	$(GO) vet -tags full ./...
	cd deploy/dist && $(GO) vet ./...
	$(TOOL) staticcheck -tags full ./...

fmt: ## format every Go file
	$(TOOL) gofumpt -w $$(git ls-files '*.go')

screenshots: ## a picture of every page, of answers, and the film of the README, into docs/screenshots (needs Chromium)
	$(GO) test -count=1 -run '^TestStory$$' ./server/answer -update
	$(GO) test -count=1 -tags full -timeout 10m -run '^(TestPages|TestFilm)$$' ./cmd/triphammer -pictures $(CURDIR)/docs/screenshots

bench: build ## the figures: ingress, filters, signatures, validation, store, runs, answers, pages (needs PostgreSQL's programs)
	$(GO) build -modfile=tools/go.mod -o bin/actionlint github.com/rhysd/actionlint/cmd/actionlint
	TRIPHAMMER_POSTGRES_IN=$${TMPDIR:-/tmp} TRIPHAMMER_BIN=$(CURDIR)/$(BIN) TRIPHAMMER_ACTIONLINT=$(CURDIR)/bin/actionlint \
	$(WITH_POSTGRES) $(GO) test -run '^$$' -bench . -benchmem -timeout 40m ./...
	TRIPHAMMER_POSTGRES_IN=$${TMPDIR:-/tmp} TRIPHAMMER_TEST_STORE=postgres $(WITH_POSTGRES) $(GO) test -run '^$$' -bench Claims -benchtime 4000x ./server/store

# STORE=postgres measures Triphammer on PostgreSQL too (needs PostgreSQL's programs). LOADFLAGS are flags such as
# -load.connections 256 -load.bytes 21504 -load.rates 1000: bench/load_test.go has them all.
loadtest: build ## Triphammer beside gin and Benthos under load, into bin/loadtest.txt (LOADFLAGS, STORE=postgres)
	cd testdata/benthos && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/benthos github.com/redpanda-data/benthos/v4/cmd/benthos
	TRIPHAMMER_POSTGRES_IN=$${TMPDIR:-/tmp} TRIPHAMMER_BIN=$(CURDIR)/$(BIN) TRIPHAMMER_BENTHOS=$(CURDIR)/bin/benthos TRIPHAMMER_TEST_STORE=$(STORE) \
	$(if $(STORE),$(WITH_POSTGRES)) $(GO) test -count=1 -run '^$$' -bench '^BenchmarkLoad$$' -timeout 30m ./bench $(LOADFLAGS) >bin/loadtest.txt 2>&1; \
	status=$$?; cat bin/loadtest.txt; exit $$status

sizing: ## what a load takes (servers, workers, store) and what gives out first, simulated (SIZINGFLAGS: docs/sizing.md)
	$(GO) test -count=1 -run '^TestSizing$$' -v ./bench $(SIZINGFLAGS)

# Go before 1.27 sometimes takes the end of FUZZTIME for a failure that no input has (golang.org/issue/75804):
# what ends so is run once more.
fuzz: ## run every fuzz target for FUZZTIME: a time or a number of executions (default 20s)
	@for pkg in $$($(GO) list ./...); do \
	  targets=$$($(GO) test -list '^Fuzz' $$pkg) || { echo "$$targets"; exit 1; }; \
	  for target in $$(echo "$$targets" | grep '^Fuzz'); do \
	    echo "fuzz $$pkg $$target $(FUZZTIME)"; \
	    for try in 1 2; do \
	      out=$$($(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg 2>&1) && break; \
	      case $$try$$out in 2*|*'Failing input'*) ;; *'context deadline exceeded'*) continue;; esac; \
	      echo "$$out"; exit 1; \
	    done; \
	    echo "$$out"; \
	  done; \
	done

demo: build ## the main job from nothing; ONCE=1 stops when the run has succeeded
	rm -rf $(DEMO)
	./$(BIN) init $(DEMO) --yes
	./$(BIN) dev $(DEMO) $(if $(ONCE),--once)

check: lint test ## what to run before each commit

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
