"""Rules on pair rates: what they cost in AUC, by the density of scores and by the square.

- linear: ``ConstrainedLogisticRegression`` on a9a by sex with defaults, in the set's own split.
- square: both proxies side by side in XGBoost (depth 4, 150 rounds at 0.1, four folds) on Adult's
  own split.

Sex is among the features of both.

Gaps on training rows are those that the rule bounds; those of boosters are out of fold. Test
figures choose nothing.

    python benchmarks/auc_proxies.py [linear square] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there.
"""

from __future__ import annotations

import argparse
import io
import lzma
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from metric_data import FOLDER
from result_file import Measurements, Part, add_parts
from sklearn.datasets import load_svmlight_file

from gbm_constrained import ConstrainedXGBClassifier, CrossFit, auc, cross_auc, gap, mean_rank
from gbm_constrained.data.rows import Rows
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPP


def bound_background(bound: float) -> list[Any]:
    """Bound the paper's difference of background-subgroup AUCs, of the whole data set."""
    women = {"sex": "Female"}
    difference = auc(negatives=women) - auc(positives=women)
    return [difference <= bound, difference >= -bound]


RULES: Mapping[str, Callable[[float], list[Any]]] = {
    "cross_auc": lambda b: [gap(cross_auc(), by="sex") <= b],
    "background": bound_background,
    "auc": lambda b: [gap(auc(), by="sex") <= b],
    "mean_rank": lambda b: [gap(mean_rank(), by="sex") <= b],
}
PROXIES = ("auto", "square")
# Figures that a prototype reached with the density and, in boosters, with the square.
PROTOTYPE = {"cross_auc": (0.9185, 0.9093), "auc": (0.9138, 0.8925)}
LINEAR_BARS = {"cross_auc": 0.893, "background": 0.895}
NAMES = ("rule", "bound", "proxy")
FIGURES = ("gap", "test_auc", "test_gap", "seconds")


class Split(NamedTuple):
    """Rows with their labels and the values of the group."""

    X: Any
    y: Any
    sex: Any

    def measure(self, scores: Any, rule: str) -> tuple[float, float]:
        """AUC, and the difference that a rule bounds, by exact tables of pairs."""
        constraints = [auc() >= 0.5, RULES[rule](0.5)[0]]
        rows = Rows(self.y, np.array([0, 1]), None, {"sex": self.sex})
        cells, compiled = compile_constraints(constraints, rows)
        statistics = Lagrangian(self.y, cells, compiled).at(scores).statistics()
        first, second = compiled.values(compiled.functionals(statistics))
        return float(first), float(second)


def read_a9a(name: str) -> Split:
    """Read rows of a9a; sex is in columns 72 and 73, counted from 1."""
    with lzma.open(FOLDER / f"{name}.xz") as file:
        X, y = load_svmlight_file(io.BytesIO(file.read()), n_features=123)
    is_female = X[:, [71]].toarray().ravel() > 0
    return Split(X, (y > 0).astype(int), np.where(is_female, "Female", "Male"))


def read_adult() -> tuple[Split, Split]:
    """Read Adult in its own split, with the columns as categories."""
    frame = pd.read_parquet(FOLDER / "adult.parquet")
    X = frame.drop(columns=["income", "split"])
    text = X.select_dtypes(exclude="number").columns
    X = X.astype(dict.fromkeys(text, "category"))
    y = frame["income"].astype(str).str.contains(">50K").to_numpy().astype(int)
    sex, is_train = X["sex"].astype(str).to_numpy(), (frame["split"] == "train").to_numpy()
    train, test = (Split(X[part], y[part], sex[part]) for part in (is_train, ~is_train))
    return train, test


def fit_linear(train: Split, test: Split, rule: str, bound: float, proxy: str) -> dict[str, float]:
    """Fit the linear model; its gap is that of its training rows."""
    started = time.perf_counter()
    model = ConstrainedLogisticRegression(
        constraints=RULES[rule](bound), constraint_solver=ABPP(proxy=proxy), max_iter=300
    )
    model.fit(train.X, train.y, sensitive_features={"sex": train.sex})
    seconds = time.perf_counter() - started
    _, on_training = train.measure(model.decision_function(train.X), rule)
    return figures(on_training, test, model.decision_function(test.X), rule, seconds)


def fit_booster(
    train: Split, test: Split, rule: str, bound: float, proxy: str
) -> dict[str, float]:
    """Fit XGBoost; its gap is that of the scores out of fold."""
    started = time.perf_counter()
    model = ConstrainedXGBClassifier(
        constraints=RULES[rule](bound), solver=ABPP(proxy=proxy), measure_on=CrossFit(4),
        n_estimators=150, max_depth=4, learning_rate=0.1, tree_method="hist",
        enable_categorical=True, n_jobs=1, random_state=0,
    )  # fmt: skip
    model.fit(train.X, train.y, sensitive_features={"sex": train.sex})
    seconds = time.perf_counter() - started
    out_of_fold = float(model.constraint_report_["held_out"].iloc[0])
    scores = model.predict(test.X, output_margin=True).astype(float)
    return figures(out_of_fold, test, scores, rule, seconds)


def figures(
    gap_of_rule: float, test: Split, scores: Any, rule: str, seconds: float
) -> dict[str, float]:
    """Figures of a fit, by name."""
    found = gap_of_rule, *test.measure(scores, rule), seconds
    return dict(zip(FIGURES, found, strict=True))


def show(rule: str, bound: float, proxy: str, found: Mapping[str, float], note: str) -> None:
    """Print a line."""
    print(
        f"{rule:10s} <= {bound:<5g} {proxy:6s} gap {found['gap']:7.4f}  test AUC "
        f"{found['test_auc']:.4f} @ {found['test_gap']:.4f}  {found['seconds']:5.0f} s  {note}",
        flush=True,
    )


def linear(results: Measurements) -> None:
    """Print the linear model's table."""
    train, test = read_a9a("a9a"), read_a9a("a9a.t")
    for rule in RULES:
        for proxy in PROXIES:
            measure = partial(fit_linear, train, test, rule, 0.01, proxy)
            found = results.once(measure, rule, 0.01, proxy)
            bar = LINEAR_BARS.get(rule) if proxy == "auto" else None
            note = f"bar: gap <= .0105, test AUC >= {bar}" if bar else ""
            show(rule, 0.01, proxy, found, note)


def square(results: Measurements) -> None:
    """Print the boosters' table: the density and the square surrogate at the same bounds."""
    train, test = read_adult()
    for rule, prototype in PROTOTYPE.items():
        reached = []
        for proxy, of_prototype in zip(PROXIES, prototype, strict=True):
            measure = partial(fit_booster, train, test, rule, 0.01, proxy)
            reached.append(found := results.once(measure, rule, 0.01, proxy))
            show(rule, 0.01, proxy, found, f"prototype {of_prototype}")
        more = reached[0]["test_auc"] - reached[1]["test_auc"]
        print(f"{rule}: the density has {more:+.4f} AUC (bar: +.005)", flush=True)


PARTS = {
    "linear": Part(linear, NAMES, FIGURES),
    "square": Part(square, NAMES, FIGURES),
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "auc")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.parts:
        part = PARTS[name]
        print(f"== {name}", flush=True)
        part.run(Measurements(given.output / f"{name}.csv", part.names, part.figures))


if __name__ == "__main__":
    main()
