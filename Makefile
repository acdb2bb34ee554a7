# canal-outbox. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Tools are run, not installed, at these versions.
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
LICENSES    := github.com/google/go-licenses@v1.6.0
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0 --format=pkgname --format-hide-empty-pkg

# What tests run against. SKIP_BROKERS=1 does without the brokers (and without Java), SKIP_BROWSER=1 without the browser.
SERVERS := mysql mysql-9.7 $(if $(filter 5.7,$(MYSQL)),mysql-5.7) mariadb mariadb-11.8 redis clock promtool $(if $(filter 1,$(SKIP_BROKERS)),,kafka rocketmq) $(if $(filter 1,$(SKIP_BROWSER)),,browser)

# MYSQL=5.7, 9.7 or own (the machine's mysqld) runs all tests against that release in place of 8.0.31; tests of what only a newer one
# has run on 9.7 without a choice, and are skipped with an older one. MARIADB=11.8 runs them against that release in place of the
# distribution's. test/crash has both in any case.
export TEST_MYSQL := $(MYSQL)
export TEST_MARIADB := $(MARIADB)

# Flags for go test. The race detector needs a C compiler; `make prepare` installs one where it can.
TESTFLAGS ?= -shuffle=on -timeout=60m

.PHONY: help build demo example test test-rest test-loaded test-quick test-long explore fuzz lint generate prepare bench bench-peers crash sim soak waiting starts man release image release-check test-compose test-package test-chart servers suites other-servers images clean adversary

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## build bin/canal-outbox, static
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/canal-outbox ./cmd/canal-outbox

demo: ## the main job with one command: private database and broker, faults, verified totals
	@CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/canal-outbox ./examples/demo
	@bin/demo $(ARGS)

BROKER ?= kafka
DATABASE ?= mariadb

example: ## examples/orders: shop, consumers, relay, Redis, BROKER=kafka or rocketmq, DATABASE=mariadb or mysql; faults and an account (3 minutes)
	@bash test/servers/install.sh $(DATABASE) redis $(BROKER)
	@CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/canal-outbox ./examples/orders
	@bin/orders -broker $(BROKER) -database $(DATABASE) $(ARGS) run

prepare: ## install or find what the tests need: servers, and a C compiler for the race detector
	@command -v cc gcc >/dev/null || { echo "installing a C compiler for the race detector" >&2; \
	  as_root() { if [ "$$(id -u)" = 0 ]; then "$$@"; else sudo -n "$$@"; fi; }; \
	  as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; }
	@bash test/servers/install.sh $(SERVERS)

test: prepare ## the tests that every change must pass (10 minutes on two cores); ends with a line that counts them
	go run $(GOTESTSUM) --raw-command -- test/run.sh test $(TESTFLAGS)

test-rest: prepare ## every test, also those that take long, with the race detector
	CGO_ENABLED=1 go run $(GOTESTSUM) --ignore-non-json-output-lines --raw-command -- test/run.sh rest $(TESTFLAGS)

# Tests judge by conditions, order and counts, so a loaded machine only makes them slower.
test-loaded: prepare ## make test next to eight processes that use all the CPU they get
	@pids=(); trap 'kill "$${pids[@]}"' EXIT; \
	for i in 1 2 3 4 5 6 7 8; do while :; do :; done & pids+=($$!); done; \
	$(MAKE) test

test-quick: ## tests that need no server, without the race detector
	go run $(GOTESTSUM) --raw-command -- test/run.sh quick $(TESTFLAGS)

test-long: test test-rest explore crash sim soak adversary waiting starts servers other-servers test-compose test-package test-chart ## everything: the tests, a break at every event, simulation and soak for LONG each (default 10m)

SUITES ?= parts layouts crash

suites: prepare ## SUITES (parts layouts e2e crash failover soak) on MYSQL=5.7, 8.0 or 9.7 and MARIADB=11.8; WRITE=1 writes the dates of docs/servers.md
	@WRITE=$(WRITE) bash test/servers/suites.sh $(SUITES)

other-servers: ## the tests of make test-rest that need a server, on MySQL 9.7 and 5.7
	$(MAKE) suites MYSQL=9.7 SUITES="parts e2e crash failover"
	$(MAKE) suites MYSQL=5.7 SUITES="parts e2e crash failover"

LONG ?= 10m

crash: prepare ## kills, stops and cut connections at every event of the log, not at samples, on a third server too (two hours or more)
	go test -count=1 -timeout=0 ./test/crash -long

sim: ## random histories of commits, crashes and lost replies: the first 20,000, every mutation, new ones for LONG; or SEEDS=n from FIRST on
	$(if $(SEEDS),,go test -count=1 -timeout=0 -v -run=TestSeeds ./test/sim -sim.seeds=20000)
	$(if $(SEEDS),,SIM_TIME=$(LONG)) go test -count=1 -timeout=0 -v -run='$(if $(SEEDS),TestSeeds)' ./test/sim $(if $(SEEDS),-sim.seeds=$(SEEDS) -sim.first=$(or $(FIRST),1))

explore: ## the lease: every interleaving of its relays, a million states of each kind of trouble (2 GB of memory)
	EXPLORE=1000000 go test -count=1 -timeout=0 -v -run TestNeverDoTwoRelaysHoldOneTable ./lease/protocol

waiting: prepare ## a million rows wait for their time: memory and lateness
	WAITING_ROWS=1000000 go test -count=1 -v -run TestWaitingRowsTakeNoMemory ./test/e2e

starts: prepare ## 1,000 starts that are told to stop at any moment; a backlog of 200,000 rows beside an application
	START_ROUNDS=1000 HARM_BACKLOG=200000 go test -count=1 -v -run 'TestStartAndStopAtAnyMoment|TestP9' ./test/e2e

