"""Guarantees that no decision can earn are refused before training."""

from __future__ import annotations

import re
import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH
from small_fits import ROUNDS, certified, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import Prefixes
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.guarantees import GuaranteeRequest, check_guarantee
from gbm_constrained.problem.compiler import compile_constraints


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_rows_that_depend_on_each_other_certify_nothing(library, guarantee, table):
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*independent.*groups"):
        certified(
            library, [gc.fnr() <= 0.3], table, guarantee=guarantee, groups=np.arange(700) // 4
        )


@BOTH
def test_rules_on_rows_that_are_all_set_aside(library, table):
    """One row of a rule is either trained on or kept for the certificate."""
    alone = np.arange(len(table[0])) == 0
    message = (
        r"guarantee='high_probability' sets aside fraction=0\.95 of the rows, and "
        r"without these error_rate\[mask of 1 rows\] <= 0\.5 is taken over no rows at all.*"
        r"a smaller fraction"
    )
    guarantee = gc.HighProbability(fraction=0.95)
    with pytest.raises(ValueError, match=message):
        certified(library, [gc.error_rate(on=alone) <= 0.5], table, guarantee=guarantee)
    with pytest.raises(
        ValueError, match=r"^error_rate\[mask of 0 rows\] <= 0\.5 is taken over no"
    ):
        certified(library, [gc.error_rate(on=alone & ~alone) <= 0.5], table)


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_too_few_rows_are_refused_before_training(library, weighted, table, monkeypatch):
    """0.99 to the power of the positive rows that are set aside is more than delta."""
    for owner, name in (
        (xgb, "train"), (lgb, "train"), (xgb.Booster, "__init__"), (lgb.Booster, "__init__"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, lambda *a, **k: pytest.fail("training started"))
    y = table[1]["binary"]
    weight = {"sample_weight": np.full(y.size, 3.0)} if weighted else {}
    n = int(0.35 * (y == 1).sum())
    message = (
        rf"high_probability.*fnr <= 0\.01.*over ({n}|{n + 1}) of these rows and needs 299\."
        rf".*245 rows.*"
        rf"fraction=0\.35.*{0.99**n:.2g}.*delta=0\.05"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [gc.fnr() <= 0.01], table, **weight)
    for guarantee in ("high_probability", "expected"):
        for rule in (gc.log_loss() <= 0.5, gc.fpr() + gc.log_loss() <= 0.5):
            with pytest.raises(ValueError, match=rf"{guarantee}.*log_loss <= 0\.5: a mean loss"):
                certified(library, [gc.fnr() <= 0.3, rule], table, guarantee=guarantee)


@BOTH
def test_prefixes_share_delta_as_far_as_there_are_any(library, table):
    """245 rows without an error leave 0.03: enough for delta, and too much for a third of it."""
    rule = gc.error_rate() <= 0.0142
    with pytest.raises(ValueError, match=r"p-value of 0\.03, above 0\.017"):
        certified(library, [rule], table, iterate="best")
    with pytest.warns(UserWarning, match="certif"):
        certified(library, [rule], table, iterate="best", n_estimators=2)


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
@pytest.mark.parametrize(
    "rule",
    [
        gc.fnr() <= 0.0,
        gc.recall() >= 1.0,
        gc.fnr(on={"g": "a"}) <= 0.0,
        gc.fnr() + gc.fpr() <= 0.0,
    ],
)
def test_bounds_for_which_no_number_of_rows_is_enough(library, guarantee, rule, table):
    """Rows are never said to help where a rate would have to be at its smallest value."""
    group = np.where(np.arange(len(table[0])) % 2, "a", "b")
    message = rf"guarantee='{guarantee}'.*No number of rows is enough for it: relax the bound\.$"
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee=guarantee, sensitive_features={"g": group})


@BOTH
@pytest.mark.parametrize(
    "rule",
    [
        gc.gap(gc.fpr(), by="g") <= 0.0,
        gc.gap(gc.recall(), by="g", reference=gc.overall) <= 0.0,
        gc.ratio(gc.selection_rate(), by="g") >= 1.0,
    ],
)
def test_equal_rates_are_refused_before_training(library, rule, table):
    """Of a row and its opposite one must be violated in the population, or both be at the edge."""
    group = {"g": np.where(np.arange(len(table[0])) % 2, "a", "b")}
    message = re.escape(
        f"guarantee='high_probability' cannot be given for {rule}: that two values"
    )
    with pytest.raises(ValueError, match=message):
        certified(library, [rule], table, guarantee="high_probability", sensitive_features=group)
    # In the mean over samples they may be equal: nothing is refused.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        certified(library, [rule], table, guarantee="expected", sensitive_features=group)


