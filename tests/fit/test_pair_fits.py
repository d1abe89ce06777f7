"""Fits under constraints on pair rates: models, inputs and reports."""

from __future__ import annotations

import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, EITHER, fit_linear, interrupt, margins_of, quiet
from lightgbm import LGBMClassifier
from pair_references import count_pairs
from saved_models import assert_same_attributes, assert_same_model, save_and_load
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from small_fits import make
from xgboost import XGBClassifier

import gbm_constrained as gc
from gbm_constrained import auc, cross_auc, gap, mean_rank

OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1},
    "lightgbm": {"num_leaves": 8, "n_jobs": 1, "verbose": -1},
}


def problem(n=1600, seed=0):
    """Two groups, of which one has higher scores and is ranked better."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n, p=[0.4, 0.6])
    female = sex == "F"
    X = rng.normal(size=(n, 4))
    noise = np.where(female, 2.0, 0.7) * rng.normal(size=n)
    y = (X[:, 0] + 0.5 * X[:, 1] + 1.2 * ~female + noise > 1.0).astype(int)
    X[:, 2] += 2.0 * ~female
    return X, y, sex


def fitted(library, rules, X, y, sex, n_estimators=40, **options):
    model = CLASSIFIERS[library](
        constraints=rules, n_estimators=n_estimators, **{**OPTIONS[library], **options}
    )
    return model.fit(X, y, sensitive_features={"sex": sex})


def held_out(model):
    return model.constraint_report_["held_out"].to_numpy(dtype=float)


RULES = {
    "auc": gap(auc(), by="sex") <= 0.05,
    "cross": gap(cross_auc(), by="sex", small_groups="hold") <= 0.05,
    "rank": gap(mean_rank(), by="sex", small_groups="hold") <= 0.05,
}


@pytest.mark.parametrize(
    ("library", "name"), [("xgboost", "auc"), ("lightgbm", "cross"), ("lightgbm", "rank")]
)
def test_held_out_pair_rates_reach_their_bounds(library, name):
    X, y, sex = problem()
    never = [gap(RULES[name].expression.rate, by="sex") <= 0.95]
    plain = fitted(library, never, X, y, sex, measure_on="crossfit")
    model = fitted(library, [RULES[name]], X, y, sex, measure_on="crossfit")
    assert held_out(plain)[0] > 0.07
    assert held_out(model)[0] <= 0.05 + 0.005
    np.testing.assert_array_equal(model.shift_, 0.0)
    new, labels, of_new = problem(4000, seed=1)
    female, positive = of_new == "F", labels == 1
    everyone = np.ones(labels.size, dtype=bool)
    sides = {
        "auc": [(positive & g, ~positive & g) for g in (female, ~female)],
        "cross": [(positive & g, ~positive & ~g) for g in (female, ~female)],
        "rank": [(g, everyone) for g in (female, ~female)],
    }[name]
    before, after = (
        abs(np.diff([count_pairs(margins_of(m, new), *side) for side in sides])[0])
        for m in (plain, model)
    )
    assert after < before - 0.02


@EITHER
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_a_rule_that_never_binds_leaves_the_parents_model(library, measure_on):
    X, y, sex = problem(1200)
    rules = [auc() >= 0.01, gap(auc(), by="sex") <= 0.99, gap(mean_rank(), by="sex") <= 0.99]
    model = fitted(library, rules, X, y, sex, 20, measure_on=measure_on)
    parent = {"xgboost": XGBClassifier, "lightgbm": LGBMClassifier}[library]
    plain = parent(n_estimators=20, **OPTIONS[library]).fit(X, y)
    tolerance = {"xgboost": 2e-7, "lightgbm": 1e-12}[library]
    np.testing.assert_allclose(
        model.predict_proba(X), plain.predict_proba(X), rtol=0, atol=tolerance
    )
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert not model.multipliers_.any()


@EITHER
def test_two_pair_rates_and_a_rate_of_decisions(library):
    """Both pair rates hold, and the threshold is moved for the rate of decisions alone."""
    X, y, sex = problem()
    rules = [RULES["cross"], gc.fpr() <= 0.1]
    model = fitted(library, rules, X, y, sex, measure_on="crossfit", max_bin=255)
    assert (held_out(model) <= np.array([0.05, 0.1]) + 0.006).all()
    scores = margins_of(model, X).astype(np.float64)
    female, positive = sex == "F", y == 1
    sides = (positive & female, ~positive & ~female), (positive & ~female, ~positive & female)
    before = [count_pairs(scores - model.shift_[0], *side) for side in sides]
    after = [count_pairs(scores, *side) for side in sides]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)


@EITHER
def test_prefixes_by_either_criterion_meet_the_rule(library):
    X, y, sex = problem(1500)
    fits = {
        select: fitted(library, [RULES["rank"]], X, y, sex, 80, iterate="best", select=select)
        for select in ("error", "auc")
    }
    assert all(held_out(model)[0] <= 0.05 + 1e-9 for model in fits.values())
    with pytest.raises(ValueError, match="needs iterate='best'"):
        fitted(library, [RULES["rank"]], X, y, sex, select="auc")
    with pytest.raises(ValueError, match="measure_on='train'"):
        fitted(
            library, [RULES["rank"]], X, y, sex, iterate="best", select="auc", measure_on="train"
        )
    with pytest.raises(ValueError, match="y has 3"):
        fitted(library, [gc.error_rate() <= 0.5], X, y + (X[:, 0] > 1), sex, iterate="best",
               select="auc")  # fmt: skip


@EITHER
def test_several_classes(library):
    """The score of a class, against the rest."""
    X, y, sex = problem(2400)
    y = y + (X[:, 3] > 0.8)
    rule = gap(auc(1), by="sex") <= 0.03
    model = fitted(library, [rule], X, y, sex, 20)
    plain = fitted(library, [gap(auc(1), by="sex") <= 0.9], X, y, sex, 20)
    assert held_out(plain)[0] > 0.03
    assert held_out(model)[0] <= min(0.045, held_out(plain)[0])


@EITHER
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "threshold"}, r"solver='threshold' moves the threshold alone, and gap\(auc"),
        ({"solver": "cbpr"}, r"CBPR is for .* and gap\(auc, by='sex'\) <= 0.05 compares scores"),
        ({"guarantee": "expected"}, r"gap\(auc, by='sex'\) <= 0.05"),
        (
            {"maximize": "g_mean"},
            r"gap\(auc, by='sex'\) <= 0.05 bounds a pair rate, .*maximize=g_mean chooses "
            r"decisions, .*: leave maximize out, or bound a rate of decisions",
        ),
        ({"minimize": "error_rate"}, r"minimize=error_rate chooses .*: leave minimize out"),
    ],
)
def test_solvers_that_do_not_rank_are_refused(library, options, message):
    X, y, sex = problem(400)
    with pytest.raises(ValueError, match=message):
        fitted(library, [RULES["auc"]], X, y, sex, 5, **options)


@EITHER
def test_a_pair_rate_is_no_metric(library):
    X, y, sex = problem(400)
    with pytest.raises(ValueError, match="bound it as a constraint"):
        fitted(library, [], X, y, sex, 5, maximize=auc())


N = 300
GAP = gc.gap(gc.auc(), by="g") <= 0.2


def draw(seed=0):
    """Draw features, labels and three groups."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    return X, (X[:, 0] + rng.normal(size=N) > 0).astype(int), rng.integers(0, 3, N)


