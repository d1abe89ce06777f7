"""Guarantees: how often thresholds that were certified on a sample break the rule in truth.

Scores are Gaussian in each class and group, so that the rates of every threshold are known. Each
repetition draws rows, chooses thresholds on them by a procedure of
`gbm_constrained.statistics.order_statistics` and by the plain rule (the most permissive threshold
that holds on the sample), and looks up what they do in the population. "violated" is the frequency
of thresholds that break the rule, with its Clopper-Pearson interval; where n is too small for a
certificate, none is given and none is broken.

- umbrella: fnr <= b with probability 1 - delta (Neyman-Pearson umbrella).
- expected: fnr <= b in expectation (conformal risk control): "rate" is to be b at most.
- gap: gap(fpr, by group) <= b with probability 1 - delta, by the exact test of two rates along a
  fixed sequence of thresholds. "violated" stays below delta: all tests up to the first wrong one
  have to pass.
- classes: three ordered classes, the errors of the first and the last bounded at once, by
  class_error p-values along one fixed sequence for each of the two thresholds.
- fitted, mean and fitted, high: the whole of ``ConstrainedLGBMClassifier`` with fpr <= b and
  ``guarantee="expected"`` or ``"high_probability"``, cross-fitted, ten rounds, the score being its
  one feature: the decision is a function of it, whose rates are integrals. "plain" is the same
  without a guarantee.
- fitted, coverage and fitted, mean: the whole of ``ConstrainedLGBMRegressor`` with
  ``coverage() >= 1 - b``, or ``mean_prediction(range=(-0.5, 1.5)) <= b``, and
  ``guarantee="high_probability"``, by a holdout. Targets are uniform about the one feature, so
  that means are integrals. "rate" is the share that is not covered, or the mean prediction, and
  "type II" the mean absolute error.

The table "margin" has real tables, whose population is all rows but the 3000 that a fit is given:
the share of models that meet the constraint there, the share that the interval there refutes, and
the mean value and error.

    python benchmarks/guarantees.py [guarantees] [margin] [--repetitions 1000] [--delta 0.05]
        [--rule "gap 0.05"] [--splits 8] [--output FOLDER]

Each line is a row of the CSV, and is not repeated while that is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from data_sets import BINARY, load
from result_file import Figures, Table, at_least, make_parser, run_tables
from scipy.stats import norm

import gbm_constrained as gbc
from gbm_constrained.constraints.rates import (
    class_error,
    coverage,
    fnr,
    fpr,
    gap,
    mean_prediction,
    tpr,
)
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import clopper_pearson, learn_then_test
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.order_statistics import expected_bounds, umbrella_threshold
from gbm_constrained.statistics.p_values import constraint_p_values

POSITIVE, SHIFT, SECOND = 0.3, 0.6, 0.4  # class share, group shift, group share


class Outcome(NamedTuple):
    """What a chosen threshold does in the population; NaN where none was certified."""

    violated: bool
    rate: float
    type_2: float


NONE = Outcome(False, math.nan, math.nan)


class Population:
    """Two classes, two groups; scores N(2 y + shift g, 1)."""

    @staticmethod
    def draw(rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
        y, g = (rng.random(n) < POSITIVE).astype(int), (rng.random(n) < SECOND).astype(int)
        return y, g, 2.0 * y + SHIFT * g + rng.normal(size=n)

    @staticmethod
    def above(t: Any, y: int) -> Any:
        """``P(score > t | y)``, averaged over groups."""
        return (1 - SECOND) * norm.sf(t - 2 * y) + SECOND * norm.sf(t - 2 * y - SHIFT)

    @classmethod
    def missing(cls, t: float, bound: float) -> Outcome:
        rate = 1.0 - cls.above(t, 1)
        return Outcome(rate > bound, rate, cls.above(t, 0))

    @classmethod
    def gap(cls, t: float, bound: float) -> Outcome:
        rate = norm.sf(t - SHIFT) - norm.sf(t)
        return Outcome(rate > bound, rate, 1.0 - cls.above(t, 1))


def rows_of(y: Any, n_classes: int = 2, **columns: Any) -> Rows:
    return Rows(y, np.arange(n_classes), None, dict(columns))


def umbrella(rng: Any, n: int, bound: float, delta: float) -> tuple[Outcome, Outcome]:
    y, _, scores = Population.draw(rng, n)
    missed = np.sort(-scores[y == 1])  # a positive is missed where -score > -threshold
    plain = Population.missing(-missed[missed.size - 1 - int(bound * missed.size)], bound)
    try:
        certified = Population.missing(-umbrella_threshold(missed, bound, delta), bound)
    except ValueError:
        certified = NONE
    return certified, plain


def expected(rng: Any, n: int, bound: float, delta: float) -> tuple[Outcome, Outcome]:
    y, _, scores = Population.draw(rng, n)
    # Just below each positive: the thresholds at which the miss rate changes.
    grid = np.nextafter(np.sort(scores[y == 1]), -np.inf)
    cells, compiled = compile_constraints([fnr() <= bound], rows_of(y))
    counts = CellCounts.at_thresholds(cells, scores, grid)
    rates = functionals_of(compiled, counts)[:, 0]
    outcomes = []
    for allowed in (expected_bounds(compiled, counts)[:, 0], bound):
        met = np.flatnonzero(rates <= allowed + 1e-12)
        outcomes.append(Population.missing(grid[met[-1]], bound) if met.size else NONE)
    return outcomes[0], outcomes[1]


# The gap is larger at each threshold than at the one before, by less than its standard error.
GRID = np.linspace(4.0, 0.5, 351)


def groups(rng: Any, n: int, bound: float, delta: float) -> tuple[Outcome, Outcome]:
    y, g, scores = Population.draw(rng, n)
    rule = gap(fpr(), by="g", min_group_size=1) <= bound
    cells, compiled = compile_constraints([rule], rows_of(y, g=g))
    counts = CellCounts.at_thresholds(cells, scores, GRID)
    certified = learn_then_test(constraint_p_values(compiled, counts).max(axis=-1)[None], delta)[0]
    found = functionals_of(compiled, counts)
    met = np.logical_and.accumulate(np.ptp(found, axis=1) <= bound)
    outcomes = [
        Population.gap(GRID[np.flatnonzero(which)[-1]], bound) if which.any() else NONE
        for which in (certified, met)
    ]
    return outcomes[0], outcomes[1]


CENTRES, SHARES = np.array([0.0, 2.5, 5.0]), (0.6, 0.25, 0.15)


def classes(rng: Any, n: int, bound: float, delta: float) -> tuple[Outcome, Outcome]:
    """Predicts class 0 below one threshold and class 2 above another."""
    y = rng.choice(3, n, p=SHARES)
    scores = CENTRES[y] + rng.normal(size=n)
    steps = np.linspace(0.0, 2.0, 41)
    p, met = [], []
    for k, grid in ((0, 2.5 - steps), (2, 2.5 + steps)):
        cells, compiled = compile_constraints([class_error(k) <= bound], rows_of(y, 3))
        decided = [np.where(scores > t, 2 if k else 1, 1 if k else 0) for t in grid]
        counts = [CellCounts.of(cells, d) for d in decided]
        both = CellCounts(*(
            np.stack([getattr(c, name) for c in counts]) for name in ("weight", "square", "count")
        ))  # fmt: skip
        p.append(constraint_p_values(compiled, both).max(axis=-1))
        met.append(np.logical_and.accumulate(functionals_of(compiled, both)[:, 0] <= bound))
    outcomes = []
    for which in (learn_then_test(p, delta), np.array(met)):
        if not which[:, 0].all():
            outcomes.append(NONE)
            continue
        low, high = (steps[np.flatnonzero(w)[-1]] for w in which)
        errors = norm.sf(2.5 - low), norm.cdf(2.5 + high - 5.0)
        middle = norm.cdf(-low) + norm.sf(high)
        outcomes.append(Outcome(max(errors) > bound, max(errors), middle))
    return outcomes[0], outcomes[1]


def fitted(
    make: Callable[..., Any], draw: Callable[..., Any], judge: Callable[..., Outcome], certify: Any
) -> Experiment:
    """Make the experiment of a whole fit with a guarantee and without.

    A model is made under a bound and a guarantee, fitted to rows that are drawn, and judged.
    """

    def experiment(rng: Any, n: int, bound: float, delta: float) -> tuple[Outcome, Outcome]:
        x, y = draw(rng, n)
        outcomes = []
        for asked in (certify(delta), None):
            model = make(bound, asked)
            try:
                model.fit(x[:, None], y)
            except ValueError:  # too few rows
                outcomes.append(NONE)
                continue
            is_certified = not isinstance(asked, gbc.HighProbability) or (
                model.feasibility_.status == "met"
            )
            outcomes.append(judge(model, bound) if is_certified else NONE)
        return outcomes[0], outcomes[1]

    return experiment


def make_classifier(bound: float, guarantee: Any) -> Any:
    """Bound the false positive rate."""
    return gbc.ConstrainedLGBMClassifier(
        constraints=[fpr() <= bound], guarantee=guarantee, measure_on="crossfit",
        n_estimators=10, num_leaves=7, n_jobs=1, verbose=-1, random_state=0,
    )  # fmt: skip


def draw_scores(rng: Any, n: int) -> tuple[Any, Any]:
    """Draw scores, which are the one feature, and labels."""
    y, _, scores = Population.draw(rng, n)
    return scores, y


def judge_classifier(model: Any, bound: float) -> Outcome:
    """Integrate the rates of a decision over the axis of scores."""
    axis = np.linspace(-6.0, 10.0, 4001)
    chosen = model.predict(axis[:-1, None] + np.diff(axis)[:, None] / 2) == 1
    selected = [-np.diff(Population.above(axis, label))[chosen].sum() for label in (0, 1)]
    return Outcome(selected[0] > bound, selected[0], 1.0 - selected[1])


NOISE = 0.3  # Targets are uniform in the feature -+ this.


def draw_targets(rng: Any, n: int) -> tuple[Any, Any]:
    """Draw the one feature, and targets about it."""
    x = rng.random(n)
    return x, x + rng.uniform(-NOISE, NOISE, n)


def regression(rule: Callable[[float], Any], *, is_covered: bool) -> Experiment:
    """Make the experiment of a regressor, which is judged by its coverage or its mean."""

    def make(bound: float, guarantee: Any) -> Any:
        return gbc.ConstrainedLGBMRegressor(
            constraints=[rule(bound)], guarantee=guarantee, measure_on="holdout",
            n_estimators=10, learning_rate=0.3, num_leaves=7, n_jobs=1, verbose=-1,
            random_state=0,
        )  # fmt: skip

    def judge(model: Any, bound: float) -> Outcome:
        features = (np.arange(2000) + 0.5) / 2000
        predicted = model.predict(features[:, None])
        error = predicted - features
        inside = np.clip(error, -NOISE, NOISE)
        missed = np.mean((NOISE - inside) / (2 * NOISE))
        # The mean of |u - e| over u in [-NOISE, NOISE].
        of_inside = (NOISE**2 + inside**2) / (2 * NOISE)
        loss = np.mean(of_inside + np.abs(error - inside))
        rate = missed if is_covered else np.mean(predicted)
        return Outcome(rate > bound, rate, loss)

    return fitted(make, draw_targets, judge, gbc.HighProbability)


classifier = partial(fitted, make_classifier, draw_scores, judge_classifier)
Experiment = Callable[[Any, int, float, float], tuple[Outcome, Outcome]]
EXPERIMENTS: dict[str, tuple[Experiment, float]] = {
    "umbrella 0.05": (umbrella, 0.05),
    "umbrella 0.01": (umbrella, 0.01),
    "expected 0.05": (expected, 0.05),
    "gap 0.05": (groups, 0.05),
    "classes 0.1": (classes, 0.1),
    "fitted, mean 0.03": (classifier(lambda delta: gbc.Expected()), 0.03),
    "fitted, high 0.03": (classifier(gbc.HighProbability), 0.03),
    "fitted, coverage 0.2": (regression(lambda b: coverage() >= 1 - b, is_covered=True), 0.2),
    "fitted, mean 0.45": (
        regression(lambda b: mean_prediction(range=(-0.5, 1.5)) <= b, is_covered=False),
        0.45,
    ),
}


CHOICES = ("certified", "plain")


def repeated(name: str, n: int, repetitions: int, delta: float) -> Figures:
    """Count what the thresholds of both choices do in the population.

    That is repetitions that break the rule, means over those that have a threshold, and those
    without.
    """
    experiment, bound = EXPERIMENTS[name]
    rng, start = np.random.default_rng(n), time.perf_counter()
    pairs = [experiment(rng, n, bound, delta) for _ in range(repetitions)]
    found = {"seconds": time.perf_counter() - start}
    for i, choice in enumerate(CHOICES):
        table = pd.DataFrame([pair[i] for pair in pairs], columns=Outcome._fields, dtype=float)
        found[f"{choice}_violated"] = table["violated"].sum()
        found[f"{choice}_mean_rate"] = table["rate"].mean()
        found[f"{choice}_mean_type_2"] = table["type_2"].mean()
        found[f"{choice}_none"] = float(table["rate"].isna().sum())
    return found


TABLES = ("adult", "bank", "compas")
ASKED: dict[str, Any] = {
    "None": None,
    "Margin(1)": gbc.Margin(1.0),
    "Margin(2)": gbc.Margin(2.0),
    "high_probability": "high_probability",
}
BOUNDED: dict[str, Callable[[str], Any]] = {
    "fnr() <= 0.25": lambda group: fnr() <= 0.25,
    "gap(tpr()) <= 0.1": lambda group: gap(tpr(), by=group) <= 0.1,
}


def aimed(constraint: str, guarantee: str, name: str, split: int) -> Figures:
    """Fit 3000 rows of a table under a constraint, and measure the model on all others."""
    table, rows = BINARY[name], load(name)
    bounded = BOUNDED[constraint](table.two[0])
    order = np.random.default_rng(split).permutation(len(rows.y))
    train, new = order[:3000], order[3000:]
    model = gbc.ConstrainedLGBMClassifier(
        constraints=[bounded], guarantee=ASKED[guarantee], n_estimators=100, n_jobs=1,
        num_leaves=table.tree["num_leaves"], verbose=-1, random_state=0,
    )  # fmt: skip
    model.fit(rows.X[train], rows.y[train], sensitive_features=rows.groups.iloc[train])
    found = gbc.audit(
        model, rows.X[new], rows.y[new], [bounded], sensitive_features=rows.groups.iloc[new]
    ).frame.iloc[0]
    return {
        "met": float(found["value"] <= bounded.bound),
        "refuted": float(found["low"] > bounded.bound),
        "value": found["value"],
        "error": float(np.mean(model.predict(rows.X[new]) != rows.y[new])),
    }


def average(found: pd.DataFrame) -> pd.DataFrame:
    """Average over tables and splits."""
    by_case = found.groupby(["constraint", "guarantee"], sort=False)
    return by_case[["met", "refuted", "value", "error"]].mean().round(3)


FORM = "{:20} {:>6} {:10} {:>8} {:>16} {:>10} {:>8} {:>6} {:>6}"


def describe(found: pd.DataFrame, name: str, n: int, repetitions: int, delta: float) -> Any:
    """Write a line for each choice, with Clopper and Pearson's interval of the frequency."""
    figures, lines = found.iloc[0], []
    for choice in CHOICES:
        broken, none = figures[f"{choice}_violated"], figures[f"{choice}_none"]
        low, high = clopper_pearson(int(broken), repetitions)
        lines.append(FORM.format(
            name, n, choice, f"{broken / repetitions:.3f}", f"[{low:.3f}, {high:.3f}]",
            f"{figures[f'{choice}_mean_rate']:.4f}", f"{figures[f'{choice}_mean_type_2']:.3f}",
            f"{none / repetitions:.2f}", f"{figures['seconds']:.1f}",
        ))  # fmt: skip
    return {"lines": "\n".join(lines)}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--repetitions", type=at_least(1), default=1000)
    parser.add_argument("--delta", type=float, default=0.05)
    names: dict[str, Any] = {"rule": EXPERIMENTS, "rows": (300, 1000, 10000)}
    heading = FORM.format(
        "rule", "n", "choice", "violated", "interval", "mean rate", "type II", "none", "s"
    )
    tables = {
        "guarantees": Table(repeated, names, "{lines}", describe, heading=heading),
        "margin": Table(
            aimed,
            {"constraint": BOUNDED, "guarantee": ASKED, "table": TABLES, "split": range(8)},
            "{constraint:18} {guarantee:16} {table:8} met {met:.2f}, refuted {refuted:.2f}, "
            "value {value:.4f}, error {error:.4f}",
            summary=average,
        ),
    }

    def prepare(args: Any) -> None:
        if not 0.0 < args.delta < 1.0:
            parser.error(f"--delta must lie strictly between 0 and 1, got {args.delta:g}.")
        names.update(repetitions=(args.repetitions,), delta=(args.delta,))

    run_tables(tables, "", parser, prepare, rule=EXPERIMENTS, split=at_least(1))


if __name__ == "__main__":
    main()
