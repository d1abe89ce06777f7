"""What the process of a peer knows: rules, rows, and what its methods have in common.

Each peer's process chooses by these figures on its own rows, and the benchmark scores test
decisions by the same ones. Needs numpy only, and LightGBM for what has the plain booster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Rows that a rate is taken over, and the event that it counts. Decisions may have columns.
RATES = {
    "selection_rate": lambda y, d: (np.ones(y.size, dtype=bool), d == 1),
    "fpr": lambda y, d: (y == 0, d == 1),
    "fnr": lambda y, d: (y == 1, d == 0),
    "tpr": lambda y, d: (y == 1, d == 1),
    "error_rate": lambda y, d: (np.ones(y.size, dtype=bool), (y != d.T).T),
}
# The same of a class k, written "share:k" and "recall:k".
RATES_OF_CLASSES = {
    "share": lambda y, d, k: (np.ones(y.size, dtype=bool), d == k),
    "recall": lambda y, d, k: (y == k, d == k),
}


@dataclass(frozen=True)
class Rule:
    """A task: the rates that are bounded, and whether it is their gap between groups that is."""

    task: str
    rates: tuple[str, ...]
    is_gap: bool


GAP_RULES = {
    rule.task: rule
    for rule in (
        Rule("selection_rate_gap", ("selection_rate",), True),
        Rule("fpr_gap", ("fpr",), True),
        Rule("tpr_gap", ("tpr",), True),
        Rule("error_rate_gap", ("error_rate",), True),
        Rule("equalized_odds", ("fpr", "tpr"), True),
    )
}
NEYMAN_PEARSON = "neyman_pearson"
TASKS = (NEYMAN_PEARSON, *GAP_RULES)
CLASS_TASKS = {"class_shares_gap": "share", "class_recalls_gap": "recall"}


def rule_of(task: str, rate: str, n_classes: int = 2) -> Rule:
    """Rule of a task; `rate` is the one that Neyman-Pearson bounds on the data set at hand."""
    if task in CLASS_TASKS:
        return Rule(task, tuple(f"{CLASS_TASKS[task]}:{k}" for k in range(n_classes)), True)
    return Rule(task, (rate,), False) if task == NEYMAN_PEARSON else GAP_RULES[task]


def rows_and_events(rate: str, y: Any, decisions: Any) -> tuple[Any, Any]:
    """Rows that a rate is taken over, and those that it counts."""
    name, _, k = rate.partition(":")
    return RATES_OF_CLASSES[name](y, decisions, int(k)) if k else RATES[rate](y, decisions)


def counts(rate: str, y: Any, decisions: Any, groups: Any = None) -> tuple[Any, Any]:
    """Events and rows of a rate, one number for each group, or in all rows."""
    inside, event = rows_and_events(rate, y, decisions)
    codes = np.zeros(y.size, dtype=int) if groups is None else groups
    events = np.bincount(codes[inside & event], minlength=codes.max() + 1)
    return events, np.bincount(codes[inside], minlength=codes.max() + 1)


def value(rule: Rule, y: Any, decisions: Any, groups: Any) -> float:
    """Return what the rule bounds: a rate, or the largest gap of one of its rates.

    Groups without rows of the rate's base do not count.
    """
    found = []
    for rate in rule.rates:
        events, rows = counts(rate, y, decisions, groups if rule.is_gap else None)
        by_group = events[rows > 0] / rows[rows > 0]
        found.append(np.ptp(by_group) if rule.is_gap else by_group[0])
    return float(max(found))


def merit(
    rule: Rule, asked: float, y: Any, decisions: Any, groups: Any
) -> tuple[float, float, float]:
    """Rank decisions of one setting among others, smallest first.

    Returns
    -------
    tuple of float
        By how much the bound is missed, the share of errors, and what the rule bounds.
    """
    at = value(rule, y, decisions, groups)
    return max(at - asked, 0.0), float(np.mean(decisions != y)), at


@dataclass(frozen=True)
class Split:
    """Training rows, and test rows without labels.

    Parameters
    ----------
    X, X_test : ndarray of shape (n, p), float64
        Numbers as they are, categories as codes, -1 where missing.
    y : ndarray of int
        Labels of the training rows, from 0 on.
    groups, groups_test : ndarray of int
        Sensitive feature as codes from 0. It is a column of X, too, unless the data set hides it.
    calibration : ndarray of bool
        The quarter of the training rows that methods after training choose decisions on.
    """

    X: Any
    y: Any
    groups: Any
    calibration: Any
    X_test: Any
    groups_test: Any

    def save(self, file: Path) -> None:
        np.savez(file, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def load(cls, file: Path) -> Split:
        with np.load(file) as arrays:
            return cls(**{name: arrays[name] for name in arrays.files})

    def with_group(self) -> Split:
        """Return the split with the group as the last column of its features."""
        X, X_test = (
            np.column_stack(pair)
            for pair in ((self.X, self.groups), (self.X_test, self.groups_test))
        )
        return replace(self, X=X, X_test=X_test)

    def part(self, rows: Any) -> tuple[Any, Any, Any]:
        """Features, labels and groups of some training rows."""
        return self.X[rows], self.y[rows], self.groups[rows]


class Fitted(NamedTuple):
    """Decisions of a peer.

    Parameters
    ----------
    decide : callable
        Decisions 0 and 1 from features and groups.
    held_out : float, default=None
        What the rule bounds as the peer itself measured it on rows that its trees had not seen.
    """

    decide: Callable[[Any, Any], Any]
    held_out: float | None = None


def parameters(trees: int, tree: dict[str, int]) -> dict[str, Any]:
    """Parameters that all peers share."""
    return {"n_estimators": trees, "learning_rate": 0.1, **tree}


def plain(parameters: dict[str, Any]) -> Any:
    """Return an unfitted booster of the benchmark's parameters, on one thread."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**parameters, n_jobs=1, random_state=0, verbose=-1)


class Method:
    """A way to meet a rule, on the rows of a split.

    Its ``fit``, given a rule and the bound that is asked for, returns a :class:`Fitted`.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self.split, self.booster, self.seed = split, booster, seed


class Calibrated(Method):
    """A method after training: the plain booster without the calibration rows, and these."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        super().__init__(split, booster, seed)
        X, y, _ = split.part(~split.calibration)
        self.model = plain(booster).fit(X, y)
        self.rows = split.part(split.calibration)

    def scores(self, X: Any) -> Any:
        """Probability of the positive class."""
        return np.asarray(self.model.predict_proba(X))[:, 1]