def fit(library, rules, *, X=None, y=None, g=None, **given):
    """Fit three rounds on drawn rows, or on others."""
    drawn = draw()
    X, y, g = (own if own is not None else of for own, of in zip((X, y, g), drawn, strict=True))
    model = make(library, rules, n_estimators=3, measure_on=gc.CrossFit(2))
    return model.fit(X, y, sensitive_features={"g": g}, **given)


def weights_without(inside):
    """Weights of one, and of zero where something holds."""
    return np.where(inside, 0.0, 1.0)


X, Y, G = draw()
REFUSED = {
    "mask of another length": (gc.auc(on=np.ones(5, bool)) >= 0.5, {}, "mask of 5 rows"),
    "mask of a side": (gc.auc(negatives=np.ones(5, bool)) >= 0.5, {}, "mask of 5 rows"),
    "unknown column": (
        gc.gap(gc.auc(), by="zzz") <= 0.1,
        {},
        r"gap\(auc, by='zzz'\) <= 0.1: column 'zzz' is neither in sensitive_features nor in X",
    ),
    "one group": (GAP, {"g": np.zeros(N)}, "of which 1 is left .*: at least 2 are needed"),
    "label that is not there": (
        gc.auc(label=7) >= 0.5,
        {},
        r"auc\(7\) >= 0.5: it names class 7, which is not in y: its classes are \[0, 1\]",
    ),
    "no weight on a side": (
        gc.auc() >= 0.5,
        {"sample_weight": weights_without(Y == 1)},
        "auc >= 0.5 is taken over rows whose total weight is zero .* positive sample_weight",
    ),
    "one side of a group without a row": (
        gc.auc(negatives={"g": 9}) >= 0.5,
        {},
        r"auc\[negatives g=9\] >= 0.5",
    ),
    "data set without labels": (
        gc.auc(on=gc.dataset("more")) >= 0.5,
        {"datasets": {"more": X[:50]}},
        r"auc\[more\] needs labels, .* give it as \(X, y\)",
    ),
    "data set that was not given": (
        gc.auc(on=gc.dataset("more")) >= 0.5,
        {},
        "data set 'more' was not given: pass it as fit",
    ),
}


