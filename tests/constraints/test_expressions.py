"""Sums, quotients and comparisons of rates: algebra, printed form, equality and copies."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle

import numpy as np
import pandas as pd
import pytest
from pasted import paste
from references import Constant
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gbm_constrained as gc
from gbm_constrained.metrics import g_mean

MASK = np.array([True, False, True, True, False])
OLD = [0, 1, 1, 0, 1]
F, M = {"sex": "F"}, {"sex": "M"}


def test_a_rate_is_restricted_as_on_reads_it():
    rows = ({"sex": "F", "region": None}, gc.label(1), gc.dataset("m"))
    assert gc.fpr().restrict(*rows) == gc.fpr(on=rows)
    both = gc.fpr() - gc.fpr(on={"sex": "F"})
    assert both.restrict(MASK) == gc.fpr(on=MASK) - gc.fpr(on=({"sex": "F"}, MASK))
    assert both.restrict() == both


def test_equal_terms_merge():
    assert gc.fpr() + gc.fpr() == 2 * gc.fpr()
    assert 3 * gc.fpr() - gc.fpr() == 2.0 * gc.fpr()
    assert gc.fpr() + gc.fnr() - gc.fpr() == gc.fnr()
    assert (gc.fpr() - gc.fpr()).terms == ()
    assert 0 * gc.fpr() + gc.fnr() == gc.fnr()
    assert gc.fpr() + gc.fpr(on={"sex": "F"}) != 2 * gc.fpr()


PRINTED = {
    "fpr[sex=F] - fpr[sex=M] <= 0.02": gc.fpr(on=F) - gc.fpr(on=M) <= 0.02,
    "fpr[sex=F] - fpr[sex=M] <= 0": gc.fpr(on=F) <= gc.fpr(on=M),
    "fpr[sex=F] - 0.8 * fpr[sex=M] >= 0": gc.fpr(on=F) >= 0.8 * gc.fpr(on=M),
    "log_loss[sex=F] - log_loss[sex=M] <= 0": gc.log_loss(on=F) <= gc.log_loss(on=M),
    "0.5 * fpr + 2 * fnr <= 0.3": 0.5 * gc.fpr() + 2 * gc.fnr() <= 0.3,
    "-fpr + 1 >= 0.9": 1 - gc.fpr() >= 0.9,
    "-0.5 * fpr - fnr - 0.1 <= -0.2": -0.5 * gc.fpr() - gc.fnr() - 0.1 <= -0.2,
    "error_rate[y='SIRA'] <= 0.1": gc.error_rate(on=gc.label("SIRA")) <= 0.1,
    "fpr[mask of 3 rows, sex=F, y=1] <= 0.1": gc.fpr(on=(MASK, F, gc.label(1))) <= 0.1,
    "selection_rate[monitor] >= 0.2": gc.selection_rate(on=gc.dataset("monitor")) >= 0.2,
    "confusion(0, 2)/pred[sex=F] <= 0.1": gc.confusion(0, 2, normalize="pred", on=F) <= 0.1,
    "wins / losses >= 2": gc.wins(over=OLD) / gc.losses(to=OLD) >= 2,
    "wins / (wins + losses) >= 0.6": gc.wins(over=OLD) / (gc.wins(over=OLD) + gc.losses(to=OLD))
    >= 0.6,
    "gap(tpr, by='sex') <= 0.02": gc.gap(gc.tpr(), by="sex") <= 0.02,
    "gap(tpr) <= 0.02": gc.gap(gc.tpr()) <= 0.02,
    "gap(tpr, by=['sex', 'age']) <= 0.02": gc.gap(gc.tpr(), by=["sex", "age"]) <= 0.02,
    "gap(tpr, by='sex', reference='F') <= 0.1": gc.gap(gc.tpr(), by="sex", reference="F") <= 0.1,
    "gap(tpr, reference=overall) <= 0.1": gc.gap(gc.tpr(), reference=gc.overall) <= 0.1,
    "fpr[sex=missing] <= 0.1": gc.fpr(on={"sex": None}) <= 0.1,
    "gap(tpr, by='sex', reference=missing) <= 0.1": gc.gap(gc.tpr(), by="sex", reference=np.nan)
    <= 0.1,
    "gap(fpr[mask of 3 rows], by='sex', drop below 5) <= 0.1": gc.gap(
        gc.fpr(on=MASK), by="sex", small_groups="drop", min_group_size=5
    )
    <= 0.1,
    "ratio(selection_rate, by='sex', slack=0.03) >= 0.8": gc.ratio(
        gc.selection_rate(), by="sex", slack=0.03
    )
    >= 0.8,
    "gap(tpr, by='sex', missing='raise', min_group_size=5) <= 0.1": gc.gap(
        gc.tpr(), by="sex", missing="raise", min_group_size=5
    )
    <= 0.1,
    "ratio(selection_rate, by='sex') >= 0.8": gc.ratio(gc.selection_rate(), by="sex") >= 0.8,
    "each(recall, by='region') >= 0.8": gc.each(gc.recall(), by="region") >= 0.8,
    "each(log_loss) <= 2.5": gc.each(gc.log_loss()) <= 2.5,
}


def test_a_comparison_prints_as_it_is_read():
    comparison = gc.ratio(
        gc.fpr(), by="g", reference="a", slack=0.03, missing="raise", min_group_size=9
    )
    assert gc.parse_constraint(str(comparison >= 0.8)) == (comparison >= 0.8)


@pytest.mark.parametrize("text", PRINTED)
def test_a_constraint_prints_as_it_is_written(text):
    assert str(PRINTED[text]) == text


@pytest.mark.parametrize("text", PRINTED)
def test_what_the_prompt_shows_can_be_pasted_back(text):
    constraint = PRINTED[text]
    has_text = not any(word in text for word in ("mask of", "wins", "reference=missing"))
    if has_text:
        assert paste(constraint) == constraint
        assert paste(constraint.expression) == constraint.expression
    else:  # Rows, models and missing values are no text: it is the short form.
        assert repr(constraint) == text


@pytest.mark.parametrize("text", PRINTED)
def test_a_constraint_survives_a_copy(text, make_copy):
    """Pickle, deepcopy and sklearn.clone return an equal constraint with an equal hash."""
    twin = make_copy(PRINTED[text])
    assert twin == PRINTED[text]
    assert hash(twin) == hash(PRINTED[text])
    assert str(twin) == text


def test_equality_is_by_content():
    assert len(set(PRINTED.values())) == len(PRINTED)
    assert (gc.fnr(on=MASK) <= 0.1) == (gc.fnr(on=MASK.tolist()) <= 0.1)
    assert gc.fnr(on=MASK) != gc.fnr(on=~MASK)
    assert gc.fnr() != gc.fpr()
    assert gc.churn(to=OLD) == gc.churn(to=np.array(OLD))
    assert gc.churn(to=OLD) != gc.churn(to=OLD[::-1])
    assert (gc.fnr() <= 0.1) != (gc.fnr() <= 0.2) != (gc.fnr() >= 0.2)
    assert gc.gap(gc.fnr(), by="sex") == gc.gap(gc.fnr(), by=["sex"]) != gc.gap(gc.fnr())
    assert gc.fpr(on={"age": np.int64(3)}) == gc.fpr(on={"age": 3})
    by = ["sex", "age"]
    assert gc.gap(gc.fnr(), by=by, reference=["F", 3]) == gc.gap(
        gc.fnr(), by=by, reference=("F", 3)
    )


MODELS = {
    "logistic": LogisticRegression,
    "pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
    "lightgbm": lambda: gc.ConstrainedLGBMClassifier(n_estimators=3, verbose=-1),
    "xgboost": lambda: gc.ConstrainedXGBClassifier(n_estimators=3, verbosity=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_constraints_with_another_model_are_equal_by_its_content(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    model, other = MODELS[name]().fit(X, y), MODELS[name]().fit(X, 1 - y)
    constraint = gc.churn(to=model) <= 0.1
    copied = pickle.loads(pickle.dumps(model))
    for twin in (copy.deepcopy(constraint), gc.churn(to=copied) <= 0.1):
        assert twin == constraint
        assert hash(twin) == hash(constraint)
        assert pickle.loads(pickle.dumps(twin)) == constraint
    assert constraint != (gc.churn(to=other) <= 0.1)
    assert gc.churn(to=model) - gc.churn(to=copied) == 0 * gc.churn(to=model)


def test_a_model_without_a_pickle_equals_itself_alone():
    constant = lambda X: np.zeros(len(X))  # noqa: E731
    model = Constant(constant)
    assert gc.churn(to=model) == gc.churn(to=model) == copy.deepcopy(gc.churn(to=model))
    assert gc.churn(to=model) != gc.churn(to=Constant(constant))


@pytest.mark.parametrize("text", PRINTED)
def test_nothing_can_be_changed(text):
    constraint = PRINTED[text]
    for thing in (constraint, constraint.expression, constraint.terms[0]):
        for name in [*(f.name for f in dataclasses.fields(thing)), "other"]:
            with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
                setattr(thing, name, 0.5)


def test_a_rate_keeps_its_own_copy_of_what_it_was_given():
    mask, old = MASK.copy(), list(OLD)
    rates = gc.error_rate(on=mask), gc.churn(to=old)
    mask[:], old[0] = False, 5
    assert rates == (gc.error_rate(on=MASK), gc.churn(to=OLD))


@pytest.mark.parametrize("number", [float, np.float64, np.float32])
def test_numbers_of_numpy_and_either_side(number):
    assert (
        (number(0.25) >= gc.fnr())
        == (gc.fnr() <= number(0.25))
        == gc.Constraint(gc.fnr(), "<=", 0.25)
    )
    assert (
        (number(0.25) <= gc.fnr())
        == (gc.fnr() >= number(0.25))
        == gc.Constraint(gc.fnr(), ">=", 0.25)
    )
    assert number(2) * gc.fnr() == gc.fnr() * number(2) == gc.fnr() + gc.fnr()
    assert number(1) - gc.fnr() == -gc.fnr() + number(1)
    assert type((gc.fnr() <= number(0.25)).bound) is float
    assert (number(0.5) <= gc.ratio(gc.fnr())) == (gc.ratio(gc.fnr()) >= 0.5)
    assert (number(0.5) >= gc.gap(gc.fnr())) == (gc.gap(gc.fnr()) <= 0.5)


@pytest.mark.parametrize("Classifier", [gc.ConstrainedLGBMClassifier, gc.ConstrainedXGBClassifier])
def test_bounds_are_searched_over(Classifier):
    """GridSearchCV tries constraints; columns of groups travel inside X."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    X["sex"] = rng.integers(0, 2, 300)
    y = (X["a"] + X["sex"] + 0.5 * rng.normal(size=300) > 0).astype(int)
    model = Classifier(n_estimators=5, n_jobs=1, **(
        {"verbose": -1} if Classifier is gc.ConstrainedLGBMClassifier else {"verbosity": 0}
    ))  # fmt: skip
    grid = [
        [gc.gap(gc.selection_rate(), by="sex", min_group_size=1) <= b, gc.fnr() <= 0.9]
        for b in (0.05, 0.5)
    ]
    search = GridSearchCV(model, {"constraints": [*grid, None, gc.fnr() <= 0.3]}, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["constraints"] in [*grid, None, gc.fnr() <= 0.3]
    assert "fnr() <= 0.3" in repr(model.set_params(constraints=[gc.fnr() <= 0.3]))
    assert clone(model).constraints == [gc.fnr() <= 0.3]


SUMS = [operator.add, operator.sub]
NUMBERS = [2, 2.0, np.float64(2.0), np.array([1.0, 2.0])]
CASES = [(operate, other) for operate in SUMS for other in (*NUMBERS, gc.recall())]
CASES += [(operate, n) for operate in (operator.mul, operator.truediv) for n in NUMBERS]
REMEDIES = {
    gc.precision(): "Bound each by itself",
    gc.ratio(gc.tpr(), by="sex"): "Bound each by itself",
    g_mean(): "give a function of the confusion matrix",
}


@pytest.mark.parametrize("value", REMEDIES, ids=str)
@pytest.mark.parametrize(("operate", "other"), CASES)
def test_operators_are_refused_on_both_sides(value, operate, other):
    for left, right in ((value, other), (other, value)):
        with pytest.raises(TypeError, match=f"cannot be combined: .*{REMEDIES[value]}"):
            operate(left, right)
