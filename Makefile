# Every target that people and CI run. Plain `make` lists them.
#
# make check   before each commit: format, vet, lint, short tests
# make test    all that CI runs, and nothing CI does not
# make soak    the same suites with their full counts
#
# Tests read two variables from here: SPENDONCE_SOAK=1 asks for full counts,
# SPENDONCE_BIN is the plain (not race-built) binary for tests that start many
# processes. Tests that need root or mounts carry the build tag `crash`.

SHELL        := /bin/sh
.SHELLFLAGS  := -euc
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=

# What the suites need beside Go, make and git, as package:proof. The proof is
# a command on PATH, or a file if it starts with a slash.
TEST_NEEDS := \
	bash-completion:/usr/share/bash-completion/bash_completion \
	ca-certificates:/etc/ssl/certs/ca-certificates.crt \
	chromium:chromium \
	dbus-daemon:dbus-daemon \
	dpkg:dpkg-deb \
	e2fsprogs:mkfs.ext4 \
	fish:fish \
	gcc:gcc \
	gnome-keyring:gnome-keyring-daemon \
	libc6-dev:/usr/include/stdlib.h \
	mandoc:mandoc \
	mount:mount \
	nodejs:node \
	npm:npm \
	strace:strace \
	systemd:systemd-analyze \
	util-linux:setpriv \
	util-linux:unshare \
	zsh:zsh

# Packages that must build for macOS: the credential half and its commands.
DARWIN_PACKAGES := \
	lockfile credstore credstore/keys credstore/refresh oauthflow bearer mcpproxy \
	internal/secret internal/sealed internal/egress internal/durable internal/config internal/helper internal/clientconf \
	internal/cli cmd/spendonce etcdstore internal/cli/etcdtargets cmd/spendonce-etcd

# Modules of their own, for tests whose parts the program must not depend on.
TEST_MODULES := tests tests/etcd

FUZZTIME      ?= 5s
LONG_FUZZTIME ?= 30s
LONG_FUZZ     := FuzzFrame FuzzRequest FuzzState FuzzStat
SOAK_FUZZTIME ?= 5m
INIT_BUDGET   ?= 0.1
# etcd's client registers its message types at start, whoever uses it.
ETCD_INIT_BUDGET ?= 0.8
TAGS          := crash
TEST_TIMEOUT  ?= 25m
RELEASE_CHECK ?= linux/amd64
VERSION       ?= $(shell scripts/version)
SOAK_TIMEOUT  ?= 6h

BIN        := bin/spendonce
ETCDBIN    := bin/spendonce-etcd
GOLANGCI   := bin/tools/golangci-lint
GOVULN     := bin/tools/govulncheck
TESTREPORT := bin/tools/testreport
SKIPS      := tools/testreport/allowed-skips.txt

export SPENDONCE_BIN := $(CURDIR)/$(BIN)

##@ Use
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/spendonce, and bin/spendonce-etcd which it runs for targets in etcd
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/spendonce ./cmd/spendonce-etcd

.PHONY: demo
demo: build ## see the promise kept: 64 processes, a crash, a full disk, one session
	@$(BIN) demo

# MANDIR and the rest are where Debian, Fedora, Homebrew and others look.
MANDIR  = $(PREFIX)/share/man
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR  = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d

