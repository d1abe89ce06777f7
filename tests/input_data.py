"""Rows of one small problem, and classifiers of both libraries for tests of inputs."""

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, quiet
from scipy import sparse

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression

RNG = np.random.default_rng(3)
N = 600
X = RNG.normal(size=(N, 4)).astype(np.float32).astype(float)  # XGBoost keeps no more
Y = (X[:, 0] + RNG.normal(size=N) > 0.5).astype(int)
SEX = np.where(X[:, 1] + RNG.normal(size=N) > 0, "F", "M")
FRAME = pd.DataFrame(X, columns=list("abcd"))
HOLES = FRAME.mask(RNG.random(X.shape) < 0.1)
ALWAYS = {
    "xgboost": {
        "n_estimators": 6,
        "n_jobs": 1,
        "measure_on": gc.CrossFit(2),
        "enable_categorical": True,
    },
    "lightgbm": {"n_estimators": 6, "n_jobs": 1, "measure_on": gc.CrossFit(2), "verbose": -1},
}
RULE = [gc.fpr() <= 0.05]
LINEAR = ConstrainedLogisticRegression(constraints=RULE, n_iterations=3)


def make(library, rules=RULE, **options):
    return CLASSIFIERS[library](constraints=rules, **{**ALWAYS[library], **options})


def polars():
    return pytest.importorskip("polars", reason="polars is in the extra 'ecosystem'")


def pyarrow():
    pytest.importorskip("cffi", reason="LightGBM reads pyarrow through cffi")
    return pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")


def nullable(frame):
    """The columns of a frame as pandas' own nullable types."""
    return frame.astype("Float64")


TABLES = {
    "list": lambda: X.tolist(),
    "frame": lambda: FRAME,
    "missing": lambda: HOLES,
    "nullable": lambda: nullable(HOLES),
    "polars": lambda: polars().from_numpy(X, schema=list("abcd")),
    "polars_missing": lambda: polars().from_numpy(HOLES.to_numpy(), schema=list("abcd")),
    "pyarrow": lambda: pyarrow().Table.from_pandas(FRAME),
    "pyarrow_missing": lambda: pyarrow().Table.from_pandas(HOLES),
    "csr": lambda: sparse.csr_matrix(X),
    "csc": lambda: sparse.csc_array(X),
    "coo": lambda: sparse.coo_matrix(X),
}
SEVERAL = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])


HELD, HELD_Y = X[:100], Y[:100]
PAIR = (HELD, HELD_Y)


def refuses(library, message, given=None, y=Y, rules=RULE, **options):
    """Whether a fit says so before the first iteration, also of boosters that measure."""

    def started(state):
        pytest.fail("trees are grown")

    given = {"constraint_callbacks": [started], **quiet(library), **(given or {})}
    with pytest.raises((TypeError, ValueError), match=message):
        make(library, rules, **options).fit(X, y, **given)
