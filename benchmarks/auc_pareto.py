"""Pareto fronts of AUC and fairness: Figures 1 to 4 of the source paper, with boosters.

Three sets: a9a by sex, bank by age (25 to 60 or not) and COMPAS by race (Caucasian or not). The
paper's COMPAS has 11,757 rows, this one 7,214. Rows are split 60/20/20, those of a9a as they come
with a fifth of the training rows for validation. Every learner is fitted at several settings. At
each bound the fit of largest validation AUC is taken among those whose gap on validation rows is
within the bound, and test rows measure it.

- linear, units: the level-set method with a linear score or ten sigmoid units, at several kappa.
- lagrangian: `ConstrainedLogisticRegression`, a linear score under a proxy-Lagrangian, whose
  multipliers move on the true gaps and whose gradients see a smooth stand-in.
- xgboost, lightgbm: 100 rounds at 0.05, at several bounds, fewer of them on bank and a9a.
- affine: an affine change of the linear scores of one group, which needs the group at prediction.
- correlation: a linear score with the correlation of score and group as a penalty on the logistic
  loss, for `mean_rank` only.
"""

from __future__ import annotations

import io
import itertools
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from auc_affine import choose
from auc_data import FOLDER, load_compas, make, measure_pairs
from numpy.typing import NDArray
from result_file import Measurements
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from gbm_constrained import auc, cross_auc, gap, mean_rank
from gbm_constrained.linear_model import ConstrainedAUCScorer, ConstrainedLogisticRegression

SETS = ("compas", "bank", "a9a")
RATES = {"mean_rank": mean_rank, "cross_auc": cross_auc, "auc": auc}
BOUNDS = (0.1, 0.05, 0.02, 0.01)
FEWER_BOUNDS = {"bank": (0.05, 0.02), "a9a": (0.05, 0.02)}  # Of what is fitted to large sets.
KAPPAS = (3.0, 0.6, 0.3, 0.1, 0.03)
PENALTIES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
N_SEEDS = 5
LEARNERS = ("linear", "units", "lagrangian", "affine", "correlation", "xgboost", "lightgbm")
NAMES = ("set", "metric", "learner", "setting", "seed")
FIGURES = ("validation_auc", "validation_gap", "test_auc", "test_gap")
BOOSTER = {"n_estimators": 100, "learning_rate": 0.05}
FIRST = "a"  # The group whose rates less the other's are the gap.
WOMAN = 71  # Column of women in a9a, from 0.
Floats = NDArray[np.float64]
Rank = Callable[[Floats, NDArray[np.str_]], Floats]


class Part(NamedTuple):
    """Standardised features, labels of 0 and 1, and groups of rows."""

    X: Floats
    y: NDArray[np.int64]
    group: NDArray[np.str_]


def read(name: str) -> tuple[Floats, NDArray[np.int64], NDArray[np.bool_]]:
    """Read features, labels, and which rows are in the first group."""
    if name == "compas":
        X, y, race = load_compas()
        return _encode(X), y, race == "Caucasian"
    if name == "bank":
        frame = pd.read_parquet(FOLDER / "bank.parquet")
        y = (frame["y"] == "yes").to_numpy().astype(np.int64)
        return _encode(frame.drop(columns="y")), y, frame["age"].between(25, 60).to_numpy()
    parts = [_read_a9a(file) for file in ("a9a.xz", "a9a.t.xz")]
    X, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    return X, y, X[:, WOMAN] == 1.0


def _encode(X: pd.DataFrame) -> Floats:
    return np.asarray(pd.get_dummies(X).to_numpy(np.float64))


def _read_a9a(file: str) -> tuple[Floats, NDArray[np.int64]]:
    with lzma.open(FOLDER / file) as stream:
        X, y = load_svmlight_file(io.BytesIO(stream.read()), n_features=123)
    return X.toarray(), (y > 0).astype(np.int64)


def split(name: str, seed: int) -> tuple[Part, Part, Part]:
    """Split a set into training, validation and test rows."""
    X, y, is_first = read(name)
    X, group = StandardScaler().fit_transform(X), np.where(is_first, FIRST, "b")
    if name == "a9a":
        rest, test = np.split(np.arange(y.size), [32_561])
        train, validation = train_test_split(rest, test_size=0.2, random_state=seed)
    else:
        rest, test = train_test_split(np.arange(y.size), test_size=0.2, random_state=seed)
        train, validation = train_test_split(rest, test_size=0.25, random_state=seed)
    first, second, third = (Part(X[r], y[r], group[r]) for r in (train, validation, test))
    return first, second, third


def fit(learner: str, metric: str, setting: float, train: Part, validation: Part) -> Rank:
    """Fit a learner, and return what ranks rows of given groups."""
    groups = pd.DataFrame({"group": train.group})
    rule = [gap(RATES[metric](), by="group") <= min(setting, 1.0)]
    if learner in ("lagrangian", "xgboost", "lightgbm"):
        # A rule that never binds leaves the plain fit, which needs no folds.
        binding = rule if setting < 1.0 else []
        model = (
            ConstrainedLogisticRegression(constraints=binding)
            if learner == "lagrangian"
            else make(learner, binding, **BOOSTER)
        )
        model.fit(train.X, train.y, sensitive_features=groups)
        return lambda X, group: model.predict_proba(X)[:, 1]
    if learner == "correlation":
        w = fit_correlation(train, setting)
        return lambda X, group: X @ w
    if learner == "affine":
        plain = ConstrainedAUCScorer().fit(train.X, train.y)
        margin, is_first = plain.decision_function(validation.X), validation.group == FIRST
        slope, shift, _ = choose(margin / margin.std(), validation.y, is_first, metric, setting)
        shift = shift * margin.std()
        return lambda X, group: np.where(
            group == FIRST,
            slope * plain.decision_function(X) + shift,
            plain.decision_function(X),
        )
    scorer = ConstrainedAUCScorer(
        rule, hidden=10 if learner == "units" else 0, slack=max(setting - 1.0, 0.0), n_steps=1000
    )
    scorer.fit(train.X, train.y, sensitive_features=groups)
    return lambda X, group: scorer.decision_function(X)


