"""Small fits whose models, reports, histories and warnings are the same as recorded, bit for bit.

The fits say nothing about what is right; other tests do. They notice a change that was meant to
move code and moved a model. Where a change is meant, record the table anew and say why:

    python tests/end_to_end/test_golden_models.py
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import tempfile
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.model_selection import KFold

import gbm_constrained as gc
from gbm_constrained import metrics
from gbm_constrained.distributed import fit_on_processes
from gbm_constrained.solvers import ABPP, CBPR, Reduction

TABLE = Path(__file__).parent / "golden_models.json"
LIBRARIES = ("xgboost", "lightgbm")
CLASSIFIERS = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
REGRESSORS = {"xgboost": gc.ConstrainedXGBRegressor, "lightgbm": gc.ConstrainedLGBMRegressor}


def versions():
    """What a model's bits depend on beside the code of the package."""
    return {
        "xgboost": xgboost.__version__,
        "lightgbm": lightgbm.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def rows(n_classes, n=700):
    """Rows with numbers, a category with a group's names, and labels that depend on both."""
    rng = np.random.default_rng(n_classes)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["group"] = pd.Categorical(rng.choice(["u", "v", "w"], size=n, p=[0.5, 0.3, 0.2]))
    shift = X["group"].map({"u": 0.0, "v": 0.5, "w": -0.5}).astype(float)
    score = X["a"] + 0.7 * X["b"] * X["c"] + shift + rng.normal(scale=0.7, size=n)
    edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return X, np.searchsorted(edges, score), rng.uniform(0.5, 2.0, size=n)


def numbers(n=700):
    """Rows with a target that is a number, which depends on the group as well."""
    X, _, weight = rows(2, n)
    rng = np.random.default_rng(9)
    shift = X["group"].map({"u": 0.0, "v": 0.6, "w": -0.4}).astype(float)
    y = X["a"] + 0.7 * X["b"] * X["c"] + shift + rng.normal(scale=0.5, size=n)
    return X, y.to_numpy(), weight


class Threshold:
    """A model that other decisions are compared with."""

    def predict(self, X):
        return (X["a"] > 0).astype(int).to_numpy()


def g_mean_loss(y_true, scores):
    """A metric that is only a function to call."""
    decided = scores > 0
    return float(1 - np.sqrt(decided[y_true == 1].mean() * (~decided[y_true == 0]).mean()))


GAP = (gc.gap(gc.error_rate(), by="group") <= 0.03,)
TPR = (gc.gap(gc.tpr(), by="group") <= 0.1,)
TWO = {
    "fnr": {"constraints": [gc.fnr() <= 0.1]},
    "gap": {"constraints": list(GAP)},
    "gap and rate": {"constraints": [gc.gap(gc.fpr(), by="group") <= 0.05, gc.fnr() <= 0.25]},
    "ratio": {"constraints": [gc.ratio(gc.selection_rate(), by="group") >= 0.8]},
    "each": {"constraints": [gc.each(gc.tpr(), by="group") >= 0.7]},
    "precision": {"constraints": [gc.precision() >= 0.85]},
    "churn": {"constraints": [gc.churn(to=Threshold()) <= 0.3]},
    "mean loss": {"constraints": [gc.gap(gc.log_loss(), by="group") <= 0.05]},
    "loss form": {"constraints": gc.as_log_loss([gc.fnr() <= 0.2], n_classes=2)},
    "data set": {"constraints": [gc.error_rate(on=gc.dataset("clean")) <= 0.2]},
    "training rows": {"constraints": list(GAP), "measure_on": "train"},
    "held-out rows": {"constraints": list(GAP), "measure_on": "holdout"},
    "evaluation rows": {"constraints": list(GAP), "measure_on": "holdout", "eval": True},
    "guarantee": {"constraints": [gc.fnr() <= 0.2], "guarantee": "high_probability"},
    "expected": {"constraints": [gc.fnr() <= 0.2], "guarantee": "expected"},
    "mixture": {"constraints": list(GAP), "iterate": "randomized"},
    "best": {"constraints": list(GAP), "iterate": "best"},
    "calibrated": {"constraints": [gc.fnr() <= 0.1], "probabilities": "calibrated"},
    "weights": {"constraints": list(GAP), "weights": True},
    "cbpr": {"constraints": list(GAP), "solver": CBPR(proxy="logistic")},
    "abpp": {"constraints": [gc.fnr() <= 0.1], "solver": ABPP(proxy="sigmoid")},
    "threshold": {"constraints": [gc.fnr() <= 0.1], "solver": "threshold"},
    "ramp": {"constraints": list(GAP), "solver": ABPP(proxy="ramp")},
    "auc": {"constraints": [gc.auc() >= 0.8]},
    "gap of auc": {"constraints": [gc.gap(gc.auc(), by="group") <= 0.02]},
    "auc of each": {"constraints": [gc.each(gc.auc(), by="group") >= 0.8], "measure_on": "train"},
    "calibration error": {
        "constraints": [gc.gap(gc.calibration_error(), by="group") <= 0.05],
        "probabilities": "calibrated",
    },
    "precision of groups": {"constraints": [gc.gap(gc.precision(), by="group") <= 0.05]},
    "g-mean as a bound": {"constraints": [metrics.g_mean() >= 0.75]},
    "group thresholds": {"constraints": list(TPR), "group_thresholds": True},
    "forward": {"constraints": [gc.fnr() <= 0.2], "measure_on": "forward", "time": True},
    "splitter": {"constraints": list(GAP), "measure_on": KFold(3)},
    "priorities": {
        "constraints": [
            (gc.fnr() <= 0.1).with_priority(1), (gc.fpr() <= 0.02).with_priority(2),
        ]
    },
    "early stopping": {"constraints": list(GAP), "early_stopping_on": "constraints", "stop": True},
    "checkpoint": {"constraints": list(GAP), "checkpoint": True},
    "callback": {"constraints": list(GAP), "stopping callback": True},
    "metric": {"maximize": metrics.g_mean()},
    "metric under constraints": {"maximize": metrics.g_mean(), "constraints": list(TPR)},
    "F-measure": {"maximize": metrics.f_beta(2.0), "measure_on": "holdout"},
    "refitted oracle": {"maximize": metrics.g_mean(), "solver": Reduction(oracle="refit")},
    "oracle in training": {
        "maximize": metrics.h_mean(), "constraints": list(TPR),
        "solver": Reduction(oracle="in_training"),
    },
    "folds of a metric": {"maximize": metrics.q_mean(), "solver": Reduction(ensemble="folds")},
    "randomised metric": {
        "maximize": metrics.g_mean(), "constraints": list(TPR),
        "solver": Reduction(deterministic=False),
    },
    "Frank-Wolfe": {
        "maximize": metrics.q_mean(), "constraints": list(TPR),
        "solver": Reduction("frank_wolfe", max_calls=30),
    },
    "rate as objective": {"maximize": gc.tpr(), "constraints": [gc.fpr() <= 0.1]},
    "black box": {"minimize": metrics.BlackBox(g_mean_loss, max_calls=300)},
    "black box of groups": {
        "minimize": metrics.BlackBox(g_mean_loss, max_calls=200), "constraints": list(TPR),
    },
}  # fmt: skip
FOUR = {
    "class error": {"constraints": [gc.class_error(3) <= 0.1]},
    "coverage": {"constraints": [gc.selection_rate(0) <= 0.2, gc.selection_rate(2) <= 0.3]},
    "each": {"constraints": [gc.each(gc.class_error(1), by="group") <= 0.5]},
    "gap": {"constraints": list(GAP)},
    "weights": {"constraints": [gc.class_error(0) <= 0.2], "weights": True},
    "training rows": {"constraints": list(GAP), "measure_on": "train"},
    "held-out rows": {"constraints": [gc.class_error(3) <= 0.1], "measure_on": "holdout"},
    "metric": {"maximize": metrics.min_recall()},
    "F-measure": {"maximize": metrics.f1_macro()},
    "metric under constraints": {
        "maximize": metrics.g_mean(), "constraints": [gc.class_error(3) <= 0.15],
    },
}  # fmt: skip
NUMBERS = {
    "gap of means": {"constraints": [gc.gap(gc.mean_prediction(), by="group") <= 0.4]},
    "losses": {"constraints": [gc.each(gc.mean_loss("squared"), by="group") <= 0.8]},
    "residuals": {
        "constraints": [gc.each(gc.mean_residual(), by="group") <= 0.05], "weights": True,
    },
    "share above": {"constraints": [gc.share_above(1.0) <= 0.1], "measure_on": "train"},
    "held-out rows": {
        "constraints": [gc.gap(gc.mean_prediction(), by="group") <= 0.4], "measure_on": "holdout",
    },
    "group shifts": {
        "constraints": [gc.gap(gc.mean_prediction(), by="group") <= 0.4], "group_shifts": True,
    },
    "forward": {
        "constraints": [gc.mean_residual() <= 0.05], "measure_on": "forward", "time": True,
    },
}  # fmt: skip
CASES = [
    f"{library}, {kind}, {name}"
    for library in LIBRARIES
    for kind, table in (("2 classes", TWO), ("4 classes", FOUR), ("numbers", NUMBERS))
    for name in table
]
CASES += [f"{library}, {kind}, gap" for library in LIBRARIES for kind in ("train", "ranks")]
LINEAR = {
    "logistic": lambda: gc.ConstrainedLogisticRegression(constraints=list(TPR)),
    "logistic, CBPR": lambda: gc.ConstrainedLogisticRegression(
        constraints=[gc.fnr() <= 0.6], constraint_solver=CBPR()
    ),
    "logistic, metric": lambda: gc.ConstrainedLogisticRegression(maximize=metrics.g_mean()),
    "logistic, black box": lambda: gc.ConstrainedLogisticRegression(
        minimize=metrics.BlackBox(g_mean_loss, max_calls=200)
    ),
    "ridge": lambda: gc.ConstrainedRidge(
        constraints=[gc.gap(gc.mean_prediction(), by="group") <= 0.3]
    ),
    "support vectors": lambda: gc.ConstrainedLinearSVC(constraints=[gc.fnr() <= 0.2]),
    "ranking": lambda: gc.ConstrainedAUCScorer(
        gc.gap(gc.auc(), by="group") <= 0.1, slack=0.25, n_steps=60
    ),
}
CASES += [f"linear, {name}" for name in LINEAR]


def fit_booster(library, kind, name):
    """Fit one case of a booster."""
    table = {"2 classes": TWO, "4 classes": FOUR, "numbers": NUMBERS}.get(kind, TWO)
    options, arguments = dict(table[name]), {"verbose": False} if library == "xgboost" else {}
    X, y, weights = numbers() if kind == "numbers" else rows(int(kind[0]) if kind in table else 2)
    if kind == "4 classes":
        X, y, weights = rows(4)
    if options.pop("weights", False):
        arguments["sample_weight"] = weights
    if options.pop("time", False):
        arguments["time"] = np.arange(len(y))
    if options.pop("checkpoint", False):
        arguments["checkpoint"] = Path(tempfile.mkdtemp()) / "fit.npz"
    if options.pop("stopping callback", False):
        arguments["constraint_callbacks"] = [lambda state: state.rounds >= 4]
    is_stopping = options.pop("stop", False)
    if options.pop("eval", False) or is_stopping:
        arguments["eval_set"] = [(X.iloc[:200], y[:200])]
        X, y = X.iloc[200:], y[200:]
    if is_stopping and library == "lightgbm":
        arguments["callbacks"] = [lightgbm.early_stopping(3, verbose=False)]
    if name == "data set":
        clean, labels, _ = rows(2, 300)
        arguments["datasets"] = {"clean": (clean, labels)}
    own = {"enable_categorical": True} if library == "xgboost" else {"verbose": -1}
    if is_stopping and library == "xgboost":
        own["early_stopping_rounds"] = 3
    kinds = REGRESSORS if kind == "numbers" else CLASSIFIERS
    model = kinds[library](
        n_estimators=10, learning_rate=0.3, max_depth=3, random_state=0, n_jobs=1, **own, **options
    )
    if kind == "ranks":
        X = X.drop(columns="group").assign(group=X["group"].cat.codes.astype(float))
        arguments.pop("verbose", None)
        fitted = fit_on_processes(model, X, y, n_processes=2, **arguments)
        return fitted, X
    return model.fit(X, y, **arguments), X


def fit_by_train(library):
    """Train a booster by the library's own function."""
    X, y, _ = rows(2)
    X["group"] = X["group"].cat.codes.astype(float)
    if library == "xgboost":
        matrix = xgboost.DMatrix(X, y)
        params = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.3, "nthread": 1}
        return gc.xgboost.train(
            params, matrix, 10, constraints=list(GAP), sensitive_features=X[["group"]]
        ), X
    params = {"objective": "binary", "max_depth": 3, "learning_rate": 0.3, "verbose": -1}
    params |= {"num_threads": 1, "seed": 0}
    data = lightgbm.Dataset(X, y, free_raw_data=False)
    return gc.lightgbm.train(params, data, 10, constraints=list(GAP)), X


