# Hindcast. `make demo` and `make test` work from a fresh clone: every target first runs the missing steps of the set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

PY := .venv/bin/python
UV := .cache/uv/bin/uv
# Each stamp file is inside the directory that it stands for. Remove the directory, and the next target makes it again.
PYTHON_FOUND := .cache/setup/python
MACHINE_OK := .cache/setup/machine
PLACE := .cache/setup/place
UV_OK := .cache/uv/installed
VENV_OK := .venv/synced
PROJECT_OK := .venv/hindcast-installed
JARS_OK := .cache/ivy/checked
ARCHIVE_OK := .cache/jvm/made
BYTECODE_OK := .cache/setup/bytecode
DOCS_OK := .cache/docs/synced
S3_JARS_OK := .cache/ivy-s3/checked
VERSITYGW := v1.8.0
S3_SERVER ?= $(CURDIR)/.cache/s3-server/versitygw
SET_UP := $(PROJECT_OK) $(JARS_OK) $(ARCHIVE_OK) $(BYTECODE_OK)
LOCKS := requirements.lock requirements-fast.lock requirements-dev.lock
CODE := jobs windowlib expectations

PYTEST_ARGS ?=
CASES ?= 10000
SECONDS_EACH ?= 300
BENCH_ARGS ?=
BUILD_ARGS ?=
LOCK_ARGS ?=
PICTURES ?=

# Settings for the interpreter of another project must not reach this one. Without compiled modules, each process of
# the tests would compile all test modules again (6 s of 18 s).
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV SPARK_HOME PYTHONDONTWRITEBYTECODE

.PHONY: help setup test slow test-ui soak test-compose env fuzz mutate bench bench-flink bench-bytewax bench-quick bench-operator bench-cluster s3 test-s3 check docs docs-serve demo year up down lock clean FORCE

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SET_UP)  ## make .venv and fetch Spark's Delta jars; all other targets do this first
	@echo "set-up: ready ($(CURDIR)/.venv)"

# One process runs all tests that need Spark, in one session (tests/conftest.py). Two processes share the other tests.
HEAVY := spark or gx or dags or e2e
test: $(SET_UP)  ## run the tests, 8 minutes on 2 idle cores (PYTEST_ARGS="-k name" for some of them)
ifeq ($(strip $(PYTEST_ARGS)),)
	@$(PY) -m pytest -n 2 --no-loadscope-reorder -m "not soak and not slow and not s3 and not ui"
else
	@$(PY) -m pytest $(PYTEST_ARGS)
endif

slow: $(SET_UP)  ## run the tests of whole commands and of Airflow, and each Hypothesis property on 200 cases; CI runs it
	@$(PY) -m pytest -m "slow and not soak and not s3 and not ui"
	@HINDCAST_FUZZ=200 HYPOTHESIS_PROFILE=ci $(PY) -m pytest -n 2 -m "hypothesis and not slow and not soak and not s3 and not ($(HEAVY))"

test-ui: $(SET_UP)  ## click through the review of a held backfill in a real Airflow with Chromium (PICTURES=docs/images takes its pictures)
	@HINDCAST_PICTURES='$(PICTURES)' $(PY) -m pytest -m ui -p no:randomly tests/ui $(PYTEST_ARGS)

soak: $(SET_UP)  ## run the tests that take minutes each
	@$(PY) -m pytest -m "soak and not compose"

# Extra options of the image builds, for example for a proxy: BUILD_ARGS="--network host -v /etc/ssl/certs:/etc/ssl/certs:O".
test-compose: $(SET_UP) $(S3_SERVER)  ## build the image, run the containers, compare a backfill with this machine, kill parts (docker or podman)
	@docker info >/dev/null 2>&1 || podman info >/dev/null 2>&1 || { \
		echo "make test-compose needs docker with its compose plugin and a daemon that answers, or podman" >&2; exit 1; }
	@$(UV) pip install --quiet --python $(PY) --no-deps --target .cache/compose podman-compose==1.6.0
	@HINDCAST_BUILD_ARGS='$(BUILD_ARGS)' HINDCAST_S3_SERVER=$(S3_SERVER) $(PY) -m pytest -m compose -p no:randomly tests/deploy $(PYTEST_ARGS)

fuzz: $(SET_UP)  ## test every property on 10,000 random cases, or for 5 minutes (CASES=1000, SECONDS_EACH=60; SEED=... to repeat a run)
	@seed="$${SEED:-$$RANDOM$$RANDOM}"; echo "fuzz: CASES=$(CASES) SECONDS_EACH=$(SECONDS_EACH) SEED=$$seed"; \
	HINDCAST_FUZZ=$(CASES) HINDCAST_FUZZ_SECONDS=$(SECONDS_EACH) HINDCAST_SEED="$$seed" $(PY) -m pytest -n 2 --timeout 7200 --hypothesis-seed "$$seed" \
		-m "(hypothesis or fuzz) and not s3 and not ($(HEAVY))" $(PYTEST_ARGS)

mutate: $(SET_UP)  ## change windowlib's core in 3,000 places, one at a time, and count the changes that no test finds (hours)
	@$(UV) pip install --quiet --python $(PY) --target .cache/mutmut mutmut==3.8.1
	@export HINDCAST_FUZZ=15 HYPOTHESIS_PROFILE=ci PYTHONPATH=$(CURDIR)/.cache/mutmut; \
	$(PY) -m mutmut run --max-children 2; $(PY) -m mutmut results

bench: $(SET_UP)  ## measure Hindcast beside its peers and write docs/explanation/benchmarks.md, hours (BENCH_ARGS="--size S --only session")
	@$(PY) -m bench run $(BENCH_ARGS)