@BOTH
def test_rows_of_unequal_weights_that_are_too_few(library, table):
    """29 rows certify a bound of 0.1 if they weigh alike; Hoeffding's inequality takes 150."""
    y = table[1]["binary"]
    weight = np.where(np.arange(y.size) % 2, 1.0, 9.0)
    with pytest.raises(ValueError, match=r"fnr <= 0\.1 is taken over") as caught:
        certified(library, [gc.fnr() <= 0.1], table, sample_weight=weight)
    found = re.search(
        r"(\d+) of these rows, which count as (\d+) for .*needs 150\.", str(caught.value)
    )
    assert found is not None
    assert 29 < int(found[2]) < min(int(found[1]), 150)


@BOTH
@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_training_rows_guarantee_nothing(library, guarantee, table):
    X, y = table[0], table[1]["binary"]
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'train'"):
        make(library, [gc.fnr() <= 0.3], guarantee=guarantee, measure_on="train").fit(X, y)
    name = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    begin = {name: make(library, [], n_estimators=3).fit(X, y)}
    with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*continued training"):
        make(library, [gc.fnr() <= 0.3], guarantee=guarantee).fit(X, y, **begin)


@BOTH
def test_rows_of_no_weight_refuse_no_certificate(library, table):
    """They are no rows of the rate: it can be certified where it could without them."""
    X, y = table[0], table[1]["binary"]
    weight = np.where(np.arange(y.size) % 3, 1.0, 0.0)
    rule, options = (
        [gc.fpr() <= 0.03],
        {"guarantee": gc.HighProbability(fraction=0.4)},
    )
    model = make(library, rule, **options).fit(X, y, sample_weight=weight)
    assert model.constraint_report_["rows"][0] == "certification"


@BOTH
def test_a_class_that_certification_takes_whole(library, table):
    """A class of one row is set aside as a whole, or not at all."""
    X, y = table[0], np.where(np.arange(700) == 5, 3, table[1]["several"])
    refused = []
    for seed in range(4):
        model = make(
            library, [gc.class_error(0) <= 0.9], guarantee=gc.Expected(0.8), n_estimators=1
        )
        model.set_params(random_state=seed)
        try:
            model.fit(X, y)
        except ValueError as error:
            refused.append(str(error))
    assert 0 < len(refused) < 4
    assert all("sets aside all rows of class 3, which has too few" in text for text in refused)


@pytest.mark.parametrize("kind", ["expected", "high_probability"])
def test_rules_on_rows_none_of_which_is_set_aside(kind, table):
    """Nothing is promised of a group or a mask that no certification row is of."""
    y = table[1]["binary"].astype(np.intp)
    rare = np.arange(y.size) < 5
    aside = np.flatnonzero(~rare)[::3]
    rows = Rows(y, np.arange(2), columns={"g": np.where(rare, "rare", "common")})
    asked = GuaranteeRequest(kind, 0.2, 0.05, Prefixes(ROUNDS, 1))
    by_g = {"by": "g", "min_group_size": 1}
    for rule, missing in (
        (gc.gap(gc.selection_rate(), **by_g) <= 0.9, "none in g=rare"),
        (gc.gap(gc.selection_rate(), reference=gc.overall, **by_g) <= 0.9, "none in g=rare"),
        (gc.each(gc.fpr(), **by_g) <= 0.9, "none in g=rare"),
        (gc.selection_rate(on=rare) <= 0.9, "none"),
    ):
        message = re.escape(
            f"guarantee='{kind}' cannot be given for {rule}: of the {aside.size} rows that "
            f"fraction=0.2 sets aside it is taken over {missing}. Give more rows or"
        )
        training = compile_constraints([gc.fpr() <= 0.9, rule], rows)[1]
        part = compile_constraints([gc.fpr() <= 0.9, rule], rows.take(aside), like=training)
        with pytest.raises(ValueError, match=message):
            check_guarantee(EvaluationSet(*part, "certification"), training, asked)


@BOTH
def test_a_rule_that_is_always_met_takes_no_certificate(library, table, conclusions):
    """Nor does one of a group that no certification row is of."""
    X, y = table[0], table[1]["binary"]
    rare = np.arange(y.size) == np.flatnonzero(y == 0)[0]
    rules = [gc.fpr() <= 0.2, gc.each(gc.fpr(), by="g", min_group_size=1) <= 1.0]
    alone, model = (
        make(library, some, guarantee="high_probability").fit(
            X, y, sensitive_features={"g": np.where(rare, "rare", "common")}
        )
        for some in (rules[:1], rules)
    )
    assert not rare[conclusions[0].fit.data.certification].any()
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    assert model.constraint_report_.satisfied.all()