def fit(case):
    """Fit one case of the table; return the model and its rows."""
    library, *others = case.split(", ")
    if library == "linear":
        X, y, _ = numbers() if others == ["ridge"] else rows(2)
        X, groups = X.drop(columns="group"), X[["group"]].astype(str)
        return LINEAR[", ".join(others)]().fit(X, y, sensitive_features=groups), X
    if others[0] == "train":
        return fit_by_train(library)
    return fit_booster(library, *others)


def digest(text):
    """First half of a SHA-256, in hexadecimal."""
    raw = text if isinstance(text, (bytes, bytearray)) else text.encode()
    return hashlib.sha256(raw).hexdigest()[:32]


def bits_of(model):
    """The bytes of a model's trees or coefficients."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    if isinstance(booster, xgboost.Booster):
        booster = booster.copy()
        booster.set_attr(**dict.fromkeys(booster.attributes()))
        return bytes(booster.save_raw("json"))
    booster = getattr(model, "booster_", model)
    if isinstance(booster, lightgbm.Booster):
        return booster.model_to_string().split("\nparameters:")[0].encode()
    return b"".join(np.ascontiguousarray(v).tobytes() for v in (model.coef_, model.intercept_))


FRAMES = (
    "constraint_report_", "group_report_", "cost_report_", "metric_report_", "blackbox_report_",
    "mixture_", "prefixes_", "period_report_", "group_shifts_", "small_groups_",
)  # fmt: skip


def fingerprint(case):
    """Digests of the trees, the decisions, the reports, the history, the verdicts and warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, X = fit(case)
    said = sorted({str(w.message) for w in caught if issubclass(w.category, UserWarning)})
    said = [one for one in said if "lets the group of a person" not in one]  # Once in a process.
    found = {"model": digest(bits_of(model)), "warnings": digest("\n".join(said))}
    is_booster = isinstance(model, (xgboost.Booster, lightgbm.Booster))
    if hasattr(model, "predict") and not is_booster and "randomised" not in case:
        seed = {"random_state": 0} if vars(model).keys() & {"mixture_", "prefixes_"} else {}
        decided = np.asarray(model.predict(X, **seed), np.float64)
        found["predictions"] = digest(decided.tobytes())
    for name in FRAMES:
        if (frame := getattr(model, name, None)) is not None:
            found[name] = digest(frame.to_csv())
    if (history := getattr(model, "history_", None)) is not None:
        found["history"] = digest(history.drop(columns="seconds", errors="ignore").to_csv())
    if (feasibility := getattr(model, "feasibility_", None)) is not None:
        found["feasibility"] = digest(str(feasibility))
    return found


@pytest.mark.parametrize("case", CASES)
def test_fit_is_the_recorded_one(case):
    table = json.loads(TABLE.read_text())
    if table["versions"] != versions():
        pytest.skip(f"recorded with {table['versions']}, this is {versions()}")
    assert fingerprint(case) == table["fits"][case]


if __name__ == "__main__":
    asked = sys.argv[1:]
    fits = {case: fingerprint(case) for case in CASES if not asked or asked[0] in case}
    TABLE.write_text(json.dumps({"versions": versions(), "fits": fits}, indent=1) + "\n")
    sys.stdout.write(f"{len(fits)} fits recorded\n")
