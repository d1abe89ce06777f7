"""Evaluation sets of the user: they move multipliers, report, or are the training rows."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import EITHER, KINDS, RULES, margins_of, quiet
from measured_fits import draw_table, make
from scipy import sparse

import gbm_constrained as gc


@pytest.fixture(scope="module")
def table():
    return draw_table()


@EITHER
@KINDS
def test_an_evaluation_set_moves_the_multipliers(library, kind, table, conclusions):
    """The last one; no booster is grown besides, and its rates move the multipliers."""
    X, y = table[0], table[1][kind]
    sets = [(X[:50], y[:50]), (X[50:250], y[50:250])]
    # One that the whole ensemble meets: an earlier prefix would be kept otherwise.
    constraints = {"binary": RULES["binary"], "several": [gc.class_error(2) <= 0.3]}[kind]
    model = make(library, constraints, measure_on="holdout", probabilities="calibrated")
    states = []
    given = {"constraint_callbacks": [states.append], **quiet(library)}
    model.fit(X[250:], y[250:], eval_set=sets, **given)
    assert {state.phase for state in states} == {"training"}  # no booster is grown besides
    (fit,) = (found.fit for found in conclusions)
    assert fit.measured.boosters is None
    records = fit.measured.controller.solver.history
    assert [r.rounds for r in records] == [0, 2, 4, 6, 8]
    assert any(r.multipliers.any() for r in records)
    target = 1 if kind == "binary" else 2
    X_held, y_held = sets[1]
    history = model.history_.set_index("rounds")
    for record in records[1:]:
        scores = margins_of(model, X_held, record.rounds)
        decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
        rate = np.mean(decided[y_held == target] != target)
        assert record.functionals[0] == pytest.approx(rate, abs=1e-9)
        assert history.loc[record.rounds, f"held_out[{constraints[0]}]"] == pytest.approx(rate)
    # The model is moved by the multipliers that these rates have made.
    np.testing.assert_array_equal(
        [r.multipliers for r in fit.solver.history], fit.measured.controller.path[:5]
    )
    report = model.constraint_report_
    assert report["rows"].tolist() == ["eval_set[1], watched"] * len(report)
    decided = model.predict(X_held)
    rate = np.mean(decided[y_held == target] != target)
    assert report.held_out[0] == pytest.approx(rate)


@EITHER
def test_an_evaluation_set_that_is_not_watched_is_evidence(library, table):
    X, y = table[0], table[1]["binary"]
    given = {"eval_set": [(X[:200], y[:200])], **quiet(library)}
    for options in (
        {},
        {"measure_on": "train"},
        {"measure_on": gc.Holdout(0.3)},
    ):
        model = make(library, [gc.fnr() <= 0.1], **options).fit(X[200:], y[200:], **given)
        assert model.constraint_report_["rows"].tolist() == ["eval_set[0]"]
        missed = np.mean(model.predict(X[:200])[y[:200] == 1] == 0)
        assert model.constraint_report_.held_out[0] == pytest.approx(missed)


@EITHER
@pytest.mark.parametrize("measure_on", ["train", "holdout"])
def test_weights_of_an_evaluation_set_count_in_its_rates(library, measure_on, table, conclusions):
    """In those that are reported, and in those that move the multipliers."""
    X, y = table[0], table[1]["binary"]
    weight = np.random.default_rng(4).exponential(size=200) ** 2
    name = "sample_weight_eval_set" if library == "xgboost" else "eval_sample_weight"
    model = make(library, [gc.fnr() <= 0.1], measure_on=measure_on, probabilities="calibrated")
    given = {"eval_set": [(X[:200], y[:200])], name: [weight], **quiet(library)}
    model.fit(X[200:], y[200:], **given)
    positive = y[:200] == 1

    def rates(missed):
        return np.average(missed[positive], weights=weight[positive]), missed[positive].mean()

    weighted, plain = rates(model.predict(X[:200]) == 0)
    assert model.constraint_report_.held_out[0] == pytest.approx(weighted, abs=1e-7)
    assert abs(weighted - plain) > 1e-3
    if measure_on == "holdout":
        record = conclusions[0].fit.measured.controller.solver.history[-1]
        weighted, plain = rates(margins_of(model, X[:200], record.rounds) <= 0)
        assert record.functionals[0] == pytest.approx(weighted, abs=1e-7)
        assert abs(weighted - plain) > 1e-3


@EITHER
def test_a_share_is_held_out_in_spite_of_an_evaluation_set(library, table, conclusions):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.1], measure_on=gc.Holdout(0.3))
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    (fold,) = conclusions[0].fit.measured.boosters.folds
    assert fold.held.size == 120
    assert conclusions[0].fit.measured.rows.source == "holdout"


@EITHER
def test_constraints_that_an_evaluation_set_cannot_measure(library, table):
    X, y = table[0], table[1]["binary"]
    constraint = gc.error_rate(on=X[200:, 0] > 0) <= 0.2
    with pytest.raises(ValueError, match=r"eval_set\[0\].*measure_on=Holdout\(0.25\)"):
        make(library, [constraint], measure_on="holdout").fit(
            X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library)
        )


@EITHER
@pytest.mark.parametrize("weighted", [False, True])
def test_training_rows_among_the_evaluation_sets_are_no_evidence(
    library, weighted, table, conclusions
):
    """Nor are they watched; and the sensitive features of the others stay theirs."""
    X, y = table[0], table[1]["binary"]
    weight = {"sample_weight": np.ones(y.size)} if weighted else {}
    model = make(library, [gc.fnr() <= 0.1], measure_on="holdout")
    model.fit(X, y, eval_set=[(X, y)], **weight, **quiet(library))
    assert conclusions[0].fit.measured.boosters is not None
    assert model.constraint_report_["rows"].tolist() == ["holdout"]
    s = np.arange(y.size) % 2
    other = X[:300] + 0.0, y[:300]
    for sets, features in (([(X, y), other], [s * 0, s[:300]]), ([other, (X, y)], [s[:300], s])):
        model = make(library, [gc.gap(gc.selection_rate(), by="s") <= 0.01])
        given = {"sensitive_features": {"s": s}, **weight, **quiet(library)}
        model.fit(X, y, eval_set=sets, sensitive_features_eval_set=[{"s": f} for f in features],
                  **given)  # fmt: skip
        decided = model.predict(other[0])
        value = abs(decided[s[:300] == 0].mean() - decided[s[:300] == 1].mean())
        i = 1 if sets[1] is other else 0
        assert model.constraint_report_["rows"].tolist() == [f"eval_set[{i}]"]
        assert model.constraint_report_.held_out[0] == pytest.approx(value)


@pytest.mark.parametrize(
    ("library", "kind"),
    [("xgboost", "array"), ("lightgbm", "array"), ("xgboost", "frame"), ("lightgbm", "sparse")],
)
def test_copies_of_the_training_rows_are_no_evidence_either(library, kind, table):
    X, y = table[0].copy(), table[1]["binary"]
    X[:5, 1] = np.nan
    rows = {"array": np.array, "frame": pd.DataFrame, "sparse": sparse.csr_matrix}[kind](X)
    model = make(library, [gc.fnr() <= 0.1], measure_on="holdout")
    for labels in (y.copy(), pd.Series(y, dtype="int8"), y.tolist()):
        model.fit(rows, y, eval_set=[(rows.copy(), labels)], **quiet(library))
        assert model.constraint_report_["rows"].tolist() == ["holdout"]
    model.fit(rows, y, eval_set=[(rows.copy(), 1 - y)], **quiet(library))
    assert model.constraint_report_["rows"].tolist() == ["eval_set[0], watched"]


@EITHER
def test_training_rows_are_no_evidence_below_further_data_sets(library, table):
    """The library is given others than the user's, and evaluates these as rows of their own."""
    X, y = table[0], table[1]["binary"]
    constraints = [gc.fnr() <= 0.1, gc.selection_rate(on=gc.dataset("more")) <= 0.9]
    model = make(library, constraints)
    sets = [(X, y), (X[:300] + 0.0, y[:300])]
    model.fit(X, y, datasets={"more": X[:100]}, eval_set=sets, **quiet(library))
    report = model.constraint_report_.loc[0]
    assert report["rows"] == "eval_set[1]"
    missed = np.mean(model.predict(sets[1][0])[y[:300] == 1] == 0)
    assert report.held_out == pytest.approx(missed)
    model.fit(X, y, datasets={"more": X[:100]}, eval_set=sets[:1], **quiet(library))
    assert model.constraint_report_["rows"].tolist() == ["out of fold"] * 2


