# `make` or `make help` lists the targets.  Everything runs in a virtual environment of its own,
# .venv, which is made on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOAK_SECONDS ?= 600
# Processes that share the tests, one more than it has cores on a small machine: tests often wait for
# processes of theirs.  0 for one in which a debugger works.
TEST_PROCESSES ?= 3
# Of property tests: quick, or full, as test-all has it.
EXAMPLES ?= quick
# Of Nexmark, of all kinds.
EVENTS ?= 2000000

# Two halves of all tests but the soak, by their marks (pyproject.toml).
QUICK := not soak and (smoke or not (slow or extended or spark))
REST := not soak and not smoke and (slow or extended or spark)
PYTEST := $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal --durations=25

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-rest lint format soak bench bench-pyflink nexmark nexmark-stream nexmark-flink docs clean attack kept

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

$(VENV)/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[demo,dev,java]'
	touch $@

$(VENV)/ready-bench: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/ready-docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

install: $(VENV)/ready ## make the virtual environment

demo: $(VENV)/ready ## 336,776 flights, a kill -9 half way, and every result compared
	$(BIN)/python -m demo

test: $(VENV)/ready ## what the README claims, in minutes and three processes (TEST_PROCESSES)
	$(PYTEST) -m '$(QUICK)' --hypothesis-profile=$(EXAMPLES)

test-all: $(VENV)/ready ## all tests but the soak, with all examples
	$(PYTEST) -m 'not soak'

test-rest: $(VENV)/ready ## what test leaves to test-all: with `make test EXAMPLES=full` it is all
	$(PYTEST) -m '$(REST)'

kept: $(VENV)/ready ## write the checkpoint and state that tests keep of this version
	$(BIN)/python -m tests.keep

lint: $(VENV)/ready ## ruff, formatting, mypy --strict, words of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.terms

format: $(VENV)/ready ## rewrite the source in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(VENV)/ready ## kills of two jobs on Spark, then the crash matrix, SOAK_SECONDS (600) each
	MILLSTREAM_SOAK_SECONDS=$(SOAK_SECONDS) MILLSTREAM_MATRIX_PAGE=docs/development/crash-matrix.md \
	$(BIN)/python -m pytest -m soak -s

attack: $(VENV)/ready ## fifty faults at random on a job with three sinks, on Spark and on slots (docs/development/fault-injection.md)
	MILLSTREAM_ATTACK_PAGE=docs/development/fault-injection.md $(BIN)/python -m pytest tests/attack -m soak -s

bench: $(VENV)/ready-bench ## the tables of speed, with peers in the same run
	$(BIN)/python -m bench

bench-pyflink: $(VENV)/ready-bench ## the same programs on PyFlink, imports swapped; installs it in build/pyflink
	$(BIN)/python -m bench --flink --only swapped

nexmark: $(VENV)/ready ## events a second of each query of Nexmark, on this machine
	$(BIN)/python -m bench.nexmark --events $(EVENTS)

nexmark-stream: $(VENV)/ready ## the same from one stream of all events, counted as the published figures
	$(BIN)/python -m bench.nexmark --stream --events $(EVENTS)

nexmark-flink: $(VENV)/ready ## the same beside Flink, from the same files; installs Flink in build/flink
	$(BIN)/python -m bench.nexmark --flink --events $(EVENTS)

docs: $(VENV)/ready-docs ## the pages of docs/ and the reference as a site in build/docs
	rm -rf build/docs
	$(BIN)/python -m docs.site build/docs

clean: ## remove what make made
	rm -rf $(VENV) build dist demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis
