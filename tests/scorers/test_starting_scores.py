"""Scores that training starts from: constraints are measured on decisions that the user can make.

LightGBM's ``predict`` does not add ``init_score``, XGBoost's adds the ``base_margin`` it is given.
"""

import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, KINDS, RULES, quiet

import gbm_constrained as gc

RNG = np.random.default_rng(3)
N, M = 4000, 8000
X = RNG.normal(size=(N + M, 5))
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=N + M)
LABELS = {"binary": (SCORE > 0.8).astype(int), "several": np.digitize(SCORE, [-0.5, 0.8])}
# What another model knows, which the trees need not learn.
START = {"binary": X[:, 0] - 1.0, "several": 0.7 * np.outer(X[:, 0], [-1.0, 0.0, 1.0])}
TRAIN, TEST = slice(N), slice(N, None)
OPTIONS = {
    "xgboost": {"n_jobs": 1, "max_depth": 3, "verbosity": 0},
    "lightgbm": {"n_jobs": 1, "max_depth": 3, "verbose": -1},
}
NAMES = {
    "xgboost": ("base_margin", "base_margin_eval_set"),
    "lightgbm": ("init_score", "eval_init_score"),
}


def make(library, rules, **options):
    options = {"n_estimators": 16, "learning_rate": 0.3, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def errors(rule_class, y, decisions):
    """Share of the rows of a class that are decided otherwise."""
    return np.mean(decisions[y == rule_class] != rule_class)


@pytest.mark.parametrize(
    ("kind", "measure_on", "iterate"),
    [
        ("several", gc.CrossFit(2), "last"),
        ("binary", "crossfit", "last"),
        ("binary", "holdout", "best"),
        ("several", "train", "best"),
    ],
)
def test_lightgbm_reports_what_predict_decides(kind, measure_on, iterate):
    y, rows = LABELS[kind], (1 if kind == "binary" else 2)
    model = make("lightgbm", RULES[kind], measure_on=measure_on, iterate=iterate)
    model.fit(X[TRAIN], y[TRAIN], init_score=START[kind][TRAIN])
    report = model.constraint_report_.iloc[0]
    decisions = model.predict(X[TRAIN])
    assert report.train == pytest.approx(errors(rows, y[TRAIN], decisions), abs=1e-9)
    if measure_on != "train":
        found = errors(rows, y[TEST], model.predict(X[TEST]))
        assert report.held_out == pytest.approx(found, abs=0.05)
        found = np.mean(model.predict(X[TEST]) == y[TEST])
        assert model.unseen_accuracy_.value == pytest.approx(found, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "measure_on", "given"),
    [
        ("binary", "crossfit", "all"),
        ("several", "holdout", "training rows"),
        ("binary", "train", "evaluation set"),
    ],
)
def test_lightgbm_evaluation_sets(kind, measure_on, given):
    """Of each round as well, which early stopping on the constraints looks at."""
    y, rows = LABELS[kind], (1 if kind == "binary" else 2)
    held, start = slice(1000, 2000), START[kind]
    arguments = {"init_score": start[:1000], "eval_init_score": [start[held]]}
    if given != "all":
        arguments.pop("eval_init_score" if given == "training rows" else "init_score")
    options = {"early_stopping_round": 30, "early_stopping_on": "constraints"}
    model = make("lightgbm", RULES[kind], measure_on=measure_on, **options)
    model.fit(X[:1000], y[:1000], eval_set=[(X[held], y[held])], **arguments)
    report = model.constraint_report_.iloc[0]
    for value, part in ((report.train, slice(1000)), (report.held_out, held)):
        found = errors(rows, y[part], model.predict(X[part]))
        assert value == pytest.approx(found, abs=1e-9)
    history = model.history_.iloc[1:-1]
    name = history.columns[history.columns.str.startswith("held_out")][0]
    for rounds, value in zip(history["rounds"], history[name], strict=True):
        raw = model.predict(X[held], raw_score=True, num_iteration=rounds) - model.shift_
        decided = (raw > 0).astype(int) if kind == "binary" else raw.argmax(axis=1)
        assert value == pytest.approx(errors(rows, y[held], decided), abs=1e-9)


def test_lightgbm_mixture_of_prefixes():
    """The expectation is that of the prefixes as predict has them."""
    y = LABELS["binary"]
    rules = [gc.fnr() <= 0.2, gc.fpr() <= 0.05]
    model = make("lightgbm", rules, measure_on="train", iterate="randomized")
    model.fit(X[TRAIN], y[TRAIN], init_score=START["binary"][TRAIN])
    for j, rows in enumerate((1, 0)):
        found = sum(
            p
            * errors(
                rows,
                y[TRAIN],
                (model.predict(X[TRAIN], raw_score=True, num_iteration=rounds) > 0).astype(int),
            )
            for rounds, p in zip(*map(model.prefixes_.get, ("rounds", "probability")), strict=True)
        )
        assert model.constraint_report_.train[j] == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("guarantee", [gc.Expected(0.4), gc.HighProbability(fraction=0.4)])
def test_lightgbm_certifies_what_predict_decides(guarantee):
    y = LABELS["binary"]
    model = make("lightgbm", [gc.fnr() <= 0.2], guarantee=guarantee)
    model.fit(X[TRAIN], y[TRAIN], init_score=START["binary"][TRAIN])
    assert errors(1, y[TEST], model.predict(X[TEST])) <= 0.25


def test_lightgbm_gap_of_error_rates():
    """Multipliers of such constraints are corrected by what boosters lose on unseen rows."""
    y, sex = LABELS["binary"], (X[:, 3] > 0).astype(int)
    model = make("lightgbm", [gc.gap(gc.fpr(), by="sex") <= 0.02], measure_on="crossfit")
    model.fit(
        X[TRAIN], y[TRAIN], init_score=START["binary"][TRAIN],
        sensitive_features={"sex": sex[TRAIN]},
    )  # fmt: skip
    decisions = model.predict(X[TRAIN])
    rates = [errors(0, y[TRAIN][sex[TRAIN] == s], decisions[sex[TRAIN] == s]) for s in (0, 1)]
    assert model.constraint_report_.train[0] == pytest.approx(abs(rates[0] - rates[1]), abs=1e-9)


def test_audit_and_trade_off_agree_with_the_report():
    y, held = LABELS["binary"], slice(1000, 2000)
    given = {"init_score": START["binary"][:1000], "eval_set": [(X[held], y[held])]}
    rule = gc.fnr() <= 0.15
    model = make("lightgbm", [rule]).fit(X[:1000], y[:1000], **given)
    found = gc.audit(model, X[held], y[held], [rule]).frame["value"][0]
    assert model.constraint_report_.held_out[0] == pytest.approx(found, abs=1e-9)
    curve = gc.tradeoff_curve(make("lightgbm", [rule]), X[:1000], y[:1000], bounds=[0.15], **given)
    assert curve["value"][0] == pytest.approx(found, abs=1e-9)


def test_goss_of_lightgbm():
    y = LABELS["binary"]
    model = make("lightgbm", [gc.fnr() <= 0.1], boosting_type="goss")
    model.fit(X[TRAIN], y[TRAIN], init_score=START["binary"][TRAIN])
    found = errors(1, y[TRAIN], model.predict(X[TRAIN]))
    assert model.constraint_report_.train[0] == pytest.approx(found, abs=1e-9)


# --- XGBoost ------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout", "train"])
def test_xgboost_reports_what_predict_decides_with_them(kind, measure_on):
    """And says so: in a warning, and in the report that a file keeps."""
    y, rows, start = LABELS[kind], (1 if kind == "binary" else 2), START[kind]
    model = make("xgboost", RULES[kind], measure_on=measure_on)
    with pytest.warns(UserWarning, match=r"The report holds for predict\(X, base_margin=\.\.\.\)"):
        model.fit(X[TRAIN], y[TRAIN], base_margin=start[TRAIN])
    report = model.constraint_report_.iloc[0]
    decisions = model.predict(X[TRAIN], base_margin=start[TRAIN])
    assert report.train == pytest.approx(errors(rows, y[TRAIN], decisions), abs=1e-9)
    if measure_on != "train":
        found = errors(rows, y[TEST], model.predict(X[TEST], base_margin=start[TEST]))
        assert report.held_out == pytest.approx(found, abs=0.05)
    assert report.rows.endswith(", with base_margin")


@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_xgboost_evaluation_sets(measure_on):
    y, held, start = LABELS["binary"], slice(1000, 2000), START["binary"]
    model = make("xgboost", [gc.fnr() <= 0.1], measure_on=measure_on)
    with pytest.warns(UserWarning, match="base_margin"):
        model.fit(
            X[:1000], y[:1000], base_margin=start[:1000], eval_set=[(X[held], y[held])],
            base_margin_eval_set=[start[held]], verbose=False,
        )  # fmt: skip
    report = model.constraint_report_.iloc[0]
    found = errors(1, y[held], model.predict(X[held], base_margin=start[held]))
    assert report.held_out == pytest.approx(found, abs=1e-9)
    assert report.rows.startswith("eval_set[0]")
    assert report.rows.endswith(", with base_margin")


@BOTH
def test_nothing_is_said_without_them(library):
    y = LABELS["binary"]
    given = dict.fromkeys(NAMES[library])
    model = make(library, [gc.fnr() <= 0.1])
    model.fit(
        X[:1000], y[:1000], eval_set=[(X[1000:2000], y[1000:2000])], **quiet(library), **given
    )
    assert model.constraint_report_.rows[0] == "eval_set[0]"
