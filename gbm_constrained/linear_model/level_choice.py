"""Choice among the levels of a level-set search, by the constraints themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit
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
    is_known : (n_constraints,). Whether all pair rates of a constraint have a value on the rows.
    violation : Largest violation of a constraint that has a value on the rows.
    """

    auc: float
    values: Float
    is_known: Bool
    violation: float


@dataclass(frozen=True, eq=False)
class LevelTable:
    """Levels of a search, measured on the rows that choose one of them.

    Parameters
    ----------
    levels : The levels.
    on_validation : What each level is worth on validation rows.
    unit : What the objective and the limits of the levels are divided by.
    chosen : Position of the chosen level: the one of largest AUC among those that meet all
        constraints there, or else of least violation. Constraints without a value count as not
        met. Where the AUC has none, the last level is chosen.
    """

    levels: Sequence[Level]
    on_validation: Sequence[Measured]
    unit: float
    chosen: int

    @classmethod
    def of(
        cls,
        levels: Sequence[Level],
        score: ScoreFunction,
        sets: PairSets,
        rows: PairSample,
        unit: float,
    ) -> LevelTable:
        """Measure all levels on validation rows, and choose one."""
        found = []
        for level in levels:
            found.append(measure(sets, rows, score.scores(level.point.parameters, rows.X)))
        chosen = min(range(len(found)), key=lambda i: (*_rank(found[i]), -i))
        return cls(levels, found, unit, chosen)

    @property
    def is_met(self) -> bool:
        """Whether the chosen level meets all constraints on the validation rows."""
        return self.on_validation[self.chosen].violation <= ROUNDING

    @property
    def is_doubtful(self) -> bool:
        """Whether the chosen level misses a constraint, or something has no value."""
        found = self.on_validation[self.chosen]
        return not self.is_met or bool(np.isnan(found.auc)) or not found.is_known.all()

    def history(self, names: Sequence[str]) -> pd.DataFrame:
        """Tabulate the levels; `names` are those of the constraints."""
        levels = self.levels
        columns: dict[str, Any] = {
            "level": [level.number for level in levels],
            "proximal_point": [level.proximal_point for level in levels],
            "r": [level.level * self.unit for level in levels],
            "upper_bound": [level.upper_bound * self.unit for level in levels],
            "rows": [level.n_rows for level in levels],
            "distance": [level.distance for level in levels],
            "auc": [found.auc for found in self.on_validation],
            "violation": [found.violation for found in self.on_validation],
            "chosen": [i == self.chosen for i in range(len(levels))],
        }
        for j, name in enumerate(names):
            columns[f"value[{name}]"] = [found.values[j] for found in self.on_validation]
        return pd.DataFrame(columns)


def measure(sets: PairSets, rows: PairSample, scores: Float) -> Measured:
    """Measure AUC and constraints on some rows."""
    values, is_known = sets.values(rows, scores)
    signs = np.array([constraint.sign for constraint in sets.compiled.constraints])
    violation = np.nan_to_num(signs * (values - sets.compiled.bounds)).max(initial=0.0)
    return Measured(sets.auc(rows, scores), values, is_known, max(float(violation), 0.0))


def surrogate_columns(
    levels: Sequence[Level], problem: SaddleProblem, rows: tuple[Float, Float], unit: float
) -> dict[str, list[float]]:
    """Compute the surrogate objective of each level, and the largest violation of its rules.

    Parameters
    ----------
    levels : The levels.
    problem : Functions and score.
    rows : Features and density ratios of the training rows.
    unit : What objective and limits are divided by.
    """
    X, ratios = rows
    surrogate = problem.surrogate
    objective, violation = [], []
    for level in levels:
        scores = problem.score.scores(level.point.parameters, X)
        values = surrogate.values(surrogate.moments(scores, ratios)) - surrogate.limits
        values *= unit
        objective.append(float(values[0]))
        violation.append(float(values[1:].max(initial=-np.inf)))
    return {"surrogate_objective": objective, "surrogate_violation": violation}


