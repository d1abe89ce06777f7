"""Groups of evaluation sets that the training rows do not have."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from grouped_fits import BOOSTER, fitted, problem

from gbm_constrained import Holdout, audit, fnr, fpr
from gbm_constrained.constraints.comparisons import overall
from gbm_constrained.constraints.rates import each, gap, ratio, selection_rate, tpr
from gbm_constrained.constraints.selectors import dataset

N = 60


RNG = np.random.default_rng(0)


Y = RNG.integers(0, 2, N)


NEW_GROUPS = "eval_set\\[0\\] has groups that a constraint has no training rows of: "


def with_new_groups(values=("X",), n=200):
    """A problem whose first rows, the evaluation set, have groups of their own."""
    X, y, sex = problem()
    held = sex[:n].astype(object)
    for k, value in enumerate(values):
        held[np.arange(n) % (3 + k) == 0] = value
    return X, y, sex, held


def fitted_beside(rule, held, booster, n=200, **options):
    X, y, sex = problem()
    return fitted(
        [rule] if not isinstance(rule, list) else rule, X[n:], y[n:], booster,
        sensitive_features={"sex": sex[n:]}, eval_set=[(X[:n], y[:n])],
        sensitive_features_eval_set=[{"sex": held}], **options,
    )  # fmt: skip


@BOOSTER
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
@pytest.mark.parametrize(
    "rule",
    [
        gap(selection_rate(), by="sex") <= 0.05,
        gap(tpr(), by="sex", reference=overall, min_group_size=1) <= 0.1,
        gap(fpr(), by="sex", reference="F", min_group_size=1) <= 0.1,
        ratio(selection_rate(), by="sex") >= 0.8,
        ratio(selection_rate(), by="sex", reference="F") >= 0.8,
        each(selection_rate(), by="sex") <= 0.9,
    ],
    ids=str,
)
def test_new_groups_of_an_evaluation_set_are_reported_as_audit_does(booster, measure_on, rule):
    """The report said "satisfied" of the known groups alone."""
    X, y, _, held = with_new_groups(("X", None))
    with pytest.warns(UserWarning, match=NEW_GROUPS) as told:
        model = fitted_beside(rule, held, booster, measure_on=measure_on)
    assert len([w for w in told if re.match(NEW_GROUPS, str(w.message))]) == 1
    found = audit(model, X[:200], y[:200], rule, sensitive_features={"sex": held})
    report = model.constraint_report_.iloc[0]
    assert report["rows"] == "eval_set[0]"
    expected = found.frame.iloc[0]
    for column in ("held_out", "low", "high"):
        name = {"held_out": "value"}.get(column, column)
        assert report[column] == pytest.approx(expected[name], abs=1e-12), column
    assert report.satisfied == expected.satisfied
    groups = model.group_report_.set_index("group")
    rates = found.groups.set_index("group")["rate"]
    assert set(groups.index) == set(rates.index)
    pd.testing.assert_series_equal(
        groups["held_out"].sort_index(), rates.sort_index(), check_names=False
    )
    new = groups.loc[~groups.index.isin(["sex=F", "sex=M"])]
    assert len(new) == 2
    assert (new["rows"] == 0).all()
    assert new["train"].isna().all()
    assert model.history_[f"held_out[{rule}]"].iloc[-1] == pytest.approx(report.held_out)


@BOOSTER
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_rules_of_known_groups_stay_beside_rules_with_new_ones(booster):
    X, y, _, held = with_new_groups()
    rules = [
        gap(fpr(), by="sex", min_group_size=1) <= 0.1,
        fpr(on={"sex": "F"}) <= 0.5,
        fnr() <= 0.5,
    ]
    model = fitted_beside(rules, held, booster)
    found = audit(model, X[:200], y[:200], rules, sensitive_features={"sex": held})
    np.testing.assert_allclose(model.constraint_report_.held_out, found.frame.value, atol=1e-12)


@BOOSTER
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_a_mean_of_prefixes_is_reported_on_new_groups(booster):
    *_, held = with_new_groups()
    rule = gap(selection_rate(), by="sex") <= 0.02
    model = fitted_beside(rule, held, booster, iterate="randomized")
    groups = model.group_report_.set_index("group").held_out
    assert groups.index.tolist() == ["sex=F", "sex=M", "sex=X"]
    assert model.constraint_report_.held_out[0] == pytest.approx(groups.max() - groups.min())
    assert model.constraint_report_["rows"][0] == "eval_set[0]"


@BOOSTER
def test_small_new_groups_are_left_out_where_that_is_asked_for(booster):
    *_, held = with_new_groups(())
    held[:5] = "X"
    rule = gap(selection_rate(), by="sex", small_groups="drop") <= 0.05
    with pytest.warns(UserWarning, match=r"eval_set\[0\], gap.*sex=X \(5\)\. They are left out"):
        model = fitted_beside(rule, held, booster)
    assert model.group_report_.group.tolist() == ["sex=F", "sex=M"]


@BOOSTER
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}", "ignore:.*fewer than min_group_size")
def test_small_new_groups_join_the_others_where_that_is_asked_for(booster):
    X, y, sex, held = with_new_groups(("X",), 200)
    rule = gap(selection_rate(), by="sex", min_group_size=70, small_groups="merge") <= 0.05
    groups = fitted_beside(rule, held, booster).group_report_
    assert groups.group.tolist() == ["sex=F", "sex=M", "sex=small groups"]
    held[0] = None
    groups = fitted_beside(rule, held, booster).group_report_
    assert groups.group.tolist() == ["sex=F", "sex=M", "sex=small groups"]
    few = sex.astype(object)
    few[300:330] = "Y"
    model = fitted(
        [rule], X[200:], y[200:], booster, sensitive_features={"sex": few[200:]},
        eval_set=[(X[:200], y[:200])], sensitive_features_eval_set=[{"sex": held}],
    )  # fmt: skip
    groups = model.group_report_.set_index("group")
    chosen = model.predict(X[:200])[~np.isin(held, ["F", "M"])].mean()
    assert groups.held_out["sex=small groups"] == pytest.approx(chosen)
    assert groups["rows"]["sex=small groups"] == 30


@BOOSTER
def test_missing_groups_of_an_evaluation_set_are_refused_where_missing_is(booster):
    *_, held = with_new_groups((None,))
    rule = gap(selection_rate(), by="sex", missing="raise") <= 0.05
    with pytest.raises(ValueError, match=r"eval_set\[0\]: gap.*sex has missing values: fill"):
        fitted_beside(rule, held, booster)


@BOOSTER
def test_multipliers_are_not_moved_by_groups_that_training_rows_lack(booster):
    *_, held = with_new_groups()
    rule = gap(selection_rate(), by="sex") <= 0.05
    with (
        pytest.raises(ValueError, match=r"'holdout' moves.*of: sex=X \(67 rows\)\. Put rows of"),
        pytest.warns(UserWarning, match=NEW_GROUPS),
    ):
        fitted_beside(rule, held, booster, measure_on="holdout")
    with pytest.warns(UserWarning, match=NEW_GROUPS):
        fitted_beside(rule, held, booster, measure_on=Holdout(0.3))


@BOOSTER
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_early_stopping_looks_at_new_groups(booster):
    """A round meets the rules only if the new group does too."""
    X, y, _, held = with_new_groups()
    held = np.where(X[:200, 0] > 0, "X", held)
    rule = gap(selection_rate(), by="sex", min_group_size=1) <= 0.05
    stop = {"early_stopping_on": "constraints", "early_stopping_rounds": 3}
    model = fitted_beside(rule, held, booster, measure_on="train", **stop)
    found = audit(model, X[:200], y[:200], rule, sensitive_features={"sex": held})
    assert model.constraint_report_.held_out[0] == pytest.approx(found.frame.value[0], abs=1e-12)
    sex = problem()[2]
    with pytest.raises(ValueError, match="cannot be measured"):
        fitted(
            [rule], X[200:], y[200:], booster, sensitive_features={"sex": sex[200:]},
            eval_set=[(X[:200], y[:200])], **stop,
        )  # fmt: skip


@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_a_guarantee_is_refused_where_all_rows_of_a_group_are_set_aside(guarantee, monkeypatch):
    """The certificate was about the other groups, in silence."""
    X, y, sex = problem()
    sex = sex.astype(object)
    sex[:40] = "X"

    def parts(self, rows, *given):
        return [np.arange(200), np.arange(200, rows.size)]

    monkeypatch.setattr("gbm_constrained.data.fit_data.FitData.split", parts)
    rule = each(selection_rate(), by="sex") <= 0.9
    with pytest.raises(ValueError, match=r"sets aside all rows of sex=X: .* Give more rows"):
        fitted([rule], X, y, sensitive_features={"sex": sex}, guarantee=guarantee)


@BOOSTER
def test_new_groups_of_further_data_sets_take_part(booster):
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(float))
    further = frame[:120].assign(sex=np.repeat([0.0, 2.0, np.nan], 40))
    rule = gap(selection_rate(on=dataset("mon")), by="sex", small_groups="drop") <= 0.1
    with pytest.warns(UserWarning, match=r"sex=1\.0 \(0\)\. They are left out"):
        model = fitted([rule], frame, y, booster, datasets={"mon": further})
    chosen = model.predict(further).reshape(3, 40).mean(axis=1)
    groups = model.group_report_
    assert groups.group.tolist() == ["sex=0.0", "sex=2.0", "sex=missing"]
    np.testing.assert_allclose(groups.train, chosen, atol=1e-12)
    rule = gap(selection_rate(on=dataset("mon")), by="sex", missing="raise") <= 0.1
    with pytest.raises(ValueError, match="sex has missing values"):
        fitted([rule], frame, y, booster, datasets={"mon": further})
