# Every command works on a fresh clone: it installs what it needs into .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := .venv/bin

.PHONY: help demo test lint bench simulate advisories endurance faults loadtest docs clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/dispatcher: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tocsin needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing tocsin[dispatcher] into .venv …"
	@$(BIN)/python -m pip install --quiet --editable '.[dispatcher]'
	@touch $@

.venv/test: .venv/dispatcher
	@echo "Installing tocsin[test] into .venv …"
	@$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: .venv/dispatcher ## Watch the embedded scheduler work, and survive a kill -9 (needs only Python)
	@$(BIN)/tocsin demo

test: lint ## Lint, then every test; starts its own Cassandra and Kafka
	@$(BIN)/python -m pytest

lint: .venv/test ## ruff, mypy strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy examples
	@cd .typecheck && ../$(BIN)/lint-imports --no-cache --config ../pyproject.toml

bench: .venv/test ## Benchmarks, as ratios to a bare loop in the same run
	@for part in dispatch herd steady create timers; do $(BIN)/tocsin bench $$part; done

simulate: .venv/test ## Simulate the protocol under faults: SEED=n replays one seed, SEEDS=n runs many
	@$(BIN)/python -m pytest tests/simulation/test_simulation.py --seeds=$(or $(SEEDS),300) $(if $(SEED),--seed=$(SEED))

advisories: .venv/test ## Known weaknesses of what is installed; says so where the database cannot be reached
	@.ci/advisories

endurance: .venv/test ## Strike real processes with one fault after another: MINUTES=n (10), SEED=n
	@ENDURANCE_MINUTES=$(or $(MINUTES),10) $(if $(SEED),ENDURANCE_SEED=$(SEED)) \
		$(BIN)/python -m pytest tests/acceptance/test_endurance.py -rP

faults: .venv/test ## Strike herds, brokers and fleets at full length: ROUNDS=n (20), SEED=n
	@FAULT_ROUNDS=$(or $(ROUNDS),20) OUTAGE_SECONDS=120 FLEET_SECONDS=300 $(if $(SEED),FAULT_SEED=$(SEED)) \
		$(BIN)/python -m pytest -rP tests/acceptance/test_herd_struck.py tests/acceptance/test_outages.py \
		tests/acceptance/test_fleet.py

loadtest: .venv/test ## Hourly peaks on three Cassandra nodes, a dispatcher killed in one: MINUTES=n (5)
	@$(BIN)/tocsin loadtest run --minutes $(or $(MINUTES),5) --kill-dispatcher-at 1 --report loadtest.html

docs: .venv/test ## Build the documentation into site/; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Built: site/index.html"

clean: ## Remove what the commands above made
	@rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
