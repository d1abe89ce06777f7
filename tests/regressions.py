"""Regressions of random rows: Lagrangians, rules of every kind, and references by cvxpy."""

import cvxpy as cp
import numpy as np
from scipy.special import huber
from sklearn import metrics

import gbm_constrained as gc
from gbm_constrained.constraints.rates import (
    coverage,
    mean_loss,
    mean_prediction,
    mean_residual,
    row_functions_of,
    share_above,
)
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.losses import RegressionObjective
from gbm_constrained.problem.regression import RegressionLagrangian

N = 60
# Loss: its parameter, and its weighted mean by another library.
LOSSES = {
    "squared": ({}, metrics.mean_squared_error),
    "absolute": ({}, metrics.mean_absolute_error),
    "huber": (
        {"delta": 0.7},
        lambda y, f, sample_weight: np.average(huber(0.7, y - f), weights=sample_weight),
    ),
    "pinball": (
        {"alpha": 0.8},
        lambda y, f, **w: metrics.mean_pinball_loss(y, f, alpha=0.8, **w),
    ),
    "poisson": ({}, metrics.mean_poisson_deviance),
}
MEANS = {
    **{name: mean_loss(name, **given) for name, (given, _) in LOSSES.items()},
    "prediction": mean_prediction(),
    "residual": mean_residual(),
    "share": share_above(1.2),
    "coverage": coverage(),
}
OBJECTIVES = [
    RegressionObjective("squared"),
    RegressionObjective("huber", 0.8),
    RegressionObjective("pseudo_huber", 0.8),
    RegressionObjective("absolute"),
    RegressionObjective("quantile", 0.3),
    RegressionObjective("poisson"),
    RegressionObjective("tweedie", 1.5),
    RegressionObjective("gamma"),
    RegressionObjective("fair", 0.8),
]
SQUARED = OBJECTIVES[0]


def draw(n=N, seed=0):
    """Draw positive targets, scores near them, weights (one is zero), groups and amounts."""
    rng = np.random.default_rng(seed)
    targets = rng.gamma(3.0, 0.5, n)
    score = targets + rng.normal(size=n)
    weight = rng.gamma(2.0, size=n)
    weight[-1] = 0.0
    table = {
        "group": rng.choice(["a", "b", "c"], n),
        "side": rng.choice(["left", "right"], n),
        "amount": rng.gamma(2.0, size=n),
    }
    for name in ("group", "side"):
        table[name][:6] = (list("abcabc"), ["left", "right"] * 3)[name == "side"]
    return targets, score, weight, table


def build(targets, rules, objective=SQUARED, weight=None, table=None, datasets=None, **options):
    """Build the Lagrangian of rows under rules."""
    X = np.zeros((targets.size, 1))
    arguments = FitArguments(X, targets, weight, table, datasets)
    data = FitData.of(arguments, rules, has_targets=True)
    cells, compiled = compile_constraints(rules, data.rows)
    return RegressionLagrangian(
        data.targets,
        cells,
        compiled,
        functions=row_functions_of(rules),
        objective=objective,
        weight=data.rows.weight,
        **options,
    )


def mixed_rules():
    """List rules that use several functions, groups, amounts and views."""
    return [
        gc.gap(mean_loss("squared"), by="group", min_group_size=1) <= 0.1,
        gc.each(mean_loss("huber", delta=0.5), by="side", min_group_size=1) <= 0.2,
        mean_prediction(weight="amount") - 2 * mean_residual(weight="amount") <= 1.0,
        share_above(1.0, on={"group": "a"}) + 2 * coverage() >= 0.3,
    ]


def loss_of(kind, parameter, residual):
    """Write a loss of residuals for cvxpy."""
    if kind == "squared":
        return cp.square(residual)
    if kind == "huber":  # cvxpy's is twice that of the field
        return cp.huber(residual, parameter) / 2.0
    return cp.maximum(parameter * residual, (parameter - 1.0) * residual)


LOSS_OF_OBJECTIVE = {"squared": "squared", "huber": "huber", "quantile": "pinball"}
PARAMETERS = {"squared": np.nan, "huber": 0.8, "quantile": 0.7}
