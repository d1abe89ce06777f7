"""Benchmarks are scripts, which tests import from their folder."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
# They are beside the tests in a checkout, and not where the package alone is installed.
collect_ignore_glob = [] if BENCHMARKS.is_dir() else ["test_*.py"]
