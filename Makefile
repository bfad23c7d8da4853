# Triphammer. `make help` lists what can be asked for.

GO      ?= go
BIN     := bin/triphammer
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 20s
DEMO    ?= .triphammer/demo

export CGO_ENABLED := 1

.DEFAULT_GOAL := help
.PHONY: build test test-full lint fmt screenshots bench fuzz demo check help

build: ## build bin/triphammer
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/triphammer

test: ## every test that needs Go, gcc, git and make alone (under 10 minutes on 2 cores)
	$(GO) test -count=1 -timeout 9m ./...

test-full: ## the same under the race detector, what needs more than that, and every fuzz target for 10,000 executions
	$(GO) test -count=1 -race -tags full -timeout 40m ./...
	$(MAKE) fuzz FUZZTIME=10000x

lint: ## gofumpt, go vet, staticcheck
	@out=$$($(TOOL) gofumpt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	$(GO) vet -tags full ./...
	$(TOOL) staticcheck -tags full ./...

fmt: ## format every Go file
	$(TOOL) gofumpt -w $$(git ls-files '*.go')

screenshots: ## a picture of every page into docs/screenshots (needs Chromium)
	$(GO) test -count=1 -tags full -timeout 10m -run '^TestPages$$' ./cmd/triphammer -pictures $(CURDIR)/docs/screenshots

bench: build ## the figures: ingress, filters, signatures, validation, store, runs, pages
	$(GO) build -modfile=tools/go.mod -o bin/actionlint github.com/rhysd/actionlint/cmd/actionlint
	TRIPHAMMER_BIN=$(CURDIR)/$(BIN) TRIPHAMMER_ACTIONLINT=$(CURDIR)/bin/actionlint $(GO) test -run '^$$' -bench . -benchmem -timeout 30m ./...

fuzz: ## run every fuzz target for FUZZTIME: a time or a number of executions (default 20s)
	@for pkg in $$($(GO) list ./...); do \
	  targets=$$($(GO) test -list '^Fuzz' $$pkg) || { echo "$$targets"; exit 1; }; \
	  for target in $$(echo "$$targets" | grep '^Fuzz'); do \
	    echo "fuzz $$pkg $$target $(FUZZTIME)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg || exit 1; \
	  done; \
	done

demo: build ## the main job from nothing; ONCE=1 stops when the run has succeeded
	rm -rf $(DEMO)
	./$(BIN) init $(DEMO) --yes
	./$(BIN) dev $(DEMO) $(if $(ONCE),--once)

check: lint test ## what to run before each commit

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
