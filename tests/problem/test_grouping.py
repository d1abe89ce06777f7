"""Comparisons of groups: against fairlearn, and which groups there are."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from references import (
    EXACT,
    Problem,
    random,
    seeds,
)
from sklearn import metrics
from sklearn.linear_model import LogisticRegression, Ridge

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

BINARY_METRICS = {
    "selection_rate": gc.selection_rate(),
    "tpr": gc.tpr(),
    "fpr": gc.fpr(),
    "error_rate": gc.error_rate(),
}


@pytest.mark.parametrize("name", BINARY_METRICS)
@pytest.mark.parametrize("by", ["sex", "region", ["sex", "region"]])
@random(4)
@given(seed=seeds)
def test_comparisons_are_those_of_fairlearn(name, by, seed):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    p, rate = Problem(seed, n=300), BINARY_METRICS[name]
    p.weight += 0.01
    function = {
        "selection_rate": fairlearn.selection_rate,
        "tpr": fairlearn.true_positive_rate,
        "fpr": fairlearn.false_positive_rate,
        "error_rate": metrics.zero_one_loss,
    }[name]
    frame = fairlearn.MetricFrame(
        metrics=function,
        y_true=p.y,
        y_pred=p.predicted,
        sensitive_features=pd.DataFrame({"sex": p.sex, "region": p.region})[
            [by] if isinstance(by, str) else by
        ],
        sample_params={"sample_weight": p.weight},
    )
    options = {"by": by, "min_group_size": 1}
    to_all = {**options, "reference": gc.overall}
    found, _, _, compiled = p.measured(
        gc.gap(rate, **options) <= 0.5,
        gc.gap(rate, **to_all) <= 0.5,
        gc.ratio(rate, **options) >= 0.5,
        gc.ratio(rate, **to_all) >= 0.5,
        gc.each(rate, **options) <= 0.5,
        gc.each(rate, **options) >= 0.5,
    )
    expected = [
        frame.difference(),
        frame.difference(method="to_overall"),
        frame.ratio(),
        frame.ratio(method="to_overall"),
        frame.group_max(),
        frame.group_min(),
    ]
    np.testing.assert_allclose(found, expected, **EXACT)
    names = [g.name if len(g.name) > 1 else g.name[0] for g in compiled.groups[0]]
    assert names == frame.by_group.index.tolist()
    cells, alone = compile_constraints([gc.each(rate, **options) <= 0.5], p.rows)
    st_ = Lagrangian(p.codes, cells, alone, weight=p.weight).at(p.margin).statistics()
    np.testing.assert_allclose(alone.functionals(st_), frame.by_group.to_numpy(), **EXACT)


@random(20)
@given(seed=seeds)
def test_a_reference_group_is_compared_with_all_others(seed):
    p = Problem(seed)
    value = {g: p.value(gc.tpr(on={"region": g})) for g in "abc"}
    options = {"by": "region", "reference": "b", "min_group_size": 1}
    away = [abs(value[g] - value["b"]) for g in "ac"]
    np.testing.assert_allclose(p.value(gc.gap(gc.tpr(), **options)), max(away), **EXACT)
    low, high = min(value["a"], value["c"]), max(value["a"], value["c"])
    if min(low, value["b"]) > 0:
        expected = min(1.0, low / value["b"], value["b"] / high)
        np.testing.assert_allclose(p.value(gc.ratio(gc.tpr(), **options)), expected, **EXACT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pairs = {"by": ["sex", "region"], "reference": ("F", "a"), "min_group_size": 1}
        found = p.value(gc.gap(gc.selection_rate(), **pairs))
    rates = {
        (s, r): p.value(gc.selection_rate(on={"sex": s, "region": r})) for s in "FM" for r in "abc"
    }
    expected = max(abs(v - rates["F", "a"]) for v in rates.values())
    np.testing.assert_allclose(found, expected, **EXACT)


def test_a_reference_makes_two_rows_for_each_group():
    p = Problem(0)
    options = {"by": "region", "min_group_size": 1}
    compiled = p.measured(gc.gap(gc.tpr(), reference="b", **options) <= 0.1)[3]
    assert compiled.rows == (
        "tpr[region=a] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=a] <= 0.1",
        "tpr[region=c] - tpr[region=b] <= 0.1",
        "tpr[region=b] - tpr[region=c] <= 0.1",
    )
    compiled = p.measured(gc.ratio(gc.tpr(), by="sex", reference=gc.overall, slack=0.1) >= 0.8)[3]
    assert compiled.rows[:2] == (
        "tpr[sex=F] >= 0.8 * (tpr) - 0.1",
        "tpr >= 0.8 * (tpr[sex=F]) - 0.1",
    )
    assert len(p.measured(gc.gap(gc.tpr(), **options) <= 0.1)[3].rows) == 6


@random(20)
@given(seed=seeds)
def test_a_ratio_of_rates_that_are_zero_is_one(seed):
    """Weights leave 1e-16 of a rate that is zero, and no group is worse than another."""
    p = Problem(seed)
    p.margin[:] = 1.0
    for rate in (gc.fnr(), 1 - gc.fpr(), gc.error_rate(on=gc.label(1))):
        for reference in (None, gc.overall, "F"):
            compared = gc.ratio(rate, by="sex", reference=reference, min_group_size=1)
            values, _, satisfied, _ = p.measured(compared >= 0.8)
            assert values.tolist() == [1.0]
            assert satisfied.all()


def test_rows_of_a_compound_rate_print_with_parentheses():
    p = Problem(0)
    compiled = p.measured(gc.gap(gc.fpr() - gc.fnr(), by="sex", min_group_size=1) <= 0.1)[3]
    assert compiled.rows[0] == "fpr[sex=F] - fnr[sex=F] - (fpr[sex=M] - fnr[sex=M]) <= 0.1"


def with_small_groups():
    """Groups a (60 rows), b (30), c (3), d (2)."""
    p = Problem(1, n=95)
    p.region = np.repeat(list("abcd"), [60, 30, 3, 2])
    p.weight = None
    p.margin = np.where(np.arange(95) % 3, 1.0, -1.0)
    return p


@pytest.mark.parametrize(
    ("small_groups", "expected", "outcome"),
    [
        ("keep", ["a", "b", "c", "d"], "kept"),
        ("merge", ["a", "b", "small groups"], "merged into one group"),
        ("drop", ["a", "b"], "left out"),
    ],
)
def test_small_groups(small_groups, expected, outcome):
    """They are named with their sizes; merged, they are one group of all their rows."""
    p = with_small_groups()
    rate = gc.each(gc.selection_rate(), by="region", small_groups=small_groups)
    with pytest.warns(UserWarning, match=rf"region=c \(3\), region=d \(2\)\. They are {outcome}"):
        _, _, _, compiled = p.measured(rate <= 0.5)
    assert [g.name[0] for g in compiled.groups[0]] == expected
    sizes = {"a": 60, "b": 30, "c": 3, "d": 2, "small groups": 5}
    assert [g.size for g in compiled.groups[0]] == [sizes[name] for name in expected]
    with pytest.warns(UserWarning, match="min_group_size=30"):
        found = p.value(gc.gap(gc.selection_rate(), by="region", small_groups=small_groups))
    groups = {g: p.predicted[p.region == g].mean() for g in "abcd"}
    groups["small groups"] = p.predicted[90:].mean()
    values = [groups[name] for name in expected]
    np.testing.assert_allclose(found, max(values) - min(values), **EXACT)


def test_size_is_that_of_the_rows_of_the_rate():
    """Of a false positive rate, a group's negative rows; groups without any are left out."""
    p = with_small_groups()
    p.codes[p.region == "c"] = 1
    p.codes[p.region == "d"] = 0
    negatives = {g: int((p.codes[p.region == g] == 0).sum()) for g in "abd"}
    rate = gc.each(gc.fpr(), by="region", min_group_size=3)
    with pytest.warns(UserWarning, match=r"region=c \(0\), region=d \(2\)\..*are left out\."):
        compiled = p.measured(rate <= 0.5)[3]
    assert {g.name[0]: g.size for g in compiled.groups[0]} == negatives
    p.weight = np.where(p.region == "b", 0.0, 1.0)
    with pytest.warns(UserWarning, match=r"region=b \(0\)"):
        compiled = p.measured(gc.each(gc.error_rate(), by="region", min_group_size=1) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["a", "c", "d"]
    # A weight of zero leaves a row out.
    p.weight = np.where(p.region == "a", np.arange(p.n) < 5, 1.0)
    left = int((p.region[:5] == "a").sum())
    with pytest.warns(UserWarning, match=rf"rows that the rate is .*: region=a \({left}\)"):
        compiled = p.measured(gc.each(gc.error_rate(), by="region", min_group_size=6) <= 0.5)[3]
    assert compiled.groups[0][0].size == left


def test_rows_without_a_value():
    """They are a group of their own, or an error; other data sets' rows do not count."""
    p = Problem(0)
    p.sex = p.sex.astype(object)
    rate = {"by": "sex", "min_group_size": 1}
    full = gc.gap(gc.tpr(), missing="raise", **rate) <= 0.5
    p.measured(full)
    p.sizes, p.sources = [100, 50], ("monitor",)
    p.measured(full)
    p.sizes, p.sources = None, ()
    p.sex[::3] = None
    compiled = p.measured(gc.each(gc.tpr(), **rate) <= 0.5)[3]
    assert [g.name[0] for g in compiled.groups[0]] == ["F", "M", MISSING]
    for nothing in (None, np.nan, pd.NA, pd.NaT):
        found = p.value(gc.selection_rate(on={"sex": nothing}))
        np.testing.assert_allclose(found, np.average(p.predicted[::3], weights=p.w[::3]), **EXACT)
    with pytest.raises(ValueError, match=r"'M', missing\]\. on=\{'sex': None\} selects the"):
        p.value(gc.selection_rate(on={"sex": "missing"}))
    with pytest.raises(ValueError, match="sex has missing values: fill them in"):
        p.measured(full)
    p.sex[::3] = "missing"  # a value like any other
    p.measured(full)
    p.sex[1::3] = None
    compared = gc.gap(gc.tpr(), by="sex", reference=np.nan, min_group_size=1) <= 0.5
    groups = p.measured(compared)[3].groups[0]
    assert [g.name[0] for g in groups] == ["F", "M", "missing", MISSING]
    values = [p.value(gc.selection_rate(on={"sex": value})) for value in ("missing", None)]
    expected = [np.average(p.predicted[i::3], weights=p.w[i::3]) for i in (0, 1)]
    np.testing.assert_allclose(values, expected, **EXACT)
    by_default = gc.gap(gc.tpr(), by="sex", min_group_size=1) <= 0.5
    assert (gc.gap(gc.tpr(), by="sex", reference=None, min_group_size=1) <= 0.5) == by_default
    unknown = gc.gap(gc.tpr(), by="sex", reference="X", min_group_size=1) <= 0.5
    with pytest.raises(ValueError, match=r"missing\]\. reference=numpy\.nan is the group of the"):
        p.measured(unknown)


@pytest.mark.parametrize(
    "constraint",
    [
        preset(difference_bound=0.02, by="s")
        for preset in (
            presets.TruePositiveRateParity, presets.FalsePositiveRateParity,
            presets.DemographicParity, presets.EqualizedOdds, presets.ErrorRateParity,
            presets.UtilityParity,
        )
    ]
    + [
        presets.DemographicParity(ratio_bound=0.9, by="s"),
        presets.AverageEqualityGap(1, by="s"),
        gc.gap(gc.tpr(), by="s") <= 0.02,
        gc.gap(gc.precision(), by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.calibration_error(), by="s", reference=gc.overall) <= 0.02,
        gc.gap_norm([gc.fpr(), gc.tpr()], by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.mean_prediction(), by="s", reference=gc.overall) <= 0.02,
        gc.gap(gc.coverage(), by="s", reference=gc.overall) <= 0.02,
    ],
    ids=str,
)  # fmt: skip
def test_one_group_equals_its_reference_and_is_refused(constraint):
    """A column with one value, as a misspelt grouping may have, would meet any bound."""
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"x": rng.normal(size=80)}), np.arange(80) % 2
    s = {"s": ["u"] * 80}
    first = constraint[0] if isinstance(constraint, tuple) else constraint
    of_numbers = bool(row_functions_of([first]))
    make = gc.ConstrainedLGBMRegressor if of_numbers else gc.ConstrainedXGBClassifier
    options = {} if of_numbers else {"probabilities": "calibrated"}
    message = r"compares groups by s, of which 1 is left \(s=u\): at least 2 are needed"
    with pytest.raises(ValueError, match=message):
        make(constraints=[constraint], **options).fit(X, y, sensitive_features=s)
    model = (Ridge() if of_numbers else LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=message):
        gc.audit(model, X, y, constraint, sensitive_features=s)
