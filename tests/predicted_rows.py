"""Held-out rows of a regression, and means of them by hand."""

from __future__ import annotations

import numpy as np

from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.decision.regression import PredictedRows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.losses import RegressionObjective

SQUARED = RegressionObjective("squared")


def hold_out(targets, rules, groups=None, weight=None, objective=SQUARED):
    """Bind rules to held-out rows."""
    targets = np.asarray(targets, dtype=float)
    table = None if groups is None else {"g": np.asarray(groups)}
    arguments = FitArguments(np.zeros((targets.size, 1)), targets, weight, table, None)
    data = FitData.of(arguments, rules, has_targets=True)
    cells, compiled = compile_constraints(rules, data.rows)
    return PredictedRows(cells, compiled, "held out", targets, objective)
