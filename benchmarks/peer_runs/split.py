"""A split of a data set as the peers get it: no labels of test rows. Needs numpy only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Split:
    """Training rows, and test rows without labels.

    Parameters
    ----------
    X, X_test : ndarray of shape (n, p), float64
        Numbers as they are, categories as codes, -1 where missing.
    y : ndarray of int
        Labels 0 and 1 of the training rows.
    groups, groups_test : ndarray of int
        Sensitive feature as codes from 0; it is a column of X, too.
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

    def part(self, rows: Any) -> tuple[Any, Any, Any]:
        """Features, labels and groups of some training rows."""
        return self.X[rows], self.y[rows], self.groups[rows]


@dataclass(frozen=True)
class Fitted:
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