def report_frame(
    sets: PairSets, multipliers: Float, training: Measured | None, validation: Measured
) -> pd.DataFrame:
    """Tabulate each constraint: bound, values, multiplier, and whether it is met."""
    compiled = sets.compiled
    satisfied = pd.array(compiled.is_satisfied(validation.values), dtype="boolean")
    satisfied[~validation.is_known] = pd.NA
    nothing = np.full(len(compiled.constraints), np.nan)
    return pd.DataFrame(
        {
            "constraint": compiled.names,
            "bound": compiled.bounds,
            "train": nothing if training is None else training.values,
            "held_out": validation.values,
            "multiplier": compiled.totals(multipliers),
            "satisfied": satisfied,
        }
    )


def warn_of_choice(sets: PairSets, table: LevelTable, validation: PairSample) -> None:
    """Warn that no level meets the constraints on validation rows, or that these are too few."""
    found = table.on_validation[table.chosen]
    if not table.is_met:
        issue_warning(
            f"None of {len(table.levels)} levels meets all constraints on the validation rows, "
            f"where {sets.compiled.names} have the values {found.values.round(3).tolist()}: the "
            f"square surrogate has no score that meets them, or too few validation rows show "
            f"one. Give slack=0.1 or more, for the surrogate is stricter than the constraints; "
            f"relax the bounds, or use ConstrainedLogisticRegression.",
            "GC107",
        )
    unknown = [sets.compiled.names[j] for j in np.flatnonzero(~found.is_known)]
    if np.isnan(found.auc):
        unknown += ["the AUC, so that the last level was taken and probabilities are base rates"]
    if unknown:
        issue_warning(
            f"The {len(validation)} validation rows lack a class or a group, so that there is no "
            f"whole value of {' and '.join(unknown)}: give more rows, or a larger "
            f"validation_fraction.",
            "GC112",
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
    def fit(cls, scores: Float, is_positive: Bool, weight: Float, base_rate: float) -> LogOdds:
        """Fit the targets of Platt (1999) by a logistic regression, with a positive slope.

        Weights have a mean of one there, so that their unit changes nothing. Rows of one class
        alone say nothing of the slope: all rows then get about the base rate.

        Parameters
        ----------
        scores, is_positive, weight : (n,). Score, class and weight of each row.
        base_rate : Share of positives among the training rows.
        """
        mean, spread = (scores.mean(), scores.std()) if scores.size else (0.0, 1.0)
        spread = spread if spread > 0 else 1.0
        mass = np.bincount(is_positive, weight, 2)
        if mass.min() == 0:
            slope = float(LEAST_SLOPE / spread)
            return cls(slope, float(logit(base_rate) - slope * mean))
        weight, mass = weight / weight.mean(), mass / weight.mean()
        target = np.where(is_positive, (mass[1] + 1) / (mass[1] + 2), 1 / (mass[0] + 2))
        standard = np.tile((scores - mean) / spread, 2)[:, None]
        shares = np.concatenate([weight * target, weight * (1 - target)])
        answers = np.repeat([1, 0], scores.size)
        found = LogisticRegression(C=np.inf).fit(standard, answers, shares)
        slope = float(max(found.coef_[0, 0], LEAST_SLOPE) / spread)
        return cls(slope, float(found.intercept_[0] - slope * mean))

    def probability(self, scores: Float) -> Float:
        """Compute the probability of the positive class."""
        return np.asarray(expit(self.slope * scores + self.intercept))


def _rank(found: Measured) -> tuple[int, float, float]:
    """Rank levels: constraints without a value, violations beyond rounding, then AUC."""
    violation = found.violation if found.violation > ROUNDING else 0.0
    return int((~found.is_known).sum()), violation, -np.nan_to_num(found.auc)
