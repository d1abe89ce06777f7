# Two commands do all the set-up on a machine with only Python 3.11+ and make:
#   make demo   fresh .venv, install, train both libraries on the Credit data, print and plot
#   make test   fresh .venv with the test extras, lint, types, the whole suite
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check clean

demo:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet ".[demo]"
	$(BIN)/python examples/credit_neyman_pearson.py --output output

test:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	$(MAKE) check

# The checks alone, in the .venv that make test has made.
check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) output dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
