"""Boosters under pair rates: held-out values, the parents' own trees, thresholds, prefixes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, margins_of
from lightgbm import LGBMClassifier
from pair_references import count_pairs
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


@BOTH
@pytest.mark.parametrize("name", [*RULES])
def test_held_out_pair_rates_reach_their_bounds(library, name):
    X, y, sex = problem()
    plain = fitted(library, [gap(RULES[name].expression.rate, by="sex") <= 0.95], X, y, sex)
    model = fitted(library, [RULES[name]], X, y, sex)
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


@BOTH
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


@BOTH
def test_two_pair_rates_and_a_rate_of_decisions(library):
    """Both pair rates hold, and the threshold is moved for the rate of decisions alone."""
    X, y, sex = problem()
    rules = [RULES["cross"], gc.fpr() <= 0.1]
    model = fitted(library, rules, X, y, sex)
    assert (held_out(model) <= np.array([0.05, 0.1]) + 0.006).all()
    scores = margins_of(model, X).astype(np.float64)
    female, positive = sex == "F", y == 1
    sides = (positive & female, ~positive & ~female), (positive & ~female, ~positive & female)
    before = [count_pairs(scores - model.shift_[0], *side) for side in sides]
    after = [count_pairs(scores, *side) for side in sides]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)


@BOTH
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


@BOTH
def test_several_classes(library):
    """The score of a class, against the rest."""
    X, y, sex = problem(2400)
    y = y + (X[:, 3] > 0.8)
    rule = gap(auc(1), by="sex") <= 0.03
    model = fitted(library, [rule], X, y, sex, 40)
    plain = fitted(library, [gap(auc(1), by="sex") <= 0.9], X, y, sex, 40)
    assert held_out(plain)[0] > 0.03
    assert held_out(model)[0] <= min(0.045, held_out(plain)[0])


@BOTH
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


@BOTH
def test_a_pair_rate_is_no_metric(library):
    X, y, sex = problem(400)
    with pytest.raises(ValueError, match="bound it as a constraint"):
        fitted(library, [], X, y, sex, 5, maximize=auc())


@BOTH
@pytest.mark.filterwarnings("ignore:.*min_group_size")
@pytest.mark.parametrize(
    ("rule", "change", "message"),
    [
        (auc("no") >= 0.8, None, r"names class 'no', which is not in y"),
        (gap(auc(), by="region") <= 0.1, None, "column 'region' is neither in"),
        (auc(on=np.ones(7, dtype=bool)) >= 0.8, None, "a mask of 7 rows, .* 400 rows"),
        (
            auc(on={"sex": "F"}) >= 0.6,
            "no positives",
            "taken over no rows at all",
        ),
        (gap(auc(), by="sex") <= 0.1, "no positives", "at least 2 are needed"),
    ],
)
def test_bad_rules_are_refused_before_training(library, rule, change, message):
    X, y, sex = problem(400)
    if change == "no positives":
        y = np.where(sex == "F", 0, y)
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(library, [rule], X, y, sex, 5)