.PHONY: install
install: build ## install below PREFIX (default /usr/local), with manual and completions
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(MANDIR)/man1' \
		'$(DESTDIR)$(BASHDIR)' '$(DESTDIR)$(ZSHDIR)' '$(DESTDIR)$(FISHDIR)'
	install -m 0755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/spendonce'
	install -m 0755 $(ETCDBIN) '$(DESTDIR)$(PREFIX)/bin/spendonce-etcd'
	ln -sf spendonce '$(DESTDIR)$(PREFIX)/bin/docker-credential-spendonce'
	install -m 0644 docs/man/*.1 '$(DESTDIR)$(MANDIR)/man1'
	ln -sf spendonce.1 '$(DESTDIR)$(MANDIR)/man1/spendonce-etcd.1'
	umask 022; $(BIN) completion bash >'$(DESTDIR)$(BASHDIR)/spendonce'
	umask 022; $(BIN) completion zsh >'$(DESTDIR)$(ZSHDIR)/_spendonce'
	umask 022; $(BIN) completion fish >'$(DESTDIR)$(FISHDIR)/spendonce.fish'

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f '$(DESTDIR)$(PREFIX)/bin/spendonce' '$(DESTDIR)$(PREFIX)/bin/spendonce-etcd' \
		'$(DESTDIR)$(PREFIX)/bin/docker-credential-spendonce' \
		'$(DESTDIR)$(MANDIR)/man1/spendonce.1' '$(DESTDIR)$(MANDIR)'/man1/spendonce-*.1 \
		'$(DESTDIR)$(BASHDIR)/spendonce' '$(DESTDIR)$(ZSHDIR)/_spendonce' '$(DESTDIR)$(FISHDIR)/spendonce.fish'

##@ Develop
.PHONY: check
check: fmt-check vet lint test-short ## the inner loop, before each commit

.PHONY: fmt
fmt: ## format every Go file
	gofmt -s -w .

.PHONY: fmt-check
fmt-check: ## fail if a Go file is not formatted
	@bad=$$(gofmt -s -l .); \
	if [ -n "$$bad" ]; then \
		printf 'not formatted (make fmt repairs it):\n%s\n' "$$bad"; exit 1; \
	fi

.PHONY: man
man: ## write docs/man from the commands; a test fails when that was forgotten
	$(GO) test -count=1 ./internal/mangen -update

.PHONY: vet
vet: ## go vet, with and without the tag crash
	$(GO) vet ./...
	$(GO) vet -tags $(TAGS) ./...
	for m in $(TEST_MODULES); do (cd "$$m" && $(GO) vet ./...); done

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint at the pinned version
	$(GOLANGCI) run ./...
	for m in $(TEST_MODULES); do (cd "$$m" && $(CURDIR)/$(GOLANGCI) run -c $(CURDIR)/.golangci.yml ./...); done

.PHONY: test-short
test-short: $(TESTREPORT) plain-binary ## unit tests with the race detector, short counts
	@$(TESTREPORT) -- $(GO) test -race -short -timeout 4m ./...

##@ Prove
.PHONY: test
test: test-needs mod-verify fmt-check vet lint cross init-budget vuln completion-check release-check test-tools test-race test-storm test-parts test-typescript fuzz ## everything that CI runs
	@printf '\nmake test: all of it passed\n'

.PHONY: soak
soak: export SPENDONCE_SOAK = 1
soak: TEST_TIMEOUT = $(SOAK_TIMEOUT)
soak: FUZZTIME = $(SOAK_FUZZTIME)
soak: LONG_FUZZTIME = $(SOAK_FUZZTIME)
soak: export FRESH = 1
soak: RELEASE_CHECK = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
soak: test-needs release-check test-race test-storm test-parts fuzz ## the full counts; takes hours

.PHONY: test-race
test-race: $(TESTREPORT) plain-binary ## every suite of the main module, race detector on
	@printf '\n== all suites, race detector on\n'
	@$(TESTREPORT) -skips $(SKIPS) -- \
		$(GO) test -race -count=1 -tags $(TAGS) -timeout $(TEST_TIMEOUT) ./...

.PHONY: test-storm
test-storm: $(TESTREPORT) plain-binary ## tests named TestStorm again, in plain binaries and larger
	@printf '\n== storms, plain binaries\n'
	@$(TESTREPORT) -quiet -skips $(SKIPS) -- \
		$(GO) test -count=1 -tags $(TAGS) -timeout $(TEST_TIMEOUT) -run '^TestStorm' ./...

.PHONY: test-parts
test-parts: $(TESTREPORT) plain-binary ## the modules below tests/: real servers and clients
	@for m in $(TEST_MODULES); do \
		printf '\n== real parts (%s/)\n' "$$m"; \
		(cd "$$m" && $(CURDIR)/$(TESTREPORT) -skips $(CURDIR)/$(SKIPS) -- \
			$(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./...); \
	done

.PHONY: test-tools
test-tools: ## the tests of our own tools
	@printf '\n== tools\n'
	@cd tools/testreport && $(GO) vet . && $(GO) test -count=1 .

.PHONY: test-typescript
test-typescript: plain-binary ## the client for Node: types, tests against the real broker, the package as published
	@printf '\n== clients/typescript\n'
	cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error && npm run --silent build && npm test --silent

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 5s), those of the broker's inputs for LONG_FUZZTIME
	@printf '\n== fuzzing\n'
	@GO='$(GO)' scripts/fuzz '$(FUZZTIME)' '$(LONG_FUZZTIME)' $(LONG_FUZZ)

.PHONY: bench
bench: ## ratios measured in one run, on an idle machine (UPDATE=1: into docs/ too)
	mkdir -p bin && cd tests && $(GO) run ./bench -json ../bin/bench.json \
		$(if $(UPDATE),-update ../docs/figures.md -svg ../docs/storm.svg) $(BENCHFLAGS)
	cd tests/etcd && SPENDONCE_BENCH=1 $(GO) test -count=1 -v -run '^TestFigures$$' ./bench

.PHONY: compare
compare: plain-binary ## what the official MCP clients pass directly, here and by mcp-remote (into docs/)
	cd tests && $(GO) run ./compare -binary ../$(BIN) -update ../docs/mcp-compare.md

.PHONY: cross
cross: ## build and vet the credential half for macOS
	@printf '\n== macOS cross-build\n'
	@set --; for p in $(DARWIN_PACKAGES); do \
		if ls "$$p"/*.go >/dev/null 2>&1; then set -- "$$@" "./$$p"; fi; \
	done; \
	for arch in arm64 amd64; do \
		echo "darwin/$$arch: $$*"; \
		CGO_ENABLED=0 GOOS=darwin GOARCH=$$arch $(GO) build -o /dev/null "$$@"; \
	done; \
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet "$$@"

.PHONY: init-budget
init-budget: plain-binary ## fail if a package takes over INIT_BUDGET ms to start, or ETCD_INIT_BUDGET where etcd's client is linked
	@printf '\n== start-up\n'
	@scripts/init-budget $(BIN) $(INIT_BUDGET)
	@scripts/init-budget $(ETCDBIN) $(ETCD_INIT_BUDGET)

.PHONY: vuln
vuln: $(GOVULN) ## known vulnerabilities that our code reaches, without the network
	@printf '\n== known vulnerabilities\n'
	@GO='$(GO)' scripts/vuln $(GOVULN)

.PHONY: mod-verify
mod-verify: ## modules in the cache are what go.sum says
	$(GO) mod verify

.PHONY: tidy-check
tidy-check: ## fail if go.mod lists more or less than is used
	$(GO) mod tidy -diff
	for m in $(TEST_MODULES); do (cd "$$m" && $(GO) mod tidy -diff); done

.PHONY: test-needs
test-needs: ## install (as root) or name what the suites need
	@scripts/test-needs $(TEST_NEEDS)

.PHONY: release-check
release-check: ## build the release for RELEASE_CHECK twice; fail unless byte for byte the same
	@printf '\n== reproducible release\n'
	@GO='$(GO)' scripts/release-check $(RELEASE_CHECK)

.PHONY: completion-check
completion-check: plain-binary ## ask bash, zsh and fish to complete a target
	@printf '\n== completion\n'
	@scripts/completion-check $(BIN)

##@ Publish
.PHONY: release
release: ## build archives and packages of VERSION into dist
	GO='$(GO)' scripts/release '$(VERSION)' "$$(git rev-parse HEAD)" "$$(git log -1 --format=%ct)" dist

##@ Tidy up
.PHONY: tools
tools: $(GOLANGCI) $(GOVULN) $(TESTREPORT) ## build the pinned tools into bin/tools

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin dist clients/typescript/dist clients/typescript/node_modules

# The programs that process tests start.
.PHONY: plain-binary
plain-binary:
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/spendonce ./cmd/spendonce-etcd

$(GOLANGCI): tools/lint/go.mod tools/lint/go.sum
	@echo 'building golangci-lint (minutes the first time, cached afterwards)'
	cd tools/lint && $(GO) build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOVULN): tools/vuln/go.mod tools/vuln/go.sum
	cd tools/vuln && $(GO) build -o ../../$@ golang.org/x/vuln/cmd/govulncheck

$(TESTREPORT): $(wildcard tools/testreport/*.go) tools/testreport/go.mod
	cd tools/testreport && $(GO) build -o ../../$@ .
