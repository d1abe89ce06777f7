"""Errors of imports that an extra would have made possible."""

import subprocess
import sys

import pytest

from gbm_constrained._optional import explain_missing


@pytest.mark.parametrize(
    ("module", "missing", "message"),
    [
        (
            "dask",
            "dask",
            'Classifiers of Dask collections need dask: pip install "gbm_constrained[',
        ),
        ("dask", "distributed", "Classifiers of Dask collections need distributed: pip install "),
        (
            "spark",
            "pyspark",
            'Estimators of Spark need pyspark: pip install "gbm_constrained[spar',
        ),
    ],
)
def test_a_missing_engine_is_named_with_its_extra(module, missing, message):
    code = f"import sys; sys.modules[{missing!r}] = None; import gbm_constrained.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: {message}" in done.stderr


def test_the_first_error_is_kept():
    expected = pytest.raises(ImportError, match="Maps need atlas_of")
    with expected as raised, explain_missing("Maps", "maps"):
        import atlas_of.nowhere  # noqa: F401
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), explain_missing("Maps", "maps"):
        1 / 0  # noqa: B018
