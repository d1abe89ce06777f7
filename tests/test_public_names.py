"""Public names of the package, loaded when they are first used, if their extra is there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gbm_constrained
from gbm_constrained._optional import explain_missing

HEAVY = ("xgboost", "lightgbm", "matplotlib", "cupy", "dask", "pyspark", "ray")


def loaded_after(code):
    """List which of the heavy packages a new interpreter has loaded after some code."""
    asked = f"{code}; import sys; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import gbm_constrained", []),
        ("from gbm_constrained import fnr, gap; import gbm_constrained.presets", []),
        ("from gbm_constrained import ConstrainedLGBMClassifier", ["lightgbm"]),
        ("from gbm_constrained import ConstrainedXGBClassifier", ["xgboost"]),
        ("from gbm_constrained import ConstrainedLogisticRegression", []),
    ],
)
def test_a_library_is_loaded_when_it_is_used(code, expected):
    assert loaded_after(code) == expected


def test_all_names_are_there():
    names = {}
    exec("from gbm_constrained import *", names)
    for name in gbm_constrained.__all__:
        assert names[name] is getattr(gbm_constrained, name)
        assert name in dir(gbm_constrained)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'ConstrainedClassifier'"):
        gbm_constrained.ConstrainedClassifier  # noqa: B018


def test_type_checkers_know_each_name_and_no_other():
    """They take a function ``__getattr__`` of a module for the promise that all names exist."""
    body = ast.parse(Path(gbm_constrained.__file__).read_text(encoding="utf-8")).body
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    assert "__getattr__" not in defined
    imported = {
        alias.asname or alias.name
        for block in body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {*gbm_constrained._PLACES, *gbm_constrained._MODULES}


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
