# The two commands of the README are `make demo` and `make test`; each sets up .venv on a fresh machine first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: install demo test breaks lint docs results clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/latflow demo

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Not part of `make test`: each of a list of deliberate breaks, and whether a test notices (docs/testing.md).
breaks: install
	$(BIN)/python -m tests.breaks

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: install
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

results: install
	$(BIN)/latflow reproduce all --show --docs docs/results.md

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache
