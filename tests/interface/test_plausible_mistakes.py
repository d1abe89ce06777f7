"""Plausible mistakes of a user: each message names the parameter, the value and a remedy.

All are refused before training starts, so that the rows are few.
"""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression, Ridge

import gbm_constrained as gc
from gbm_constrained import metrics, plotting, presets, solvers
from gbm_constrained.cli.main import main

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(size=(N, 2)), columns=["age", "Amount"])
SEX = np.array(["F", "M"] * (N // 2))
COLUMNS = pd.DataFrame({"sex": SEX})
Y = (X["age"] > 0.5).astype(int).to_numpy()
TARGET = X["age"].to_numpy()
FNR, GAP = gc.fnr() <= 0.2, gc.gap(gc.fpr(), by="sex") <= 0.1
GAP_OF_FEW = gc.gap(gc.fpr(), by="sex", min_group_size=1) <= 0.1
MEAN = gc.gap(gc.mean_prediction(), by="sex") <= 0.1
FITTED = LogisticRegression().fit(X, Y)
CLASSIFIERS = {"XGB": gc.ConstrainedXGBClassifier, "LGBM": gc.ConstrainedLGBMClassifier}
REGRESSORS = {"XGB": gc.ConstrainedXGBRegressor, "LGBM": gc.ConstrainedLGBMRegressor}


class LazyFrame:
    """A table of polars that has not been computed."""

    def collect(self):
        return X


def fit(library="XGB", X=X, y=Y, given=None, **options):
    options = {"n_estimators": 1, **options}
    return CLASSIFIERS[library](**options).fit(X, y, **(given or {}))


def regress(library="XGB", X=X, y=TARGET, given=None, **options):
    return REGRESSORS[library](n_estimators=1, **options).fit(X, y, **(given or {}))


def logistic(given=None, **options):
    return gc.ConstrainedLogisticRegression(**options).fit(X, Y, **(given or {}))


def svc(**options):
    return gc.ConstrainedLinearSVC(**{"constraints": [FNR], **options}).fit(X, Y)


def ridge(**options):
    return gc.ConstrainedRidge(**{"constraints": [MEAN], **options}).fit(
        X, TARGET, sensitive_features=COLUMNS
    )


def scorer(y=Y, **options):
    return gc.ConstrainedAUCScorer(**{"constraints": [gc.auc() >= 0.5], **options}).fit(X, y)


def audit(constraints=FNR, model=FITTED, X=X, y=Y, **given):
    return gc.audit(model, X, y, constraints, **given)


def train(**given):
    given = {"constraints": [FNR], **given}
    return gc.xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(X, Y), 1, **given)


def train_lightgbm(params=None, data=None, **given):
    data = lightgbm.Dataset(X, Y, free_raw_data=False) if data is None else data
    params = {"objective": "binary", "verbose": -1, **(params or {})}
    return gc.lightgbm.train(params, data, 1, **{"constraints": [FNR], **given})


# What is done: words for the parameter, the value and the remedy. Mistakes in the constraints
# themselves are in tests/constraints.
MISTAKES = {
    "metric in text": (
        lambda: metrics.parse_metric("g_mean >= 0.5"), ["metric", "g_mean >= 0.5", "no bound"]
    ),
    "range turned round": (
        lambda: gc.mean_prediction(range=(1, 0)), ["range", "(1, 0)", "smaller number first"]
    ),
}  # fmt: skip
for name in CLASSIFIERS:  # Both libraries say the same.
    MISTAKES |= {
        f"{name}: {what}": (lambda do=do, name=name: do(name), words)
        for what, (do, words) in {
            "a strict bound in text": (
                lambda k: fit(k, constraints="fnr < 0.2"),
                ["constraints", "'<'", "write <="],
            ),
            "a rate without bound": (
                lambda k: fit(k, constraints=[gc.fnr()]), ["constraints", "fnr()", "<= 0.05"]
            ),
            "a function": (
                lambda k: fit(k, constraints=[gc.fnr]), ["constraints", "fnr", "fnr() <= 0.05"]
            ),
            "a preset without brackets": (
                lambda k: fit(k, constraints=[presets.EqualizedOdds]),
                ["constraints", "EqualizedOdds", "write EqualizedOdds()"],
            ),
            "a generator": (
                lambda k: fit(k, constraints=(c for c in [FNR])),
                ["constraints", "generator", "list(...)"],
            ),
            "a misspelt parameter": (
                lambda k: fit(k, constraint=[FNR]), ["'constraint'", "did you mean constraints="]
            ),
            "a misspelt guarantee": (
                lambda k: fit(k, constraints=[FNR], guarante="expected"),
                ["'guarante'", "did you mean guarantee="],
            ),
            "a misspelt argument": (
                lambda k: fit(k, constraints=[GAP], given={"sensitive_feature": SEX}),
                ["fit", "'sensitive_feature'", "did you mean sensitive_features="],
            ),
            "a parameter in fit": (
                lambda k: fit(k, given={"constraints": [FNR]}),
                ["fit", "'constraints'", "to the constructor"],
            ),
            "an unnamed array": (
                lambda k: fit(k, constraints=[GAP], given={"sensitive_features": SEX}),
                ["'sex'", "'sensitive_feature_0'", "sensitive_features={'sex': values}"],
            ),
            "no columns": (
                lambda k: fit(k, X=X.to_numpy(), constraints=[GAP]),
                ["'sex'", "[]", "STEP__sensitive_features={'sex': values}"],
            ),
            "a column in lower case": (
                lambda k: fit(k, constraints=[gc.fnr(weight="amount") <= 0.2]),
                ["weight=amount", "'amount'", "Did you mean 'Amount'?"],
            ),
            "a group in lower case": (
                lambda k: fit(k, constraints=[gc.fnr(on={"sex": "f"}) <= 0.2],
                              given={"sensitive_features": COLUMNS}),
                ["sex", "sex=f", "['F', 'M']"],
            ),
            "a class of another type": (
                lambda k: fit(k, constraints=[gc.class_error("1") <= 0.2]),
                ["class_error", "'1'", "[0, 1]"],
            ),
            "a lazy table": (
                lambda k: fit(k, X=LazyFrame(), constraints=[FNR]),
                ["X", "LazyFrame", "X.collect()"],
            ),
            "missing labels": (
                lambda k: fit(k, y=np.where(Y == 1, 1.0, np.nan), constraints=[FNR]),
                ["y", "NaN", "drop"],
            ),
            "one class": (
                lambda k: fit(k, y=np.zeros(N, int), constraints=[FNR]),
                ["y", "one class only ([0])", "at least two"],
            ),
            "a guarantee": (
                lambda k: fit(k, constraints=[FNR], guarantee="high"),
                ["guarantee", "'high'", "'high_probability'"],
            ),
            "confidence in per cent": (
                lambda k: fit(k, constraints=[FNR], guarantee=gc.HighProbability(95)),
                ["delta", "95", "between 0 and 1"],
            ),
            "measurement": (
                lambda k: fit(k, constraints=[FNR], measure_on="test"),
                ["measure_on", "'test'", "'holdout'"],
            ),
            "one fold": (
                lambda k: fit(k, constraints=[FNR], measure_on=gc.CrossFit(1)),
                ["n_folds", "1", ">= 2"],
            ),
            "a solver": (
                lambda k: fit(k, constraints=[FNR], solver="adam"), ["solver", "'adam'", "'abpp'"]
            ),
            "two objectives": (
                lambda k: fit(k, maximize="g_mean", minimize="error_rate"),
                ["maximize", "minimize", "g_mean", "both"],
            ),
            "an objective of scores": (
                lambda k: fit(k, maximize="roc_auc"),
                ["maximize", "'roc_auc'", "bound it as a constraint", "g_mean"],
            ),
            "an objective of losses": (
                lambda k: fit(k, minimize="logloss"), ["minimize", "'logloss'", "leave it out"]
            ),
            "a misspelt objective": (
                lambda k: fit(k, maximize="gmean"), ["maximize", "'gmean'", "did you mean g_mean"]
            ),
            "an objective without brackets": (
                lambda k: fit(k, maximize=metrics.g_mean), ["maximize", "g_mean", "Write g_mean()"]
            ),
            "a rate of numbers": (
                lambda k: fit(k, constraints=[gc.mean_prediction() <= 1]),
                ["mean_prediction", "<= 1", "selection_rate()"],
            ),
            "a mean of classes": (
                lambda k: regress(k, constraints=[FNR]), ["fnr", "0.2", "mean_prediction()"]
            ),
            "a regressor's misspelt argument": (
                lambda k: regress(k, constraints=[MEAN], given={"sensitive_feature": SEX}),
                ["fit", "'sensitive_feature'", "did you mean sensitive_features="],
            ),
            "a regressor's unnamed array": (
                lambda k: regress(k, constraints=[MEAN], given={"sensitive_features": SEX}),
                ["'sex'", "'sensitive_feature_0'", "{'sex': values}"],
            ),
            "texts as targets": (
                lambda k: regress(k, y=SEX, constraints=[gc.mean_prediction() <= 1]),
                ["y", "'F'", "number"],
            ),
            "one group": (
                lambda k: fit(
                    k, constraints=[presets.TruePositiveRateParity(by="sex")],
                    given={"sensitive_features": {"sex": ["F"] * N}},
                ),
                ["by='sex'", "1 is left (sex=F)", "at least 2"],
            ),
        }.items()
    }  # fmt: skip
MISTAKES |= {
    # Linear models.
    "logistic: misspelt argument": (
        lambda: logistic(constraints=[GAP], given={"sensitive_feature": SEX}),
        ["fit", "'sensitive_feature'", "did you mean sensitive_features="],
    ),
    "logistic: misspelt parameter": (
        lambda: logistic(constraint=[FNR]), ["'constraint'", "did you mean constraints="]
    ),
    "logistic: option of a solver": (
        lambda: logistic(constraints=[FNR], tau=1.0), ["'tau'", "ABPP(tau=...)"]
    ),
    "svc: misspelt parameter": (
        lambda: svc(objective_los="ramp"), ["'objective_los'", "did you mean objective_loss="]
    ),
    "svc: loss": (lambda: svc(objective_loss="log"), ["objective_loss", "'log'", "'hinge'"]),
    "svc: no regularisation": (lambda: svc(C=0), ["C", "0", "positive"]),
    "svc: initial model": (lambda: svc(initial_model="old"), ["initial_model", "'old'", "fitted"]),
    "ridge: misspelt parameter": (
        lambda: ridge(alhpa=1.0), ["'alhpa'", "did you mean alpha="]
    ),
    "ridge: a rate": (lambda: ridge(constraints=[FNR]), ["fnr", "0.2", "mean_prediction()"]),
    "scorer: misspelt parameter": (
        lambda: scorer(n_step=2), ["'n_step'", "did you mean n_steps="]
    ),
    "scorer: three classes": (
        lambda: scorer(y=np.arange(N) % 3), ["y", "3 classes", "binary"]
    ),
    # Black boxes and metrics.
    "black box: a metric": (
        lambda: metrics.BlackBox(metrics.g_mean), ["function", "g_mean", "maximize="]
    ),
    "black box: no function": (
        lambda: metrics.BlackBox("accuracy"), ["function", "'accuracy'", "make_scorer"]
    ),
    "black box: predictions": (
        lambda: metrics.BlackBox(lambda y, p: 0.0, predict="class"),
        ["predict", "'class'", "must be one of"],
    ),
    "metric: kind": (
        lambda: metrics.metric(lambda m: 0.0, kind="nice"), ["kind", "'nice'", "'smooth'"]
    ),
    # Audits and curves.
    "audit: misspelt column": (
        lambda: audit(GAP, sensitive_features={"Sex": SEX}), ["'sex'", "'Sex'", "Did you mean"]
    ),
    "audit: level in per cent": (lambda: audit(level=95), ["level", "95", "between 0 and 1"]),
    "audit: no model": (lambda: audit(model="clf"), ["model", "'clf'", "predict"]),
    "audit: a lazy table": (lambda: audit(X=LazyFrame()), ["X", "LazyFrame", ".collect()"]),
    "audit: metric": (lambda: audit(metrics=["gmean"]), ["metrics", "'gmean'", "g_mean"]),
    "audit: a rate of numbers": (
        lambda: audit(gc.mean_loss() <= 1), ["mean_loss", "<= 1", "selection_rate()"]
    ),
    "audit of a regressor: a rate": (
        lambda: audit(FNR, model=Ridge().fit(X, TARGET), y=TARGET), ["fnr", "0.2", "mean"]
    ),
    "curve: no constraint": (
        lambda: gc.tradeoff_curve(gc.ConstrainedXGBClassifier(), X, Y, [0.1]),
        ["constraint", "0", "lambda b: [fnr() <= b"],
    ),
    "curve: test rows without labels": (
        lambda: gc.tradeoff_curve(
            gc.ConstrainedXGBClassifier(constraints=[FNR]), X, Y, [0.1], X_test=X
        ),
        ["y_test", "X_test", "give"],
    ),
    # Native training.
    "train: no constraint": (
        lambda: train(constraints=0.1), ["constraints", "0.1", "[fnr() <= 0.05]"]
    ),
    "train: no columns": (
        lambda: train(constraints=[GAP]), ["'sex'", "[", "sensitive_features="]
    ),
    "train: freed rows": (
        lambda: train_lightgbm(data=lightgbm.Dataset(X, Y)),
        ["train_set", "freed", "free_raw_data=False"],
    ),
    "train: measurement": (
        lambda: train_lightgbm(measure_on="test"), ["measure_on", "'test'", "'holdout'"]
    ),
    # Displays.
    "display: by in the place of the constraint": (
        lambda: plotting.GroupROCDisplay.from_predictions(
            Y, TARGET, "sex", sensitive_features=COLUMNS
        ),
        ["constraint", "'sex'", "by="],
    ),
    "display: kind of curves": (
        lambda: plotting.GroupROCDisplay.from_predictions(
            Y, TARGET, by="sex", kind="all", sensitive_features=COLUMNS
        ),
        ["kind", "'all'", "'within'"],
    ),
    "display: no constraint": (
        lambda: plotting.GroupRatesDisplay.from_predictions(
            Y, Y, gc.fpr(), sensitive_features=COLUMNS
        ),
        ["constraint", "fpr()", "by="],
    ),
    "display: a column that is not there": (
        lambda: plotting.GroupConfusionDisplay.from_predictions(
            Y, Y, by="race", sensitive_features=COLUMNS
        ),
        ["column", "'race'", "sensitive_features"],
    ),
    # Solvers.
    "solver: a proxy": (
        lambda: fit(constraints=[FNR], solver=solvers.ABPP(proxy="relu")),
        ["proxy", "'relu'", "'logistic'"],
    ),
    "solver: a step": (
        lambda: fit(constraints=[FNR], solver=solvers.ABPP(tau=-1)), ["tau", "-1", "positive"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError)) as refused:
        make()
    missing = [word for word in words if word not in str(refused.value)]
    assert not missing, f"{missing} not in: {refused.value}"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--constraint", "fnr <= 20%"], ["fnr <= 20%", "write 20% as 0.2"]),
        (["--constraint", "frp <= 0.1"], ["frp", "did you mean fpr?"]),
        (["--constrain", "fnr <= 0.1", "--guarante", "x"], ["--guarante"]),
    ],
)
def test_a_mistake_on_the_command_line_is_named(tmp_path, capsys, given, words):
    path = tmp_path / "rows.csv"
    X.assign(y=Y).to_csv(path, index=False)
    command = ["fit", str(path), "--target", "y", "--out", str(tmp_path / "m.json"), *given]
    try:
        code = main(command)
    except SystemExit as end:
        code = end.code
    assert code
    printed = capsys.readouterr().err
    assert [word for word in words if word not in printed] == [], printed
