# `make help` lists what there is. Everything runs as root on a fresh Debian
# and as a normal user on a laptop; what cannot be had there is skipped, and
# says so.

GO       ?= go
FUZZTIME ?= 20s
BENCH    ?= .
TIMEOUT  ?= 20m

# The linter is pinned in a module of its own, so that it is nobody's dependency.
LINT = $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

# The modules of this repository, beside the main one.
NEIGHBOURS = testservers bench

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test test-heavy obtain vet lint unit race servers fmt fuzz bench bench-full bench-go soak

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: obtain vet lint servers race unit ## everything below up to unit: what has to pass before a change goes in

# Consul and kube-apiserver are built from source, which takes a quarter of an
# hour on a new machine; after that they come from a cache.
HEAVY = ./store/consulstore/... ./store/kubestore/...

test-heavy: ## the stores whose servers take long to build: Consul, Kubernetes
	$(GO) run -C testservers . obtain consul kubernetes
	BATON_TEST_HEAVY=true $(GO) test -C testservers -timeout $(TIMEOUT) -run 'Consul|Kubernetes' ./...
	BATON_TEST_HEAVY=true $(GO) test -timeout $(TIMEOUT) $(HEAVY)

obtain: ## installs or builds what the tests need: Postgres, Redis, ZooKeeper, etcd, a C compiler for the race detector
	@command -v "$$($(GO) env CC)" >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && apt-get -q update && apt-get -q install --yes --no-install-recommends gcc libc6-dev; } \
		|| [ "$$CI" != true ]
	$(GO) run -C testservers . obtain

vet: ## go vet, and gofmt's opinion
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	@for module in $(NEIGHBOURS); do (cd $$module && $(GO) vet ./...) || exit 1; done

lint: ## golangci-lint with .golangci.yml
	$(LINT) run ./...
	@for module in $(NEIGHBOURS); do (cd $$module && $(LINT) run ./...) || exit 1; done

servers: ## the tests of testservers/ itself
	$(GO) test -C testservers -timeout $(TIMEOUT) ./...

# Most tests wait, for servers and for leases to end: more of them than there
# are cores have room beside each other. The lab's have fleets beside fleets by themselves.
TOGETHER = -p 3
CROWDED  = baton/lab

# The commands and the lab are tested as processes of their own, in which the
# race detector sees nothing: what they are made of is tested here. Of the stores
# that real servers keep, it sees what runs many requests at once.
SERVED = etcdstore|redisstore|pgstore|zkstore|consulstore|kubestore
RACED  = $(shell $(GO) list ./... | grep -v -E '^baton/(cmd|lab|store/($(SERVED)))(/|$$)')
CROWDS = FaultyNetwork|UnderFaults|LostLate|Vacancy|Wakes|Wait|OneAtATime

race: ## the packages under the race detector, with -short: fewer repetitions of the same
	@if command -v "$$($(GO) env CC)" >/dev/null || [ "$$CI" = true ]; then \
		echo "$(GO) test -race -short"; export CGO_ENABLED=1; \
		$(GO) test -race -short $(TOGETHER) -skip '^TestSuiteSeesFaults$$' -timeout $(TIMEOUT) $(RACED) && \
		$(GO) test -race -short $(TOGETHER) -run '$(CROWDS)' -timeout $(TIMEOUT) $$($(GO) list ./... | grep -E '^baton/store/($(SERVED))$$'); \
	else echo "SKIPPED: the race detector needs a C compiler"; fi

unit: ## all tests, with all their repetitions
	$(GO) test $(TOGETHER) -timeout $(TIMEOUT) $$($(GO) list ./... | grep -v -x '$(CROWDED)')
	$(GO) test -timeout $(TIMEOUT) $(CROWDED)
	$(GO) test -C bench -timeout $(TIMEOUT) ./...

fmt: ## formats all Go files
	gofmt -w .

fuzz: ## every fuzz target for FUZZTIME each (20s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		for target in $$(grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$$dir"/*_test.go | cut -c6-); do \
			echo "== $$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; \
		done || exit 1; \
	done

bench: ## the raft store beside etcd, in one run, as ratios: about 4 minutes (docs/benchmarks.md)
	$(GO) run -C bench .

bench-full: ## the same with longer turns, and a million leases: about 25 minutes
	$(GO) run -C bench . -full

bench-go: ## the Go benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

soak: ## the long forms of tests that run in a short form every time: hundreds of kills and freezes, every fault on every store
	BATON_TEST_KILLS=100 BATON_TEST_PAUSES=500 $(GO) test -count=1 -timeout 2h -v -run 'LeaderOfTheCluster' ./cmd/baton
	BATON_TEST_FAULTS=all $(GO) test -count=1 -timeout 2h ./store/etcdstore ./store/redisstore ./store/pgstore ./store/zkstore
	BATON_TEST_FAULTS=all BATON_TEST_HEAVY=true $(GO) test -count=1 -timeout 2h $(HEAVY)
