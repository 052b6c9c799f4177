# What can be done here: make help. Each target says in one line, after ##, what it does.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^##@ / {print substr($$0, 5)} /^[a-z][a-z0-9_-]*:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ A Kubernetes cluster for trying and testing (hack/cluster/README.md)

.PHONY: cluster
cluster: ## start a real one-node Kubernetes on this machine (Linux, root; no Docker needed)
	hack/cluster/up

.PHONY: cluster-down
cluster-down: ## take that cluster down and remove all of it
	hack/cluster/down

##@ The operator

.PHONY: image
image: ## build the static programs and the two images, and load them into the local cluster
	hack/build-images --load

.PHONY: crds
crds: ## write crds/, the chart's copy and docs/decision.schema.json anew from the Rust types
	UPDATE=1 cargo test --locked -p modelrollout --test crd --test decision

.PHONY: lint
lint: ## formatting, clippy with warnings as errors, and cargo-deny (licenses, bans, sources, advisories)
	hack/lint

.PHONY: test
test: ## all tests: engine, real API server, real cluster under load, demo; prints the time of each part
	hack/test

.PHONY: test-faults
test-faults: ## every single fault at every place of a simulated rollout (long; `make test` tries a sample; no cluster; tests/README.md)
	hack/test-faults

.PHONY: test-faults-pairs
test-faults-pairs: ## pairs of faults; goes on where it was ended (FAULTS_SECONDS=600 ends it, FAULTS_SCENARIO=promotion narrows it)
	hack/test-faults pairs

.PHONY: test-faults-random
test-faults-random: ## 100,000 random schedules of three to eight faults (FAULTS_RUNS=, FAULTS_SECONDS=); goes on where it was ended
	hack/test-faults random

.PHONY: test-faults-chains
test-faults-chains: ## chains of specs that are made from the schema: the end is that of the last one (FAULTS_CHAINS=200)
	hack/test-faults chains

.PHONY: test-faults-live
test-faults-live: ## the same faults on the local cluster under load, and a leader that is killed or stopped (LIVE_RUNS=200)
	hack/test-faults live

.PHONY: test-faults-replay
test-faults-replay: ## replay one run, with all that happened: RUN='promotion w7=lost-reply'
	@RUN='$(RUN)' hack/test-faults replay

.PHONY: test-model-big
test-model-big: ## every order of events in big worlds around the engine (minutes, and gigabytes of memory; no cluster; tests/README.md)
	cargo test --locked --profile sim -p modelrollout -p modelrollout-faults --test model -- --ignored --nocapture --test-threads 1 --skip the_given_world

.PHONY: test-mutants
test-mutants: ## 55 bugs, put into a copy of the product one after the other: which test finds each? (an hour; goes on where it was ended)
	hack/mutants

.PHONY: bench
bench: ## measure how gates judge, and the operator on the local cluster (PART=judgement or PART=cluster: one of them)
	hack/bench $(PART)

##@ See it work

.PHONY: demo
demo: ## see a rollout, a rollback by errors and one by latency on a real cluster (KEEP=1 leaves it running)
	hack/demo