@EITHER
def test_training_rows_to_stop_by_are_refused_where_some_are_set_aside(library, table):
    """They would stop the training by the rows that are to certify it."""
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.3], guarantee="high_probability")
    with pytest.raises(ValueError, match=r"eval_set.*sets some aside"):
        model.fit(X, y, eval_set=[(X, y)])


@EITHER
@pytest.mark.parametrize("iterate", ["last", "randomized"])
def test_an_evaluation_set_without_groups_reports_no_gap(library, iterate):
    """Out of fold there are groups; of the evaluation set alone nothing would be known."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(900, 2)), np.arange(900) % 2
    y = (X[:, 0] + 0.5 * group + rng.normal(size=900) > 0.5).astype(int)
    given = {"eval_set": [(X[600:], y[600:])], **quiet(library)}
    constraint = gc.gap(gc.selection_rate(), by="g") <= 0.1
    constraints = [constraint, gc.fpr() <= 0.3]
    clf = make(library, constraints, iterate=iterate, n_estimators=6)
    found = {}
    for sensitive in (None, [{"g": group[600:]}]):
        clf.fit(
            X[:600], y[:600], sensitive_features={"g": group[:600]},
            sensitive_features_eval_set=sensitive, **given,
        )  # fmt: skip
        found[sensitive is None] = report = clf.constraint_report_
        last = [clf.history_[f"held_out[{r}]"].iloc[-1] for r in constraints]
        np.testing.assert_allclose(report.held_out, last)
        of_groups = clf.group_report_.groupby("constraint").held_out.agg(np.ptp)
        assert of_groups[str(constraint)] == pytest.approx(report.held_out[0])
    assert found[False]["rows"].tolist() == ["eval_set[0]", "eval_set[0]"]
    assert found[True]["rows"].tolist() == ["out of fold", "eval_set[0]"]
    without = make(library, constraints, iterate=iterate, n_estimators=6)
    without.fit(X[:600], y[:600], sensitive_features={"g": group[:600]})
    columns = ["held_out", "low", "high", "satisfied"]
    given, out_of_fold = found[True][columns], without.constraint_report_[columns]
    pd.testing.assert_series_equal(given.iloc[0], out_of_fold.iloc[0])
    pd.testing.assert_series_equal(given.iloc[1], found[False][columns].iloc[1])


@EITHER
@pytest.mark.parametrize("compare", [gc.gap, gc.ratio, gc.each])
def test_an_evaluation_set_of_one_group_compares_nothing(library, compare, table):
    """Which is no gap of zero, no ratio of one, and says nothing of the other group."""
    X, y = table[0], table[1]["binary"]
    sex = np.random.default_rng(0).choice(list("fm"), y.size)
    new = sex[::3] == "f"
    constraint = compare(gc.selection_rate(), by="sex")
    constraint = constraint >= 0.5 if compare is gc.ratio else constraint <= 0.3
    model = make(library, [constraint], measure_on="train", n_estimators=4).fit(
        X, y, sensitive_features={"sex": sex}, eval_set=[(X[::3][new], y[::3][new])],
        sensitive_features_eval_set=[{"sex": sex[::3][new]}], **quiet(library),
    )  # fmt: skip
    report = model.constraint_report_.iloc[0]
    assert np.isnan([report.held_out, report.low, report.high]).all()
    assert report.satisfied is pd.NA
    assert report.rows == "training rows"


def test_xgboost_reports_a_continued_model_by_values():
    """Its old trees split elsewhere than the bins of the new rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=1500) > 0.5).astype(int)
    (X, held), (y, labels), weight = np.split(X, [1000]), np.split(y, [1000]), rng.random(1000)
    old = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(X[:300], y[:300])
    clf = gc.ConstrainedXGBClassifier(constraints=[gc.fnr() <= 0.1], n_estimators=6, n_jobs=1)
    clf.fit(X, y, sample_weight=weight, xgb_model=old, eval_set=[(held, labels)], verbose=False)
    report, missed = clf.constraint_report_.iloc[0], clf.predict(X) == 0
    assert report.train == pytest.approx(np.average(missed[y == 1], weights=weight[y == 1]))
    assert report.held_out == pytest.approx(np.mean(clf.predict(held)[labels == 1] == 0))


def test_starting_scores_beside_a_model_to_continue_are_the_models():
    """LightGBM says that it overrides them: the report must not add them either."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    start = rng.normal(size=600) * 3
    before = lgb.LGBMClassifier(n_estimators=3, num_leaves=7, verbose=-1).fit(X, y)
    found = []
    for given in ({}, {"init_score": start[:400], "eval_init_score": [start[400:]]}):
        model = make("lightgbm", [gc.fnr() <= 0.2], measure_on="holdout", n_estimators=6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LightGBM's, and of its eval_X
            model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], init_model=before, **given)
        report = model.constraint_report_.iloc[0]
        for rows, value in ((slice(400), report.train), (slice(400, None), report.held_out)):
            missed = (model.predict(X[rows]) == 0)[y[rows] == 1].mean()
            assert value == pytest.approx(missed, abs=1e-6)
        found.append((model.shift_[0], report.train, report.held_out))
    assert found[0] == pytest.approx(found[1], abs=1e-6)
