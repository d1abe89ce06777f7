"""Choice among the levels of a level-set search, by the constraints themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Bool, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.linear_model.pair_sets import PairSample, PairSets
from gbm_constrained.solvers.level_set import Level
from gbm_constrained.solvers.stochastic_mirror_descent import SaddleProblem, ScoreFunction

LEAST_SLOPE = 1e-3  # Least slope of log-odds in standardised scores, so that they keep the order.


class Measured(NamedTuple):
    """AUC and constraints on some rows.

    Parameters
    ----------
    auc : AUC of all rows.
    values : (n_constraints,). What each constraint bounds.
    violation : Largest violation of a constraint; one that is undefined on the rows has none.
    """

    auc: float
    values: Float
    violation: float


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Levels of a search, measured on the rows that choose one of them.

    Parameters
    ----------
    levels : The levels.
    on_validation : What each level is worth on validation rows.
    chosen : Position of the chosen level: the one of largest AUC among those that meet all
        constraints there, or else of least violation.
    """

    levels: Sequence[Level]
    on_validation: Sequence[Measured]
    chosen: int

    @classmethod
    def of(
        cls, levels: Sequence[Level], score: ScoreFunction, sets: PairSets, rows: PairSample
    ) -> LevelTable:
        """Measure all levels on validation rows, and choose one."""
        found = []
        for level in levels:
            found.append(measure(sets, rows, score.scores(level.point.parameters, rows.X)))
        chosen = min(range(len(found)), key=lambda i: _rank(found[i]))
        return cls(levels, found, chosen)

    @property
    def is_met(self) -> bool:
        """Whether the chosen level meets all constraints on the validation rows."""
        return self.on_validation[self.chosen].violation <= ROUNDING

    def history(self, names: Sequence[str]) -> pd.DataFrame:
        """Tabulate the levels; `names` are those of the constraints."""
        levels = self.levels
        columns: dict[str, Any] = {
            "level": [level.number for level in levels],
            "proximal_point": [level.proximal_point for level in levels],
            "r": [level.level for level in levels],
            "upper_bound": [level.upper_bound for level in levels],
            "rows": [level.n_rows for level in levels],
            "auc": [found.auc for found in self.on_validation],
            "violation": [found.violation for found in self.on_validation],
            "chosen": [i == self.chosen for i in range(len(levels))],
        }
        for j, name in enumerate(names):
            columns[f"value[{name}]"] = [found.values[j] for found in self.on_validation]
        return pd.DataFrame(columns)


def measure(sets: PairSets, rows: PairSample, scores: Float) -> Measured:
    """Measure AUC and constraints on some rows."""
    values = sets.values(rows, scores)
    signs = np.array([constraint.sign for constraint in sets.compiled.constraints])
    violation = np.nan_to_num(signs * (values - sets.compiled.bounds)).max(initial=0.0)
    return Measured(sets.auc(rows, scores), values, max(float(violation), 0.0))


def surrogate_columns(
    levels: Sequence[Level], problem: SaddleProblem, rows: tuple[Float, Float]
) -> dict[str, list[float]]:
    """Compute the surrogate objective of each level, and the largest violation of its rules.

    Parameters
    ----------
    levels : The levels.
    problem : Functions and score.
    rows : Features and density ratios of the training rows.
    """
    X, ratios = rows
    surrogate = problem.surrogate
    objective, violation = [], []
    for level in levels:
        scores = problem.score.scores(level.point.parameters, X)
        values = surrogate.values(surrogate.moments(scores, ratios)) - surrogate.limits
        objective.append(float(values[0]))
        violation.append(float(values[1:].max(initial=-np.inf)))
    return {"surrogate_objective": objective, "surrogate_violation": violation}


def report_frame(
    sets: PairSets, multipliers: Float, training: Measured | None, validation: Measured
) -> pd.DataFrame:
    """Tabulate each constraint: bound, values, multiplier, and whether it is met."""
    compiled = sets.compiled
    nothing = np.full(len(compiled.constraints), np.nan)
    return pd.DataFrame(
        {
            "constraint": compiled.names,
            "bound": compiled.bounds,
            "train": nothing if training is None else training.values,
            "held_out": validation.values,
            "multiplier": compiled.totals(multipliers),
            "satisfied": compiled.is_satisfied(validation.values),
        }
    )


def warn_of_violation(sets: PairSets, table: LevelTable) -> None:
    """Warn that no level meets the constraints on validation rows."""
    found = table.on_validation[table.chosen]
    issue_warning(
        f"None of {len(table.levels)} levels meets all constraints on the validation rows, where "
        f"{sets.compiled.names} have the values {found.values.round(3).tolist()}: the square "
        f"surrogate has no score that meets them, or too few validation rows show one. Give "
        f"slack=0.1 or more, for the surrogate is stricter than the constraints; relax the "
        f"bounds, or use ConstrainedLogisticRegression.",
        "GC107",
    )


class LogOdds(NamedTuple):
    """Log-odds of the positive class as an increasing function of scores.

    Parameters
    ----------
    slope, intercept : Log-odds are ``slope * score + intercept``.
    """

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, scores: Float, is_positive: Bool, weight: Float) -> LogOdds:
        """Fit a logistic regression on the scores (Platt, 1999), with a positive slope.

        Rows of one class alone have no such regression: their scores are standardised.
        """
        total = weight.sum()
        mean = weight @ scores / total
        spread = float(np.sqrt(weight @ (scores - mean) ** 2 / total))
        spread = spread if spread > 0 else 1.0
        if np.unique(is_positive[weight > 0]).size < 2:
            return cls(1 / spread, -float(mean) / spread)
        standard = ((scores - mean) / spread)[:, None]
        found = LogisticRegression().fit(standard, is_positive, weight)
        slope = max(float(found.coef_[0, 0]), LEAST_SLOPE) / spread
        return cls(slope, float(found.intercept_[0]) - slope * float(mean))

    def probability(self, scores: Float) -> Float:
        """Compute the probability of the positive class."""
        return np.asarray(expit(self.slope * scores + self.intercept))


def _rank(found: Measured) -> tuple[float, float]:
    """Rank levels: violations beyond rounding first, then AUC."""
    return (found.violation if found.violation > ROUNDING else 0.0, -found.auc)
