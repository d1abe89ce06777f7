"""What the constraints cost: the plain model beside the one that is returned."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import CLASSIFIERS, EITHER
from plug_in_fits import OPTIONS
from sklearn.linear_model import Ridge

import gbm_constrained as gc
from gbm_constrained.metrics import g_mean

RULES = [gc.gap(gc.selection_rate(), by="sex") <= 0.05, gc.fnr() <= 0.4]
NAMES = ["gap(selection_rate, by='sex') <= 0.05", "fnr <= 0.4"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 1000)
    X = np.column_stack([rng.normal(size=(1000, 4)), sex])
    return X, (X[:, 0] + X[:, 1] + 1.5 * sex + rng.normal(size=1000) > 1.0).astype(int), sex


def fitted(library, table, rules=RULES, **options):
    X, y, sex = table
    options = {"n_estimators": 12, "measure_on": "crossfit", **OPTIONS[library], **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CLASSIFIERS[library](constraints=rules, **options).fit(
            X, y, sensitive_features={"sex": sex}
        )


@EITHER
def test_the_plain_row_is_what_boosters_without_constraints_do_out_of_fold(
    library, table, conclusions
):
    """Counted by hand from the scores of fold boosters that move neither weight nor threshold."""
    _, y, sex = table
    report = fitted(library, table).cost_report_
    assert report.index.tolist() == ["plain", "returned"]
    assert report.columns.tolist() == ["error", *NAMES]
    fitted(library, table, solver="threshold")  # The same plain boosters.
    boosters = conclusions[1].fit.measured.boosters
    decided = boosters.held_margin(boosters.rounds) > 0
    rates = [decided[sex == k].mean() for k in (0, 1)]
    expected = [np.mean(decided != y), abs(rates[0] - rates[1]), np.mean(~decided[y == 1])]
    np.testing.assert_allclose(report.loc["plain"], expected, atol=1e-12)


@EITHER
def test_the_returned_row_is_that_of_the_reports(library, table):
    """Groups are compared as they are, though they act by credibility."""
    model = fitted(library, table)
    returned = model.cost_report_.loc["returned"]
    assert returned["error"] == model.feasibility_.error
    np.testing.assert_array_equal(returned[NAMES], model.constraint_report_["held_out"])
    plain = model.feasibility_.plain
    np.testing.assert_array_equal(
        model.cost_report_.loc["plain"], [plain.objective, *plain.values]
    )
    assert returned[NAMES[0]] < model.cost_report_.loc["plain", NAMES[0]]
    assert model.feasibility_.cost.unconstrained_error == plain.objective


@EITHER
@pytest.mark.parametrize("options", [{"solver": "abpp"}, {"measure_on": "train"}], ids=str)
def test_a_plain_model_that_was_not_measured_is_missing(library, table, options):
    model = fitted(library, table, **options)
    assert model.cost_report_.loc["plain"].isna().all()
    assert model.feasibility_.plain is None


@pytest.mark.parametrize(
    ("library", "rules"), [("xgboost", RULES), ("lightgbm", RULES[1:])], ids=["groups", "labels"]
)
def test_a_metric_has_the_plain_row_beside_the_returned_one(library, table, rules):
    """Group decisions are those of a fit without a metric, and label decisions of one set."""
    model = fitted(library, table, rules, maximize=g_mean())
    report, of_metric = model.cost_report_, model.metric_report_
    names = [str(rule) for rule in rules]
    assert report.columns.tolist() == ["g_mean", *names]
    plain = of_metric[(of_metric["oracle"] == "plug_in") & (of_metric["decisions"] == "argmax")]
    assert report["g_mean"]["plain"] == plain["held_out"].iloc[0]
    returned = of_metric[of_metric["is_returned"]]
    assert report["g_mean"]["returned"] == returned["held_out"].iloc[0]
    np.testing.assert_array_equal(
        report.loc["returned", names], model.constraint_report_["held_out"]
    )
    assert report["fnr <= 0.4"]["returned"] <= 0.43


def test_the_plain_row_of_a_ridge_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(500, 3)), rng.integers(0, 2, 500)
    y = X.sum(axis=1) + group + rng.normal(size=500)
    X = np.column_stack([X, group])
    rule = gc.gap(gc.mean_prediction(), by="group") <= 0.3
    model = gc.ConstrainedRidge(constraints=[rule])
    model.fit(X, y, sensitive_features={"group": group})
    score = Ridge().fit(X, y).predict(X)
    gap = score[group == 1].mean() - score[group == 0].mean()
    expected = [np.mean((y - score) ** 2) / 2.0, gap]
    np.testing.assert_allclose(model.cost_report_.loc["plain"], expected, rtol=1e-9)
    score = model.predict(X)
    gap = score[group == 1].mean() - score[group == 0].mean()
    expected = [np.mean((y - score) ** 2) / 2.0, gap]
    np.testing.assert_allclose(model.cost_report_.loc["returned"], expected, rtol=1e-9)
