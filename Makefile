# Every target sets up what it needs: a virtual environment with the tested versions.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BEST := experiments/11_pong_in_seconds.py
ARGS ?=
.DEFAULT_GOAL := help

.PHONY: help pong test learn test-slow faults soak engines test-newest test-oldest check bench tables format clean

help: ## this list
	@echo 'make TARGET [ARGS="..."], where ARGS goes to the command, and TARGET is one of'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

pong: $(VENV)/ready ## train Pong with the fastest script, on the GPU if there is one
	$(BIN)/python $(BEST) --device auto $(ARGS)

test: $(VENV)/ready ## all tests but those that learn for long
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal --durations 20 -m "not slow and not engines" $(ARGS)

learn: $(VENV)/ready ## the tests that learn for long: every script and variant Catch, actor-critics CartPole, SAC Pendulum
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal -m slow -k "learn or solved" $(ARGS)

test-slow: $(VENV)/ready ## all tests that take long, those of learning too
	$(BIN)/python -m pytest --numprocesses logical --dist worksteal -m slow $(ARGS)

faults: $(VENV)/ready ## kill runs, fill disks, damage files, set clocks: some hundreds of times
	$(BIN)/python -m tests.faults $(ARGS)

soak: $(VENV)/ready ## an hour of 09 and one of 03: memory, open files and threads must not grow
	$(BIN)/python -m tests.faults.soak $(ARGS)

engines: $(VENV)/ready ## install Ray, Spark with Java (not with NO_SPARK=1) and Stable-Baselines3, and run the tests with them
	@$(if $(NO_SPARK),:,$(with-java))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(if $(NO_SPARK),ray$(comma)sb3,engines)]"
	$(BIN)/python -m pytest -m engines $(ARGS)

# Java where fastdqn looks for it; else root has it from the system's packages, where Debian 13 has no Java 17.
comma := ,
java = command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" > /dev/null
define with-java
$(java) || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && export DEBIAN_FRONTEND=noninteractive && apt-get update --quiet=2 && { \
	  apt-get install --yes --quiet=2 openjdk-17-jre-headless || apt-get install --yes --quiet=2 default-jre-headless; }; \
	  $(java); } || { \
	  echo "Spark needs Java 17 or newer, and none could be set up; install openjdk-17-jre-headless or default-jre-headless, let JAVA_HOME say where it is, or leave Spark out by NO_SPARK=1." >&2; \
	  exit 1; }
endef

test-newest: ## all tests with the newest versions that PYTHON can have, in an environment of its own
	$(call test-with,/dev/null)

test-oldest: PYTHON = python3.10
test-oldest: ## all tests with the oldest versions that pyproject.toml allows, on Python 3.10
	$(call test-with,constraints-oldest.txt)

define test-with
$(PYTHON) -m venv --clear $(VENV)-$@
$(VENV)-$@/bin/python -m pip install --quiet --constraint $(1) --editable . pytest pytest-timeout pytest-xdist
$(VENV)-$@/bin/python -m pytest --numprocesses logical $(ARGS)
endef

check: $(VENV)/ready ## lint, format, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/ready ## time the ladder on this machine
	$(BIN)/python bench/fps.py $(ARGS)

tables: $(VENV)/ready ## write the tables of README and docs from bench/results
	$(BIN)/python bench/tables.py $(ARGS)

format: $(VENV)/ready ## format the code, and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "fastdqn needs Python 3.10 or newer, and $(PYTHON) is older; name another one, as in PYTHON=python3.12")'
	@echo "setting up $(VENV), which takes minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean: ## remove the environments and what was built
	rm -rf $(VENV) $(VENV)-test-* build dist *.egg-info
