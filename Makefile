# Two commands do all the set-up on a machine with only Python 3.11+ and make:
#   make demo   fresh .venv, install, train both libraries on Adult, print and plot
#   make test   fresh .venv with the test extras, lint, types, the whole suite
# A third builds the documentation, into build/docs:
#   make docs   fresh .venv, run the examples for the gallery, build every page without a warning
# A fourth runs the benchmarks of docs/evidence.md on a small scale, into build:
#   make evidence   fresh .venv, and one for each peer that cannot run in it
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The oldest versions that pyproject.toml declares, and the newest, over the Pythons that are here.
MATRIX_PYTHONS ?= python3.11 python3.12 python3.13
MATRIX_TESTS ?= tests

.PHONY: demo wheel test test-slow test-matrix check layers coverage docs evidence clean

demo:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet ".[demo]"
	mkdir -p output
	cd output && ../$(BIN)/python ../examples/adult_false_positive_rates.py

test:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	$(MAKE) check

# MATRIX_TESTS="tests/test_surface.py" runs part of the suite; no extra but that of the tests.
test-matrix:
	$(PYTHON) .ci/matrix.py --tests "$(MATRIX_TESTS)" $(MATRIX_PYTHONS)

# The wheel and the source distribution, and the README's code with the wheel at both ends.
wheel:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) .ci/matrix.py --wheel dist/*.whl --tests "tests/docs/test_docs.py -k README.md" $(MATRIX_PYTHONS)

# The checks alone, in the .venv that make test has made.
check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 LOKY_MAX_CPU_COUNT=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# What is too long for every day, in the .venv that make test has made.
test-slow:
	OMP_NUM_THREADS=1 LOKY_MAX_CPU_COUNT=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow

# The layers of packages alone, and the share of lines that the suite runs, at least 95 %.
layers:
	$(BIN)/lint-imports

coverage:
	$(BIN)/python -m pip install --quiet "pytest-cov>=5"
	OMP_NUM_THREADS=1 LOKY_MAX_CPU_COUNT=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal --cov gbm_constrained --cov-report term:skip-covered --cov-fail-under 95

docs:
	rm -rf build/docs docs/gallery docs/generated
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet ".[docs]"
	$(BIN)/sphinx-build -W --keep-going docs build/docs

evidence:
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	$(BIN)/python benchmarks/peers.py --quick --environments build/peers
	$(BIN)/python benchmarks/peers.py --quick --tables --figure build/frontiers.png
	$(BIN)/python benchmarks/paper_tables.py --quick --fairgbm-python build/peers/fairgbm/bin/python
	$(BIN)/python benchmarks/scale.py --quick

clean:
	rm -rf $(VENV) .venv-* output examples/*.png docs/gallery docs/generated docs/sg_execution_times.rst dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
