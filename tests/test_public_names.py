"""Public names of the package, loaded when they are first used, if their extra is there."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gbm_constrained
from gbm_constrained._optional import explain_missing

HEAVY = ("xgboost", "lightgbm", "matplotlib", "cupy", "dask", "pyspark", "ray")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("fnr, gap, presets, ConstrainedLogisticRegression", []),
        ("ConstrainedLGBMClassifier", ["lightgbm"]),
        ("ConstrainedXGBClassifier", ["xgboost"]),
    ],
)
def test_a_library_is_loaded_when_it_is_used(names, expected):
    code = f"from gbm_constrained import {names}; import sys"
    asked = f"{code}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    assert done.stdout.split() == expected, done.stderr


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


def test_a_missing_engine_is_named_with_its_extra():
    code = """
import sys
for module, missing in (("dask", "dask"), ("dask", "distributed"), ("spark", "pyspark")):
    sys.modules[missing] = None
    try:
        __import__(f"gbm_constrained.{module}")
    except ImportError as error:
        print(error)
    del sys.modules[missing]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first, second, third = done.stdout.strip().split("\n")
    extra = 'pip install "gbm_constrained[dask]"'
    assert first.startswith(f"Classifiers of Dask collections need dask: {extra}")
    assert second.startswith(f"Classifiers of Dask collections need distributed: {extra}")
    assert third.startswith('Estimators of Spark need pyspark: pip install "gbm_constrained[spark')


def test_the_first_error_is_kept():
    expected = pytest.raises(ImportError, match="Maps need atlas_of")
    with expected as raised, explain_missing("Maps", "maps"):
        import atlas_of.nowhere  # noqa: F401
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), explain_missing("Maps", "maps"):
        1 / 0  # noqa: B018
