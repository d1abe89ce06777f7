"""Segments: groups that nobody named, described by conditions, where a constraint fails."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from gbm_constrained._dataframes import names_of
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data import validation
from gbm_constrained.evaluation import segments as search
from gbm_constrained.evaluation.audit import AuditRows

__all__ = ["Segments", "find_segments"]


@dataclass(frozen=True, eq=False, repr=False)
class Segments:
    """Segments that one half of the rows proposed and the other half bears out.

    :func:`find_segments` makes it.

    Parameters
    ----------
    frame : DataFrame
        One row per segment, the most significant first: ``segment`` in words, its ``expression``,
        the ``rows`` that measure it, its ``share`` of all rows, its ``value`` and that of the
        ``rest``, the interval ``low`` to ``high`` of the value, the ``p_value`` after Holm, and
        the largest ``overlap`` with another segment that was measured (Jaccard).
    masks : DataFrame
        Whether each row is in a segment, a column of bools by the expression of each.
    constraint : Constraint
        What was measured. Without a bound of the user's, its bound means nothing.
    bound : float or None
        The bound that values are compared with; None where this is the value of the rest.
    n_tested : int
        Number of segments that were measured, all of which p-values and intervals pay for.
    level : float
        Level of all intervals together.
    segments : tuple of Segment
        Conditions and directions, in the order of `frame`.
    """

    frame: pd.DataFrame
    masks: pd.DataFrame
    constraint: Constraint
    bound: float | None
    n_tested: int
    level: float
    segments: tuple[search.Segment, ...]

    @property
    def expressions(self) -> list[str]:
        """Texts that stand for a column, as in ``each(fpr(), by=found.expressions[0]) <= 0.1``."""
        return [segment.expression for segment in self.segments]

    def __len__(self) -> int:
        return len(self.segments)

    def __str__(self) -> str:
        what = str(self.constraint if self.bound is not None else self.constraint.expression)
        against = "its bound" if self.bound is not None else "the rest"
        lines = [
            f"{len(self)} of {self.n_tested} segments differ from {against} in {what}, at level "
            f"{self.level:g} for all together."
        ]
        if len(self):
            shown = self.frame.drop(columns="expression")
            lines += ["", shown.to_string(index=False, float_format="{:.4f}".format)]
        return "\n".join(lines)

    __repr__ = __str__


def find_segments(
    model: Any,
    X: Any,
    y: ArrayLike,
    constraint: Any,
    *,
    columns: Sequence[str] | None = None,
    sensitive_features: Any = None,
    sample_weight: ArrayLike | None = None,
    positive: Hashable | None = None,
    max_conditions: int = 3,
    n_segments: int = 5,
    min_rows: int = 50,
    level: float = 0.95,
    random_state: Any = 0,
) -> Segments:
    """Find the groups, described by conditions on columns, where a model fails most.

    Half of the rows, drawn at random, propose segments. The other half measures them, and what it
    does not bear out is not reported.

    Parameters
    ----------
    model : fitted classifier or regressor
        The model, as :func:`gbm_constrained.audit` takes it.
    X : DataFrame of shape (n_samples, n_features)
        Features of rows that the model was not trained on. An array has no names of columns, and
        goes with `sensitive_features` that have some.
    y : array-like of shape (n_samples,)
        Labels or targets.
    constraint : Rate, quotient, calibration error, Constraint or str
        ``fpr()`` looks for segments that differ most from the rest, and ``fpr() <= 0.1`` for those
        that violate the bound most. Rates, mean losses and residuals, quotients over the same rows
        such as ``precision()``, ``auc()`` and ``calibration_error()`` have segments. Segments are
        looked for on the wrong side of a bound only, and calibration errors are always compared as
        larger.
    columns : sequence of str, default=None
        Columns that conditions may be on. By default all of `sensitive_features` and of `X`.
    sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
        Columns beside those of `X`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    positive : label, default=None
        The positive class, as in :func:`gbm_constrained.audit`.
    max_conditions : int, default=3
        Most columns that a segment has conditions on, 1 to 3. The interval of a column counts as
        one condition, although it has two ends.
    n_segments : int, default=5
        Most segments that are measured. Each makes p-values and intervals pay for one more.
    min_rows : int, default=50
        Fewest rows of the half that proposes which the value of a segment is taken over.
    level : float, default=0.95
        Level of all intervals together. A segment is reported if its p-value after Holm is
        ``1 - level`` at most.
    random_state : int, RandomState instance or None, default=0
        Draws the halves.

    Returns
    -------
    Segments
        Table, masks and expressions; it may be empty.

    Raises
    ------
    TypeError, ValueError
        If the model or the rows do not fit, as in an audit; if `constraint` compares named groups,
        or adds up means over different rows; if `columns` names one that is not there, or there is
        none to search.

    See Also
    --------
    gbm_constrained.audit : Measures segments on other rows, ``audit(..., segments=found)``.
    gbm_constrained.evaluation.segments : The search, the tests and their sources.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn.dummy import DummyClassifier
    >>> from gbm_constrained import error_rate, find_segments
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.integers(18, 80, 4000), "hours": rng.integers(1, 60, 4000)})
    >>> y = rng.random(4000) < np.where((X["age"] <= 30) & (X["hours"] > 40), 0.4, 0.1)
    >>> model = DummyClassifier(strategy="most_frequent").fit(X, y)
    >>> found = find_segments(model, X, y, error_rate())
    >>> found.expressions
    ['`hours` > 40 and `age` <= 32']
    """
    for name, value, least in (
        ("max_conditions", max_conditions, 1), ("n_segments", n_segments, 1),
        ("min_rows", min_rows, 2),
    ):  # fmt: skip
        validation.check_integer(name, value, least)
    if max_conditions > 3:
        raise ValueError(
            f"max_conditions must be 1, 2 or 3, got {max_conditions}: longer ones "
            f"find noise, and nobody reads them."
        )
    validation.check_share("level", level)
    checked, bound = search.read_rule(constraint)
    given = AuditRows(X, y, sensitive_features, sample_weight)
    rows, sums = search.measure_sums(model, given, checked, positive)
    named = [*rows.columns, *(name for name in names_of(X) if name not in rows.columns)]
    searched: list[Any] = named if columns is None else list(columns)
    if isinstance(columns, str) or not searched or not all(isinstance(c, str) for c in searched):
        raise ValueError(
            f"columns={columns!r}: conditions need columns whose names are texts, and those known "
            f"are {named}: give X as a DataFrame with named columns, or sensitive_features."
        )
    for column in searched:
        rows.column(column)
    order = check_random_state(random_state).permutation(len(rows))
    half, measured = np.sort(order[: order.size // 2]), np.sort(order[order.size // 2 :])
    proposed = search.search_segments(
        rows, sums, half, searched, bound, checked.sense,
        max_conditions=max_conditions, n_segments=n_segments, min_rows=min_rows,
    )  # fmt: skip
    frame = search.tabulate_segments(rows, sums, measured, proposed, bound, level)
    kept = frame["p_value"].to_numpy() <= 1.0 - level
    order = np.argsort(frame["p_value"].to_numpy()[kept], kind="stable")
    at = np.flatnonzero(kept)[order]
    segments = tuple(proposed[k] for k in at)
    members = search.find_members(rows, segments)
    masks = pd.DataFrame({s.expression: mask for s, mask in zip(segments, members, strict=True)})
    frame = frame.iloc[at].reset_index(drop=True)
    return Segments(frame, masks, checked, bound, len(proposed), float(level), segments)
