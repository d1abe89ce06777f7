"""Constraints on further data sets, in fits of both libraries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER, quiet
from scipy import sparse
from sklearn.metrics import log_loss as mean_log_loss

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLogisticRegression,
    ConstrainedXGBClassifier,
    churn,
    class_error,
    dataset,
    error_rate,
    fnr,
    gap,
    selection_rate,
)

BOOSTER = {"n_estimators": 30, "n_jobs": 1, "measure_on": "train"}


MAKE = {
    "lightgbm": lambda rules, **options: ConstrainedLGBMClassifier(
        constraints=rules, num_leaves=7, verbose=-1, **{**BOOSTER, **options}
    ),
    "xgboost": lambda rules, **options: ConstrainedXGBClassifier(
        constraints=rules, max_depth=3, **{**BOOSTER, **options}
    ),
    "logistic": lambda rules: ConstrainedLogisticRegression(constraints=rules),
}


@pytest.fixture(scope="module")
def problem():
    """Training rows, unlabelled ones from elsewhere, and a few that must not be wrong."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(700, 4))
    y = (features[:, 0] + 0.5 * features[:, 1] + rng.normal(size=700) > 0.7).astype(int)
    monitor = rng.normal([0.5, 0, 1, 0], size=(300, 4))
    egregious = rng.normal([-0.5, 0, 0, -1], size=(100, 4))
    return features, y, monitor, (egregious, np.ones(100, dtype=int))


@pytest.mark.parametrize(
    ("library", "form"),
    [
        *((library, "array") for library in MAKE),
        ("lightgbm", "frame"),
        ("xgboost", "csr"),
        ("lightgbm", "pyarrow"),
        ("xgboost", "polars"),
        ("logistic", "polars"),
    ],
)
def test_a_constraint_on_other_rows_changes_the_fit(problem, library, form):
    """Coverage of unlabelled rows, and an error rate of rows apart, are met and reported."""
    features, y, monitor, (egregious, labels) = problem
    make = {
        "array": np.asarray,
        "csr": sparse.csr_matrix,
        "frame": lambda x: pd.DataFrame(x, columns=list("abcd")),
        "polars": lambda x: pytest.importorskip("polars").from_numpy(x, schema=list("abcd")),
        "pyarrow": lambda x: pytest.importorskip("pyarrow").table(list(x.T), names=list("abcd")),
    }[form]
    datasets = {"monitor": make(monitor), "egregious": (make(egregious), labels)}
    rules = [
        selection_rate(on=dataset("monitor")) <= 0.2,
        error_rate(on=dataset("egregious")) <= 0.6,
    ]
    free = MAKE[library]([]).fit(make(features), y)
    assert free.predict(make(monitor)).mean() > 0.3
    assert (free.predict(make(egregious)) != 1).mean() > 0.7
    model = MAKE[library](rules).fit(make(features), y, datasets=datasets)
    chosen = model.predict(make(monitor)).mean()
    wrong = (model.predict(make(egregious)) != 1).mean()
    report = model.constraint_report_
    np.testing.assert_allclose(report.train, [chosen, wrong], atol=0.006)
    if library != "logistic":
        np.testing.assert_allclose(report.train, [chosen, wrong], atol=1e-12)
    assert chosen <= 0.25
    assert wrong <= 0.66
    assert (report.multiplier > 0).all()
    assert report.constraint.tolist() == [str(rule) for rule in rules]
    objective = mean_log_loss(y, model.predict_proba(make(features)))
    np.testing.assert_allclose(model.history_.objective.iloc[-1], objective, rtol=1e-5)
    trained_error = (model.predict(make(features)) != y).mean()
    np.testing.assert_allclose(model.history_.error.iloc[-1], trained_error, atol=0.002)


@EITHER
def test_rules_on_other_rows_are_met_by_rows_of_these_that_are_held_out(problem, library):
    """Data sets are split into folds as the training rows are; their rates are out of fold."""
    features, y, monitor, (egregious, labels) = problem
    rules = [
        selection_rate(on=dataset("monitor")) <= 0.2,
        error_rate(on=dataset("egregious")) <= 0.7,
    ]
    model = MAKE[library](rules, measure_on="auto")
    model.fit(features, y, datasets={"monitor": monitor, "egregious": (egregious, labels)})
    report = model.constraint_report_
    assert (report["rows"] == "out of fold").all()
    chosen, wrong = model.predict(monitor).mean(), (model.predict(egregious) != 1).mean()
    np.testing.assert_allclose(report.train, [chosen, wrong], atol=1e-12)
    assert (report.held_out <= report.bound + 0.05).all()
    assert ((report.low <= report.held_out) & (report.held_out <= report.high)).all()


@pytest.mark.parametrize(
    ("library", "where", "weighted"),
    [
        *((library, {}, True) for library in MAKE),
        *((library, {"measure_on": "crossfit"}, False) for library in ("lightgbm", "xgboost")),
    ],
)
def test_rows_without_a_say_change_nothing(problem, library, where, weighted):
    """Under a vacuous rule they enter neither the objective nor other rates nor the model."""
    features, y, monitor, egregious = problem
    weight = np.random.default_rng(1).gamma(2.0, size=y.size) if weighted else None
    rules = [
        selection_rate(on=dataset("monitor")) <= 1.0,
        error_rate(on=dataset("egregious")) <= 1.0,
        fnr() <= 1.0,
    ]
    datasets = {"monitor": monitor, "egregious": egregious}
    model = MAKE[library](rules, **where)
    model.fit(features, y, sample_weight=weight, datasets=datasets)
    free = MAKE[library]([]).fit(features, y, sample_weight=weight)
    probability = model.predict_proba(features)
    expected = mean_log_loss(y, probability, sample_weight=weight)
    np.testing.assert_allclose(model.history_.objective.iloc[-1], expected, rtol=1e-5)
    misses = np.average(model.predict(features)[y == 1] != 1, weights=(
        None if weight is None else weight[y == 1]
    ))  # fmt: skip
    np.testing.assert_allclose(model.constraint_report_.train[2], misses, atol=1e-6)
    assert (model.multipliers_ == 0).all()
    atol = 1e-4 if library == "logistic" else 1e-5
    if library == "lightgbm":  # whose leaves count the rows of weight zero
        assert abs(probability - free.predict_proba(features)).mean() < 0.05
    else:
        np.testing.assert_allclose(probability, free.predict_proba(features), atol=atol)