def fit_correlation(train: Part, penalty: float) -> Floats:
    """Fit a linear score to the logistic loss and the absolute correlation with the group."""
    start = np.full(train.X.shape[1] + 1, 1e-3)
    objective = correlation_objective(train, penalty)
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B").x[:-1])


def correlation_objective(train: Part, penalty: float) -> Callable[[Floats], tuple[float, Floats]]:
    """Make the penalised loss of coefficients and an intercept, with its gradient."""
    X = np.column_stack([train.X, np.ones(train.y.size)])
    sign, centred = 2.0 * train.y - 1.0, (train.group == FIRST) - np.mean(train.group == FIRST)
    centred = centred / centred.std()

    def objective(w: Floats) -> tuple[float, Floats]:
        score = X @ w
        apart, spread = score - score.mean(), max(score.std(), 1e-9)
        correlation = np.mean(apart * centred) / spread
        size = np.sqrt(correlation**2 + 1e-8)  # Smooth at zero.
        loss = np.mean(np.logaddexp(0.0, -sign * score)) + penalty * size + 1e-4 * w @ w
        of_score = centred / spread - correlation * apart / spread**2
        slope = -sign * expit(-sign * score) + penalty * correlation / size * of_score
        return float(loss), X.T @ slope / sign.size + 2e-4 * w

    return objective


def measure(name: str, metric: str, learner: str, setting: float, seed: int) -> dict[str, float]:
    """Fit a learner at one setting, and measure it on validation and test rows."""
    train, validation, test = split(name, seed)
    rank = fit(learner, metric, setting, train, validation)
    found = {}
    for part, rows in (("validation", validation), ("test", test)):
        pairs = measure_pairs(rows.y, rank(rows.X, rows.group), rows.group)
        found |= {f"{part}_auc": pairs["test_auc"], f"{part}_gap": abs(pairs[metric])}
    return found


def settings(name: str, learner: str, metric: str) -> Sequence[float]:
    """List what a learner is fitted at on a set; nothing where it cannot change the gap."""
    bounds = FEWER_BOUNDS.get(name, BOUNDS)
    if learner in ("linear", "units"):
        return KAPPAS
    if learner == "affine":
        return () if metric == "auc" else bounds
    if learner == "correlation":
        return PENALTIES if metric == "mean_rank" else ()
    return (1.0, *bounds)


def print_pareto(path: Path, sets: Sequence[str], n_seeds: int) -> None:
    """Print the test AUC @ test gap at each bound, and draw the fronts."""
    results = Measurements(path, NAMES, FIGURES)
    for name in sets:
        records = list(measure_all(results, name, n_seeds))
        front = pd.DataFrame(find_fronts(pd.DataFrame(records)))
        print(front.round(4).to_string(index=False), flush=True)
        draw(front, name)


def measure_all(results: Measurements, name: str, n_seeds: int) -> Iterator[Mapping[str, Any]]:
    """Measure all fits of a set, one seed after the other."""
    for seed, learner, metric in itertools.product(range(n_seeds), LEARNERS, RATES):
        for setting in settings(name, learner, metric):
            named = (name, metric, learner, setting, seed)
            found = results.once(partial(measure, *named), *named)
            yield dict(zip(NAMES, named, strict=True)) | dict(found)


def find_fronts(records: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Choose a fit on validation rows for each bound and seed; means and errors over seeds."""
    for (metric, learner), family in records.groupby(["metric", "learner"], sort=False):
        for bound in BOUNDS:
            feasible = family[family["validation_gap"] <= bound]
            if feasible.empty:
                continue
            best = feasible.loc[feasible.groupby("seed")["validation_auc"].idxmax()]
            line = {"metric": metric, "learner": learner, "bound": bound, "seeds": len(best)}
            for figure in ("test_auc", "test_gap"):
                line |= {figure: best[figure].mean(), f"{figure}_error": best[figure].sem()}
            yield line


def draw(front: pd.DataFrame, name: str) -> None:
    """Draw the fronts of a set where all seeds have a fit, one panel for each metric."""
    import matplotlib.pyplot as plt

    from gbm_constrained.plotting import COLOURS

    colours = dict(zip(LEARNERS, COLOURS, strict=False))
    figure, axes = plt.subplots(1, len(RATES), figsize=(13, 4.2), layout="constrained")
    for ax, metric in zip(axes, RATES, strict=True):
        drawn = front[(front["metric"] == metric) & (front["seeds"] == front["seeds"].max())]
        for learner, points in drawn.groupby("learner", sort=False):
            ax.errorbar(
                points["test_gap"], points["test_auc"], xerr=points["test_gap_error"],
                yerr=points["test_auc_error"], fmt="o-", ms=4, lw=1.2, capsize=2,
                color=colours[learner], label=learner,
            )  # fmt: skip
        ax.set(title=metric, xlabel=f"gap of {metric} on test rows", ylabel="AUC on test rows")
    # Below the panels a legend covers no error bars, and names learners of one panel only.
    by_label = {
        label: line
        for ax in axes
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        by_label.values(), by_label.keys(), loc="outside lower center", ncols=len(by_label),
        frameon=False,
    )  # fmt: skip
    folder = Path(__file__).parents[1] / "docs" / "figures"
    figure.savefig(folder / f"auc_pareto_{name}.png", dpi=130)
    plt.close(figure)
