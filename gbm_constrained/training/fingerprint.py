"""What tells one fit from another: its data, parameters, rules and libraries.

A checkpoint holds the fingerprint of its fit, by name, so that a resumption with anything else is
refused and told what differs.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import scipy
import sklearn
import xgboost
from scipy import sparse
from scipy.special import expit

from gbm_constrained.data.validation import untouched_random_state
from gbm_constrained.solvers.base import SolverMethod

# They say what is printed, not what is trained.
PRINTED = ("verbose", "verbosity", "silent")
MANY = 100  # Longer lists are of rows, not of tables.
LONG = 60  # Longer values of parameters are told apart, but not shown.


def fingerprint_of(
    estimator: Any, arguments: Mapping[str, Any], rules: Mapping[str, Any]
) -> dict[str, str]:
    """Describe a fit, one entry for each thing that can be different.

    Parameters
    ----------
    estimator : classifier
        Its parameters.
    arguments : mapping
        Arguments of ``fit``; None stands for those that were not given.
    rules : mapping
        The constraints as they compile on these rows.

    Returns
    -------
    dict from str to str
        Values as they print, or their SHA-256.
    """
    from gbm_constrained._version import __version__  # which imports this module

    found = {
        "gbm_constrained": __version__,
        "xgboost": xgboost.__version__,
        "lightgbm": lightgbm.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    with untouched_random_state(estimator):
        params = estimator.get_params(deep=False)
    for name, value in params.items():
        if name not in PRINTED and name != "constraints":
            text = _describe(value)
            found[name] = text if len(text) <= LONG else digest(text)
    found["constraints"] = "[" + ", ".join(map(str, rules["constraints"])) + "]"
    found["rows of the constraints"] = digest([v for k, v in rules.items() if k != "constraints"])
    found.update((name, digest(v)) for name, v in arguments.items() if v is not None)
    return found


def machine() -> dict[str, str]:
    """Describe what the last digits may depend on: the processor, the number of its threads."""
    # NumPy takes the vector instructions that it finds, and rounds as they do.
    x = np.linspace(-20.0, 20.0, 4001)
    narrow = x.astype(np.float32)
    computed = [np.exp(x), np.exp(narrow), expit(x), expit(narrow), np.log1p(x * x)]
    return {
        "the processor": f"{platform.machine()} {digest([*computed, computed[0].sum()])}",
        "the number of threads": f"{os.cpu_count()} {os.environ.get('OMP_NUM_THREADS')}",
    }


def digest(value: Any) -> str:
    """SHA-256 of data: arrays, tables, sparse matrices, and lists and dicts of these.

    Types, shapes and names of columns count; the order in memory does not.
    """
    total = hashlib.sha256()
    _feed(total, value)
    return f"sha256:{total.hexdigest()}"


def _feed(total: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        _feed_array(total, value)
    elif isinstance(value, (pd.Series, pd.Index)):
        _feed_column(total, pd.Series(value))
    elif isinstance(value, pd.DataFrame):
        total.update(repr(("table", value.shape, list(value.columns))).encode())
        for j in range(value.shape[1]):
            _feed_column(total, value.iloc[:, j])
    elif sparse.issparse(value):
        matrix: Any = value
        rows = matrix.tocsr()
        total.update(repr(("sparse", matrix.format, matrix.shape)).encode())
        for part in (rows.data, rows.indices, rows.indptr):
            _feed_array(total, part)
    elif isinstance(value, Mapping):
        total.update(f"dict {len(value)}".encode())
        for name, item in value.items():
            total.update(repr(name).encode())
            _feed(total, item)
    elif isinstance(value, (list, tuple)) and len(value) > MANY:
        _feed(total, np.asarray(value))
    elif isinstance(value, (list, tuple)):
        total.update(f"list {len(value)}".encode())
        for item in value:
            _feed(total, item)
    elif hasattr(value, "to_pandas"):
        _feed(total, value.to_pandas())
    elif hasattr(value, "__array__") and not isinstance(value, np.generic):
        _feed_array(total, np.asarray(value))
    else:
        total.update(_describe(value).encode())


def _feed_array(total: Any, array: np.ndarray[Any, Any]) -> None:
    if array.dtype == object:
        array = pd.util.hash_array(array.ravel()).reshape(array.shape)
    total.update(repr(("array", array.dtype.str, array.shape)).encode())
    if array.dtype.kind in "mM":  # times have no buffer
        array = array.view(np.int64)
    total.update(np.ascontiguousarray(array).data)


def _feed_column(total: Any, column: pd.Series[Any]) -> None:
    if isinstance(column.dtype, pd.CategoricalDtype):
        _feed(total, np.asarray(column.cat.categories))
        values = column.cat.codes.to_numpy()
    else:
        values = pd.util.hash_pandas_object(column, index=False).to_numpy()
    total.update(repr(("column", str(column.name), str(column.dtype))).encode())
    _feed_array(total, values)


def _describe(value: Any) -> str:
    """Tell a parameter as it prints, without addresses in memory."""
    if isinstance(value, (np.ndarray, pd.Series, pd.DataFrame)):
        return digest(value)
    if isinstance(value, np.random.RandomState):
        return f"RandomState {digest(list(value.get_state(legacy=True)))}"
    if isinstance(value, np.random.Generator):
        return f"Generator {value.bit_generator.state!r}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_describe(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_describe, value)) + "]"
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return repr(value)
    if isinstance(value, SolverMethod):
        return f"{type(value).__name__}({_describe(value.get_params())})"
    kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