servers: prepare ## the test servers themselves: starts, stops, kills
	go test -count=1 ./internal/testkit

# SEED repeats the faults of an earlier run; SOAK_DATABASE is mysql or mariadb, SOAK_BROKER is fake, kafka or rocketmq; SOAK_RELAYS=2
# has a second relay stand by.
DURATION ?= $(LONG)

soak: prepare ## real servers under load with faults, for DURATION, from SEED
	SOAK_TIME=$(DURATION) SOAK_SEED=$(SEED) go test -count=1 -timeout=0 -v -run Soak ./test/soak

test-compose: ## docker-compose.yml, started as a user does: 1,000 rows, kill -9 of the relays, page, Prometheus. With root and stand-ins for the images
	test/compose/engine.sh env WITHOUT=grafana test/compose/check.sh

test-package: ## the .deb of a release, installed where systemd runs: start, kill -9, upgrade, stop. With root, on a daemon like that of test-compose
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	deploy/release.sh 0.0.0 "$$dir" >/dev/null && test/compose/engine.sh test/compose/package.sh "$$dir"/*_amd64.deb

test-chart: prepare ## the pods of the Helm chart, as far as Podman runs them: active and standby, 1,000 rows, kill -9. With root
	@bash test/servers/install.sh podman
	CHART=1 test/chart/run.sh go test -count=1 -v ./test/chart

# SEED repeats the steps of an earlier run, alone with DURATION=0; ADVERSARY_DATABASE is mysql or mariadb (by the seed when empty),
# ADVERSARY_BROKER fake or kafka, ADVERSARY_SKIP a regular expression of steps that are left out.
adversary: prepare ## operators who do anything at any time, next to faults, on two relays: seeds from SEED on, for DURATION
	ADVERSARY_TIME=$(DURATION) ADVERSARY_SEED=$(SEED) go test -count=1 -timeout=0 -v -run Adversary ./test/adversary

FUZZTIME ?= 30s

fuzz: ## every fuzz target for FUZZTIME (default 30s)
	@grep -rHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' . | sed 's|/[^/]*:func |:|' | sort | while IFS=: read -r dir name; do \
	  echo "$$dir $$name"; go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=50x "$$dir" </dev/null; done

# BEFORE is a commit: its build takes turns with this source's on the same servers, and the table has both. Without a choice in ARGS
# (-bench=...) those stay out that take long and have no line in the table.
bench: prepare ## the whole relay beside the ceilings of this machine, and the table of targets (about 30 minutes; 41 with BEFORE=commit)
	BENCH_BEFORE='$(BEFORE)' go test -run='^$$' -bench=. -skip='$(if $(findstring -bench=,$(ARGS)),^$$,Peers|Retention|SweepPass|Polling|Database|CeilingInsert)' \
	  -benchtime=1x -count=1 -timeout=0 $(ARGS) ./test/bench

# DATABASE is mariadb or mysql; MAXWELL is the unpacked distribution of Maxwell, which takes part when it is named.
bench-peers: prepare ## this relay beside Debezium Server, and Maxwell, in one run: same load, table, broker and consumer (10 minutes)
	@bash test/servers/install.sh debezium
	PEERS_DATABASE=$(DATABASE) PEERS_MAXWELL=$(MAXWELL) go test -run='^$$' -bench=Peers -benchtime=1x -count=1 -timeout=0 $(ARGS) ./test/bench

man: ## dist/man/: a manual page for each command
	@mkdir -p dist/man
	go test -count=1 -run TestManualPages ./cmd/canal-outbox -man $(abspath dist/man)

release: ## dist/: for linux/amd64 and linux/arm64 static archives, packages and an image; bill of materials, checksums
	deploy/release.sh $(VERSION) $(abspath dist)

image: ## the container image canal-outbox:VERSION, with podman or docker
	@engine=$$(command -v podman || command -v docker) || { echo "install podman or docker"; exit 1; }; \
	"$$engine" build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) -t canal-outbox:$(VERSION) .

release-check: ## builds the release twice, the second time from a copy elsewhere, and compares
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	git clone --quiet . "$$copy/elsewhere"; \
	deploy/release.sh check "$$copy/a" >/dev/null; "$$copy/elsewhere/deploy/release.sh" check "$$copy/b" >/dev/null; \
	diff "$$copy/a/SHA256SUMS" "$$copy/b/SHA256SUMS" && echo "release-check: two builds, the same bytes"

lint: ## formatting, vet, staticcheck, import table, generated files
	@out=$$(go run $(GOFUMPT) -l .); [ -z "$$out" ] || { echo "not formatted (run gofumpt):"; echo "$$out"; exit 1; }
	go vet ./...
	go vet -tags faultpoints ./...
	go run $(STATICCHECK) ./...
	go test -count=1 ./internal/archtest ./internal/app/reference
	@deploy/notice.sh $(LICENSES) | diff -q - NOTICE || { echo "NOTICE is not current: run make generate"; exit 1; }
	go -C deploy/check test -count=1 ./...
	go -C deploy/image vet ./...
	go run $(ACTIONLINT)
	@echo "lint: ok"

generate: ## write the generated files
	go generate ./internal/app
	deploy/notice.sh $(LICENSES) >NOTICE

images: prepare ## the pictures of the dashboard in docs/images, of a real relay under load (5 minutes)
	IMAGES=$(CURDIR)/docs/images IMAGES_TIME=5m go test -count=1 -timeout=15m -v -run='^TestImages$$' ./test/e2e

clean: ## remove what make build and the tests leave in the tree
	rm -rf bin dist
