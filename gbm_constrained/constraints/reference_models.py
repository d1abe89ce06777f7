"""Reference models, whose decisions constraints compare with."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._dataframes import as_column, index_of


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """Decisions of another model: a fitted classifier, a column, or one decision for each row.

    Two reference models are equal if their contents are. Classifiers are compared by their
    pickles, so that a constraint equals its copy in another process. Copies share the classifier,
    which only predicts. A classifier that is fitted anew needs a constraint of its own.
    """

    model: Any = None  # Fitted classifier that predicts when the rows are known.
    column: Hashable = None  # Name of a column of decisions.
    decisions: tuple[Hashable, ...] | None = None  # A decision for each training row.
    # Class of a classifier that a model file does not hold: the constraint prints, without a fit.
    forgotten: str | None = None
    index: Any = None  # Row labels of the Series that the decisions were given as.

    @classmethod
    def of(cls, parameter: str, model: Any) -> ReferenceModel:
        """Make a reference model from a classifier, the name of a column, or decisions of rows."""
        if isinstance(model, type):
            raise TypeError(
                f"{parameter}= must be a fitted classifier, and {model.__name__} is a class: make "
                f"one of it, and fit it."
            )
        if hasattr(model, "predict"):
            return cls(model=model)
        if isinstance(model, str):
            return cls(column=model)
        decisions = as_column(model)
        if decisions.ndim != 1:
            raise TypeError(
                f"{parameter}= must be a fitted classifier, the name of a column of decisions, or "
                f"one decision for each training row; got {model!r}."
            )
        missing = np.flatnonzero(pd.isna(decisions))
        if missing.size:
            raise ValueError(
                f"{parameter}= has {missing.size} missing decisions (NaN or None), the first in "
                f"row {missing[0]}: the other model must decide on every training row. Drop these "
                f"rows, or fill the decisions in."
            )
        values = pd.Series(decisions).tolist()  # A list of pandas keeps dates as dates.
        return cls(decisions=tuple(values), index=index_of(model))

    @property
    def _all_but_model(self) -> tuple[Any, ...]:
        return type(self.model), self.column, self.decisions, self.forgotten

    @cached_property
    def _contents(self) -> bytes | None:
        """Digest of the classifier, or None where it has no pickle."""
        try:
            # A pickle shows which equal strings are one object, and that of a copy does not.
            copied = pickle.loads(pickle.dumps(self.model))
            return hashlib.sha256(pickle.dumps(copied)).digest()
        except Exception:  # The classifier may be of any library.
            return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReferenceModel):
            return NotImplemented
        if self._all_but_model != other._all_but_model:
            return False
        if self.model is other.model:
            return True
        return self._contents is not None and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._all_but_model)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReferenceModel:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def __str__(self) -> str:
        if self.column is not None:
            return repr(self.column)
        if self.forgotten is not None:
            return self.forgotten
        return type(self.model).__name__ if self.decisions is None else "decisions"

    def __repr__(self) -> str:
        return f"ReferenceModel({self})"
