# Tools, pinned. They are installed into ./bin and nowhere else.
GOLANGCI_LINT_VERSION := v2.15.0
GOVULNCHECK_VERSION   := v1.8.0
UV_VERSION            := 0.13.9

FUZZTIME ?= 20s
BIN      := bin
# SQLite and the C library below it are C put into Go by a compiler: the race
# detector finds nothing in them and takes most of its time there.
FOREIGN  := -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc/...=-race=false
LINT     := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)
VULN     := $(BIN)/govulncheck-$(GOVULNCHECK_VERSION)
UV       := $(BIN)/uv-$(UV_VERSION)/bin/uv
HELM     := $(BIN)/helm-engine

.DEFAULT_GOAL := build
.PHONY: build release site clients suites test ahead lint race bench microbench soak fuzz interop console vuln tidy tools help

build: ## build bin/agentbus, without cgo
	CGO_ENABLED=0 go build -trimpath -o bin/agentbus ./cmd/agentbus

release: ## make dist/: static binaries for six targets, checksums, what is inside, the formula; one is made twice and compared (VERSION=0.1.0 KEY=FILE to sign)
	go run ./deploy/release -version "$(VERSION)" -key "$(KEY)" -twice

site: ## make site/ of the documents; a link that leads nowhere fails it
	go run ./docs/site -out site

test: ## run all tests; those that need a tool this machine lacks are skipped and name it
	go test ./...

ahead: ## compile what the tests are made of
	go list -export -test -deps ./... >/dev/null

lint: $(LINT) ## run golangci-lint as .golangci.yml says
	$(LINT) config verify
	$(LINT) run --allow-serial-runners ./...

# Without atexit_sleep_ms, each process under the race detector sleeps for a second
# before it ends, and the tests start hundreds. The detector needs cgo. The test and
# lint of the same code vet it.
race: ## run all tests but those of volume with the race detector, in random order
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -vet=off $(FOREIGN) -short -shuffle=on -timeout 20m ./...

bench: ## measure the bus next to a bare proxy and this disk, into benchmarks/RESULTS.md
	go run ./benchmarks

microbench: ## run the benchmarks of every package
	go test -run '^$$' -bench . -benchmem ./...

soak: ## drive 10,000 runs at once in one process; park 100,000, restart, let each go on; kill replicas for ten minutes; prints figures, in minutes on a quiet machine
	AGENTBUS_SOAK=10000 go test -run 'TestSoak$$' -v -count 1 ./server
	AGENTBUS_SOAK=100000 go test -run TestSoakParked -v -count 1 -timeout 60m ./server
	AGENTBUS_SOAK=10m go test -run 'TestReplicasUnderFire|KilledAtEveryPointOnPostgres' -v -count 1 -timeout 60m ./cmd/agentbus

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@set -e; go list -f '{{.Dir}}' ./... | while read -r dir; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' /dev/null "$$dir"/*_test.go 2>/dev/null); do \
			echo "$$target in $$dir"; \
			(cd "$$dir" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) </dev/null; \
		done; \
	done

interop: interop/node_modules/.package-lock.json ## run the tests in interop/ with real clients, on Node
	cd interop && npm test

clients: interop/.venv/ready interop/adk/.venv/ready $(HELM) ## install the clients, and the Envoy, that the documents show, for their test, and Helm's engine for the chart's
clients: interop/node_modules/.package-lock.json interop/mastra/node_modules/.package-lock.json

suites: ## fetch the public test data that tests read, pinned there, into the module cache
	cd "$$(mktemp -d)" && go mod download github.com/nst/JSONTestSuite@v0.0.0-20241122125541-1ef36fa01286 && rmdir "$$PWD"

console: ## run the tests in browser/ with a real browser before the console, on Node; CHROMIUM names another one
	cd browser && npm ci --no-audit --no-fund && npm test

vuln: $(VULN) ## look for known vulnerabilities in what the code calls
	$(VULN) ./...

tidy: ## bring go.mod and go.sum in step with the code
	go mod tidy

tools: $(LINT) $(VULN) ## install the pinned tools into ./bin

help: ## list these
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

%/.venv/ready: %/requirements.txt $(UV)
	$(UV) venv --quiet --no-python-downloads --python python3 --clear $(@D)
	$(UV) pip sync --quiet --system-certs --no-build --link-mode copy --python $(@D) $<
	touch $@

# npm writes this file when all the others are there.
%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund --ignore-scripts

# The version is in the name of the file, so that a new pin installs anew.
$(LINT):
	GOBIN="$(CURDIR)/$(BIN)" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(BIN)/golangci-lint $@

$(UV):
	python3 -m venv $(BIN)/uv-$(UV_VERSION)
	$(BIN)/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: uv==$(UV_VERSION)

# The types of Kubernetes are most of it: they are compiled without optimization,
# which takes less time, and nobody runs them.
$(HELM): interop/helm/main.go interop/helm/go.mod interop/helm/go.sum
	cd interop/helm && go build -gcflags='k8s.io/...=-N -l' -ldflags='-s -w' -o ../../$@ .

$(VULN):
	GOBIN="$(CURDIR)/$(BIN)" go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	mv $(BIN)/govulncheck $@
