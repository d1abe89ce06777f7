"""Rates of groups by values of columns, and the same by pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 60
RNG = np.random.default_rng(0)
SEX = RNG.choice(["F", "M"], N)
AGE = RNG.integers(0, 3, N)
Y = RNG.integers(0, 2, N)
PREDICTED = RNG.integers(0, 2, N)


def groups_of(columns, by=None, features=(), n=N, **options):
    """Groups of a rate, by name, and its value in each."""
    rows = Rows(Y[:n], np.array([0, 1]), None, columns, features)
    rule = gc.each(gc.selection_rate(), by=by, min_group_size=1, **options) <= 0.5
    cells, compiled = compile_constraints([rule], rows)
    margin = np.where(PREDICTED[:n], 1.0, -1.0)
    statistics = Lagrangian(Y[:n], cells, compiled).at(margin).statistics()
    values = compiled.functionals(statistics)
    return dict(zip([g.name for g in compiled.groups[0]], values, strict=True))


def expected_of(column):
    """The same by pandas, rows without a value last."""
    column = pd.Series(column, dtype=object).map(lambda v: "missing" if pd.isna(v) else v)
    found = pd.Series(PREDICTED[: len(column)]).groupby(column.to_numpy()).mean()
    return found.rename({"missing": MISSING}).to_dict()
