# The two commands of the README are `make demo` and `make test`; each sets up all it needs, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "roofwatch needs Python 3.11 or newer, and $(PYTHON) is older: try make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group dev --editable .
	@rm -f $(VENV)/.ready-*
	@touch $@

.PHONY: setup
setup: $(READY) ## make .venv with the pinned dependencies

.PHONY: demo
demo: $(READY) ## profile two real jobs on this machine and show their top kernels (about a minute)
	$(BIN)/roofwatch demo

# Read as text by tests/ascend_live/test_contract.py, never installed; without a network those tests skip.
TORCH_NPU := build/torch-npu
.PHONY: torch-npu
torch-npu: $(READY) ## fetch the torch_npu wheel that the hook is checked against (43 MB, once)
	@ls $(TORCH_NPU)/torch_npu-2.13.0-*.whl >/dev/null 2>&1 || \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 15 --no-deps \
	    --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 --dest $(TORCH_NPU) torch-npu==2.13.0

# Three parts. What computes, a file at a time, the files that take longest first: three workers on two cores, since a
# third of it waits for programs that it starts. What takes windows of live jobs waits most of the time, for
# interpreters, intervals and deadlines: three, too. One by one what says of this machine what holds while it is quiet.
COMPUTE := tests/capture tests/trouble tests/store tests/store_clickhouse tests/fuzz tests/bench tests/packaging tests/trust tests/cli tests/report tests/agent tests/soak tests/timeline tests/reader tests/regressions tests/machines tests/compare tests/ascend tests/padding tests/proto tests/ranks tests/roofline tests/whatif
LIVE := tests/upgrade tests/deploy tests/e2e/test_ranks.py tests/e2e/test_first_light.py tests/node tests/ascend_live tests/hook
# Most programs that tests start live for a second, so that compiling our modules anew would be a fifth of their time:
# what Python compiles is kept, wherever an environment says that it is not to be.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: $(READY) ## run all tests
	-@$(MAKE) --no-print-directory torch-npu
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(COMPUTE) $(PYTEST_ARGS)
	$(BIN)/python -m pytest -n 3 --dist worksteal $(LIVE) $(PYTEST_ARGS)
	$(BIN)/python -m pytest $(addprefix --ignore=,$(COMPUTE) $(LIVE)) $(PYTEST_ARGS)

.PHONY: lint
lint: $(READY) ## ruff, mypy, import-linter, generated code up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

.PHONY: audit
audit: ## ask whether a pinned version has a known vulnerability
	$(PYTHON) .ci/audit.py

.PHONY: format
format: $(READY) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: proto
proto: $(READY) ## generate the protobuf code again
	$(BIN)/python proto/generate.py

.PHONY: bench
bench: $(READY) ## measure every limit and print the table (BENCH=list: what there is; BENCH="ingest store_size": these)
	$(BIN)/python bench/run.py $(if $(filter list,$(BENCH)),--list,$(if $(BENCH),--only $(BENCH))) $(BENCH_ARGS)

.PHONY: bench-overhead
bench-overhead: $(READY) ## measure what profiling costs jobs, on an idle machine (7 minutes; OVERHEAD_ARGS=--write: README)
	$(BIN)/python bench/overhead.py $(OVERHEAD_ARGS)

.PHONY: stress
stress: $(READY) ## 1,000 windows a configuration in busy, forking and dying jobs (long)
	$(BIN)/python tests/stress/run.py --windows 1000

.PHONY: fuzz
FUZZ_SECONDS ?= 300
fuzz: $(READY) ## feed broken traces, messages and segments to what reads them (5 minutes each)
	$(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --keep build $(FUZZ_ARGS)

.PHONY: trouble
trouble: $(READY) ## kill stores and Postgres 45 times, full disks, clocks that jump: the long form of tests/trouble
	ROOFWATCH_TROUBLE=long $(BIN)/python -m pytest -s --timeout 1200 tests/trouble $(PYTEST_ARGS)

.PHONY: soak
SOAK_MINUTES ?= 20
soak: $(READY) ## jobs come and go while everything is killed, cut off, filled up and out of time (20 minutes)
	$(BIN)/python tests/soak/run.py --minutes $(SOAK_MINUTES) $(SOAK_ARGS)

.PHONY: upgrade
upgrade: $(READY) ## this version and the previous one's wheel beside each other, in every order
	ROOFWATCH_UPGRADE=long $(BIN)/python -m pytest --timeout 600 tests/upgrade $(PYTEST_ARGS)

.PHONY: wheels
wheels: $(READY) ## build both wheels into dist/
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --wheel --outdir dist collectors/hook

.PHONY: clean
clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
