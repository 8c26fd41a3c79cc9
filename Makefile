# Everything a newcomer types. `make` alone explains itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first Python of 3.11 or later; the machine's own comes first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.installed
CACHE := $(or $(PROCTOR_CACHE),$(if $(filter 0,$(shell id -u)),/var/cache/proctor,$(HOME)/.cache/proctor))
export PATH := $(CACHE)/tools/kubectl:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help
help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: $(READY) rootfs ## run the quickstart on this machine without a cluster, with live progress, and print its report
	@$(VENV)/bin/proctor run --local examples/quickstart.yaml --wait

.PHONY: check
check: $(READY) tools ## lint, types, import rules and unit tests
	@$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy tests tools images
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q -n 4 -m "not local and not cluster and not faults"

.PHONY: test
test: ## everything: check, then real pods without a cluster, then a real cluster
	@$(MAKE) -j2 prepare
	$(MAKE) check
	$(MAKE) test-local
	$(MAKE) test-cluster

.PHONY: test-local
test-local: $(READY) rootfs ## the tests that run real pods without a cluster
	@$(PY) -m pytest -m local

.PHONY: test-cluster
test-cluster: $(READY) tools cluster-binaries ## the tests on a real cluster: KUBECONFIG's, else kind where Docker runs, else our node
	@$(PY) -m tests.cluster run $(PY) -m pytest -m cluster

# What takes long the first time; `make -j2 prepare` compiles the cluster beside building the images.
.PHONY: prepare
prepare: images rootfs cluster-binaries tools

$(READY): requirements/dev.txt pyproject.toml
	@tools/setup-venv "$(PYTHON)" $(VENV)
	touch $@

.PHONY: rootfs
rootfs: ## the root file system of pods without a cluster, built once and cached
	@tools/install-packages $$("$(PYTHON)" images/build.py packages)
	"$(PYTHON)" images/build.py rootfs

.PHONY: images
images: ## both container images as OCI archives in the cache; prints their names and paths
	@tools/install-packages $$("$(PYTHON)" images/build.py packages)
	"$(PYTHON)" images/build.py archives

.PHONY: cluster-binaries
cluster-binaries: $(READY) # the test cluster's programs, unless another cluster is at hand
	@tools/install-packages $$($(PY) -m tests.cluster packages)
	$(PY) -m tests.cluster prepare

.PHONY: cluster-up
cluster-up: $(READY) tools cluster-binaries ## start the test cluster with the images and leave it running
	@$(PY) -m tests.cluster up
	$(PY) -m tests.cluster images

.PHONY: cluster-down
cluster-down: $(READY) ## end the test cluster
	@$(PY) -m tests.cluster down

.PHONY: tools
tools: $(READY) ## kubectl and helm, into the cache
	@$(PY) tools/fetch.py kubectl >/dev/null

.PHONY: crds
crds: $(READY) ## generate crds/ from wire/, and the chart's suite from tasks/
	@$(PY) -m proctor.crds
	$(PY) -m proctor.suites

.PHONY: lock
lock: $(READY) ## resolve requirements/ anew from pyproject.toml
	@tools/lock $(VENV)/bin/uv

.PHONY: clean
clean: ## remove what was made inside the checkout
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: prune
prune: ## remove from the cache what belongs to earlier content
	@"$(PYTHON)" images/build.py prune
