"""Options of the reductions of a metric, given as an object in the place of a name."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.solvers import Reduction

REDUCTIONS = [
    Reduction("gda", max_calls=9, steps=[(0.1, 0.1)]),
    Reduction("ellipsoid", max_calls=7, radius=2.0),
    Reduction("frank_wolfe", max_calls=8, step="open_loop"),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=300), [-0.5, 0.8])


def make(library, solver, **others):
    own = {"n_estimators": 2, "max_depth": 2, "n_jobs": 1, "measure_on": "holdout", **others}
    own |= {"verbose": -1} if library == "lightgbm" else {"verbosity": 0}
    return CLASSIFIERS[library](maximize="q_mean", solver=solver, **own)


early = pytest.mark.filterwarnings("ignore:solver=.* ended before the optimum")


@early
@BOTH
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_no_search_calls_more_often(library, reduction, rows, tmp_path):
    model = make(library, reduction).fit(*rows)
    assert model.history_.groupby("counted_by").size().max() == reduction.max_calls
    assert clone(model).solver == reduction
    path = tmp_path / ("model.txt" if library == "lightgbm" else "model.json")
    model.save_model(path)
    assert CLASSIFIERS[library]().load_model(path).solver == reduction
    assert model.set_params(solver__max_calls=5).solver.max_calls == 5


@early
def test_options_reach_the_search(rows):
    """Of a linear model as well."""
    histories = [
        ConstrainedLogisticRegression(maximize="q_mean", constraint_solver=one).fit(*rows).history_
        for one in (REDUCTIONS[1], Reduction("ellipsoid", max_calls=7))
    ]
    assert not np.array_equal(histories[0]["value"], histories[1]["value"])


@pytest.mark.parametrize(
    ("reduction", "match"),
    [
        (Reduction("gdaa"), "name of Reduction must be one of"),
        (Reduction("gda", max_calls=1), "max_calls of Reduction must be an integer >= 2, got 1"),
        (Reduction("gda", radius=1.0), r"radius=1.0 is of Reduction\('ellipsoid'\)"),
        (Reduction("gda", steps=0.1), "steps of Reduction must be pairs of numbers"),
        (Reduction("gda", steps=[(0.1, -1.0)]), "each of the steps .* positive number, got -1.0"),
        (Reduction("frank_wolfe", step="long"), "step of Reduction must be one of"),
        (Reduction("ellipsoid", radius=0.0), "radius of Reduction must be a positive number"),
        (Reduction("bisection"), "solver='bisection' needs a ratio of linear functions"),
    ],
)
def test_bad_options_are_named(reduction, match, rows):
    with pytest.raises(ValueError, match=match):
        make("lightgbm", reduction).fit(*rows)


def test_a_reduction_needs_a_metric(rows):
    model = make("lightgbm", REDUCTIONS[0], constraints=[gc.error_rate() <= 0.5])
    with pytest.raises(ValueError, match="optimises a metric of the confusion matrix"):
        model.set_params(maximize=None).fit(*rows)