@pytest.mark.parametrize("library", MAKE)
def test_several_classes_and_another_model(problem, library):
    """Churn on unlabelled rows to a fitted classifier; a class's error on a data set."""
    features, _, monitor, (egregious, _) = problem
    rng = np.random.default_rng(2)
    y = np.digitize(features[:, 0] + rng.normal(size=700), [-0.5, 0.8])
    old = MAKE[library]([]).fit(features, y)
    rules = [
        churn(to=old, on=dataset("monitor")) <= 0.5,
        class_error(2, on=dataset("egregious")) <= 0.9,
        selection_rate(1, on=dataset("monitor")) <= 0.9,
    ]
    wanted = np.repeat([0, 2], 50)
    model = MAKE[library](rules).fit(
        features, y, datasets={"monitor": monitor, "egregious": (egregious, wanted)}
    )
    chosen = model.predict(monitor)
    expected = [
        (chosen != old.predict(monitor)).mean(),
        (model.predict(egregious[50:]) != 2).mean(),
        (chosen == 1).mean(),
    ]
    np.testing.assert_allclose(model.constraint_report_.train, expected, atol=0.011)


@pytest.mark.parametrize("library", MAKE)
def test_a_fit_names_what_is_wrong_with_data_sets(problem, library):
    features, y, monitor, egregious = problem

    def fit(rules, **given):
        return MAKE[library](rules).fit(features, y, **given)

    on = dataset("monitor")
    with pytest.raises(ValueError, match="data set 'monitor' was not given: pass it as fit"):
        fit([selection_rate(on=on) <= 0.1])
    with pytest.raises(ValueError, match=r"those given are \['egregious'\]"):
        fit([selection_rate(on=on) <= 0.1], datasets={"egregious": egregious})
    with pytest.raises(ValueError, match="needs labels, which rows of a data set do not have"):
        fit([fnr(on=on) <= 0.1], datasets={"monitor": monitor})
    with pytest.raises(ValueError, match="has no rows"):
        fit([selection_rate(on=on) <= 0.1], datasets={"monitor": monitor[:0]})
    with pytest.raises(TypeError, match="datasets must be a dict"):
        fit([selection_rate(on=on) <= 0.1], datasets=monitor)
    features = features[:, 0]
    with pytest.raises(ValueError, match=r"2D array|2.dimensional"):
        fit([selection_rate(on=on) <= 0.1], datasets={"monitor": monitor[:, 0]})


@EITHER
def test_on_evaluation_rows_a_data_set_has_no_value(problem, library):
    features, y, monitor, _ = problem
    rules = [selection_rate(on=dataset("monitor")) <= 0.2, fnr() <= 0.9]
    model = MAKE[library](rules).fit(
        features[100:], y[100:], datasets={"monitor": monitor},
        eval_set=[(features[:100], y[:100])],
        **quiet(library),
    )  # fmt: skip
    held_out = model.constraint_report_.held_out
    assert np.isnan(held_out[0])
    assert model.constraint_report_.satisfied.isna().tolist() == [True, False]
    missed = (model.predict(features[:100])[y[:100] == 1] != 1).mean()
    np.testing.assert_allclose(held_out[1], missed, atol=1e-12)


@pytest.mark.parametrize(
    ("library", "option"), [("lightgbm", "init_score"), ("xgboost", "base_margin")]
)
def test_start_scores_are_refused(problem, library, option):
    features, y, monitor, _ = problem
    with pytest.raises(ValueError, match=f"{option} cannot be given together with datasets"):
        MAKE[library]([selection_rate(on=dataset("monitor")) <= 0.2]).fit(
            features, y, datasets={"monitor": monitor}, **{option: np.zeros(y.size)}
        )


def test_groups_of_a_data_set(problem):
    """A gap on unlabelled rows by a column of its features; training rows have no part in it."""
    features, y, monitor, _ = problem
    frame, other = (
        pd.DataFrame(x, columns=list("abcd")).assign(sex=np.arange(len(x)) % 2)
        for x in (features, monitor + np.outer(np.arange(300) % 2, [1.5, 0, 0, 0]))
    )
    rules = [gap(selection_rate(on=dataset("monitor")), by="sex") <= 0.1]
    model = MAKE["lightgbm"](rules).fit(frame, y, datasets={"monitor": other})
    chosen = model.predict(other)
    value = abs(chosen[::2].mean() - chosen[1::2].mean())
    np.testing.assert_allclose(model.constraint_report_.train, [value], atol=1e-12)
    free = MAKE["lightgbm"]([]).fit(frame, y).predict(other)
    assert value < abs(free[::2].mean() - free[1::2].mean()) - 0.1
    assert model.group_report_.rows.tolist() == [150, 150]
