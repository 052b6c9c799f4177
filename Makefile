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