@EITHER
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_has_no_pairs_is_refused_before_training(library, name):
    rule, given, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        fit(library, [rule], constraint_callbacks=[lambda _: pytest.fail("trained")], **given)


@pytest.mark.parametrize(
    ("make_rule", "message"),
    [
        (lambda: gc.auc() >= 1.2, "an AUC of 80 per cent is written 0.8; got 1.2"),
        (lambda: GAP.expression <= 1.2, r"gap\(auc, by='g'\) must be a rate in \[0, 1\]"),
        (lambda: gc.auc() + gc.fpr() <= 0.5, "one is a pair rate"),
        (lambda: gc.cross_auc() >= 0.5, r"write gap\(cross_auc\(\), by=...\)"),
        (lambda: gc.cross_auc(group="both"), "group must be one of"),
    ],
)
def test_what_is_no_constraint_is_refused_where_it_is_written(make_rule, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_rule()


def test_linear_models_refuse_the_same():
    message = "it names class 7, which is not in y"
    with pytest.raises(ValueError, match=message):
        fit_linear(X, Y, gc.auc(label=7) >= 0.5)


WITHOUT_POSITIVES = np.where(G == 1, 0, Y)
LONE = np.where(np.arange(N) == np.flatnonzero((G == 2) & (Y == 1))[0], 3, G)


@EITHER
@pytest.mark.parametrize(
    ("given", "of_group"),
    [
        ({"y": WITHOUT_POSITIVES}, r"g=1 \(0\)"),
        ({"sample_weight": weights_without((G == 1) & (Y == 1))}, r"g=1 \(0\)"),
        ({"g": LONE}, r"g=3 \(0\)"),
    ],
    ids=["no positives", "no weight on positives", "one row"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_groups_without_one_side_are_named_and_left_out(library, given, of_group):
    message = rf"gap\(auc, by='g'\) <= 0.2: .* {of_group}.* Groups without any such row are left"
    with pytest.warns(UserWarning, match=message):
        model = fit(library, [GAP], **given)
    left_out = "g=" + of_group[2]
    assert left_out not in set(model.group_report_["group"])
    assert model.constraint_report_[["train", "held_out", "low", "high"]].notna().all(axis=None)


@EITHER
def test_missing_groups_are_a_group_of_their_own(library):
    g = np.where(np.arange(N) < 90, np.nan, G.astype(float))
    rule = gc.gap(gc.auc(), by="g", min_group_size=1) <= 0.9
    model = fit(library, [rule], g=g)
    assert "g=missing" in set(model.group_report_["group"])


def test_scores_that_all_tie_are_missed_or_met_at_one_half():
    with pytest.warns(gc.MissedConstraintsWarning, match=r"auc >= 0.6: 0\.\d+"):
        model = fit("xgboost", [gc.auc() >= 0.6], X=np.zeros((N, 2)))
    assert model.constraint_report_["train"].tolist() == [0.5]


REPORTED_GAP = gc.gap(gc.auc(), by="g") <= 0.02


@pytest.fixture(scope="module")
def rows():
    """Rows whose second feature tells of the label in one group only, with weights."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1600, 3)), columns=list("abc"))
    X["g"] = rng.integers(0, 2, 1600)
    y = (X["a"] + 0.8 * X["g"] * X["b"] + 0.6 * rng.normal(size=1600) > 0).to_numpy().astype(int)
    return X[:1000], y[:1000], X[1000:], y[1000:]


class Scores:
    """Audits the margins of a booster, whose probabilities would be rounded."""

    classes_ = np.array([0, 1])

    def __init__(self, model):
        self.model = model

    def predict(self, X):
        return self.model.predict(X)

    def decision_function(self, X):
        return margins_of(self.model, X)


@EITHER
def test_values_and_intervals_of_an_evaluation_set_are_those_of_an_audit(library, rows):
    X, y, X_held, y_held = rows
    rules = [REPORTED_GAP, gc.gap(gc.cross_auc(), by="g") <= 0.1, gc.auc() >= 0.6, gc.fpr() <= 0.2]
    model = make(library, rules, measure_on=gc.CrossFit(2))
    model.fit(X, y, eval_set=[(X_held, y_held)], **quiet(library))
    report, of = model.constraint_report_, gc.audit(Scores(model), X_held, y_held, rules)
    np.testing.assert_allclose(report["held_out"], of.frame["value"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(report[["low", "high"]], of.frame[["low", "high"]], atol=1e-9)
    assert report["verdict"].tolist() == of.frame["verdict"].tolist()
    groups = model.group_report_
    np.testing.assert_allclose(groups["held_out"], of.groups["rate"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        groups[["low", "high"]], of.groups[["low", "high"]], rtol=0, atol=1e-9
    )
    scores = margins_of(model, X)
    in_training = [roc_auc_score(y[X["g"] == g], scores[X["g"] == g]) for g in (0, 1)]
    np.testing.assert_allclose(groups["train"][:2], in_training, rtol=0, atol=1e-12)


@EITHER
def test_values_out_of_fold_have_intervals_and_verdicts_count_their_rows(library, rows):
    X, y, *_ = rows
    model = make(library, [REPORTED_GAP, gc.auc() >= 0.99], measure_on=gc.CrossFit(2))
    with pytest.warns(gc.MissedConstraintsWarning, match=r"auc >= 0.99: 0\.\d+ \(0\.\d+ to 0\."):
        model.fit(X, y)
    report = model.constraint_report_
    assert (report["low"] <= report["held_out"]).all()
    assert (report["held_out"] <= report["high"]).all()
    assert "of 1,000 rows (out of fold)" in str(model.feasibility_.rules[1].verdict)
    assert model.feasibility_.rules[0].rows == min(
        np.sum((X["g"] == g) & (y == k)) for g in (0, 1) for k in (0, 1)
    )


def test_training_rows_have_intervals_in_verdicts(rows):
    X, y, *_ = rows
    model = fit_linear(X.drop(columns="g"), y, REPORTED_GAP, sensitive_features=X[["g"]])
    (result,) = model.feasibility_.rules
    scores = model.decision_function(X.drop(columns="g"))
    of_groups = [roc_auc_score(y[X["g"] == g], scores[X["g"] == g]) for g in (0, 1)]
    assert result.value == pytest.approx(np.ptp(of_groups), abs=1e-9)
    assert 0.0 <= result.low <= result.value < result.high


def test_few_rows_of_one_side_are_named(rows):
    X, y, *_ = rows
    rare = np.r_[np.flatnonzero(y == 1)[:14], np.flatnonzero(y == 0)]
    rule = gc.auc() >= 0.8
    with pytest.warns(gc.FragileConstraintsWarning, match=r"auc >= 0.8: 14 rows"):
        model = make("xgboost", [rule], measure_on=gc.CrossFit(2), n_estimators=3).fit(
            X.iloc[rare], y[rare]
        )
    assert model.constraint_report_["verdict"].tolist() == ["cannot be told"]


@EITHER
def test_a_certificate_of_pair_rates_leaves_the_scores_as_they_are(library, rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.4), "measure_on": gc.CrossFit(2)}
    alone = make(library, [gc.auc() >= 0.7], **asked).fit(X, y)
    assert alone.shift_.tolist() == [0.0]
    assert alone.feasibility_.p_value <= alone.feasibility_.level == 0.05
    assert alone.constraint_report_["rows"].tolist() == ["certification"]
    # Hoeffding's inequality at the value that is reported.
    side = alone.feasibility_.rules[0].rows
    room = alone.constraint_report_["held_out"][0] - 0.7
    assert alone.feasibility_.p_value == pytest.approx(np.exp(-2 * side * room**2), rel=1e-9)


@EITHER
def test_beside_pair_rates_the_threshold_is_moved_for_other_rates(library, rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.5), "measure_on": gc.CrossFit(2)}
    rules = [gc.auc() >= 0.7, gc.fpr() <= 0.08]
    model = make(library, rules, **asked).fit(X, y)
    assert model.shift_[0] != 0.0
    assert model.feasibility_.status == "met"
    assert model.feasibility_.p_value <= 0.05


def test_what_the_rows_do_not_certify_is_said(rows):
    X, y, *_ = rows
    asked = {"guarantee": gc.HighProbability(fraction=0.5), "measure_on": gc.CrossFit(2)}
    with pytest.warns(gc.InfeasibleConstraintsWarning, match="Not certified: auc >= 0.85"):
        model = make("xgboost", [gc.auc() >= 0.85], **asked).fit(X, y)
    assert model.shift_.tolist() == [0.0]
    reason = "cannot be told: guarantee='high_probability' was asked for and is not given"
    assert str(model.feasibility_.rules[0].verdict) == reason


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            REPORTED_GAP,
            r"not even perfect scores earn it on the 200 rows .* auc\[g=.\]\. It takes [\d,]+",
        ),
        (gc.auc() >= 0.9, r"auc >= 0.9: .* smaller side of auc\. It takes \d+ rows"),
        (gc.auc() >= 1.0, "No number of rows is enough for it: relax the bound"),
        (gc.gap(gc.auc(), by="g") <= 0.0, "that two values are equal no number of rows certifies"),
    ],
)
def test_certificates_beyond_perfect_scores_are_refused_before_training(rule, message, rows):
    X, y, *_ = rows
    with pytest.raises(ValueError, match=message):
        make("xgboost", [rule], guarantee="high_probability").fit(
            X, y, constraint_callbacks=[lambda state: pytest.fail("training started")]
        )


def test_the_guarantee_in_the_mean_is_refused_for_pair_rates(rows):
    X, y, *_ = rows
    message = r"guarantee='expected' cannot be given for gap\(auc, by='g'\) <= 0.02: it compares"
    with pytest.raises(ValueError, match=message):
        make("xgboost", [gc.fpr() <= 0.2, REPORTED_GAP], guarantee="expected").fit(X, y)


@EITHER
def test_saved_models_report_and_rank_as_before(library, rows, tmp_path):
    X, y, X_held, y_held = rows
    rules = [
        REPORTED_GAP,
        gc.gap(gc.cross_auc(group="negatives", background="all"), by="g") <= 0.1,
        gc.auc(negatives={"g": 1}) - gc.auc(positives={"g": 1}) <= 0.1,
        gc.gap(gc.mean_rank(on=gc.label(1)), by="g", reference=gc.overall) <= 0.1,
    ]
    model = make(library, rules, measure_on=gc.CrossFit(2)).fit(X, y)
    loaded = save_and_load(model, tmp_path)
    assert_same_model(loaded, model, X_held)
    assert list(loaded.constraints) == rules
    audits = [gc.audit(Scores(m), X_held, y_held, rules).frame for m in (model, loaded)]
    pd.testing.assert_frame_equal(*audits, check_exact=True)
    again = pickle.loads(pickle.dumps(model))
    assert_same_attributes(library, vars(again), vars(model))
    assert clone(model).constraints == rules


@EITHER
def test_fits_that_are_interrupted_at_random_rounds_are_resumed(library, rows, tmp_path):
    X, y, *_ = rows
    path = tmp_path / "run.checkpoint"
    binding = gc.auc(on={"g": 1}) - gc.auc(on={"g": 0}) <= -0.05

    def fit(**more):
        return make(library, [binding], measure_on=gc.CrossFit(2), n_estimators=8).fit(
            X, y, **more
        )

    seen, saved = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = fit(constraint_callbacks=[lambda state: seen.append(state.phase)])
        rng, phases = np.random.default_rng(0), np.array(seen)
        rounds = [
            at
            for phase, n in (("measuring", 3), ("training", 1))
            for at in rng.choice(np.flatnonzero(phases == phase), n, replace=False)
        ]
        for at in rounds:
            calls = itertools.count()
            interrupt(
                lambda **more: fit(checkpoint=path, **more),
                lambda state, at=at, calls=calls: next(calls) == at,
            )
            saved += path.exists()
            resumed = fit(checkpoint=path)
            assert not path.exists()
            np.testing.assert_array_equal(margins_of(resumed, X), margins_of(whole, X))
            pd.testing.assert_frame_equal(
                resumed.constraint_report_, whole.constraint_report_, check_exact=True
            )
    assert saved
    assert whole.multipliers_.any()
