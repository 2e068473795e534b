# Two commands are all the set-up a fresh machine needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test lint bench clean

# The lock file pins every version; the extras say which of them are needed.
$(VENV)/.base: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements.lock -e .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) install -c requirements.lock -e ".[dev]"
	touch $@

demo: $(VENV)/.base
	$(BIN)/simulate demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n auto

bench: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks -m benchmark_suite -p no:xdist --benchmark-columns=median,min,rounds --benchmark-group-by=group

clean:
	rm -rf $(VENV) build *.egg-info
