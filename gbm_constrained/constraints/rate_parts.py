"""Parts that the functions which make rates share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained.constraints.amounts import Amount
from gbm_constrained.constraints.events import Event, Misclassified, Predicted, Term
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.factories import make_factory
from gbm_constrained.constraints.selectors import (
    ClassPosition,
    Columns,
    Label,
    Selector,
    as_level,
    as_selectors,
    check_hashable,
    to_python_scalar,
)

POSITIVE, NEGATIVE = ClassPosition(1), ClassPosition(0)
_DEPLOYED = """classifier, str or array-like of shape (n_samples,)
    The other model: fitted, with a ``predict`` for the features given to ``fit``; or the name
    of a column of its decisions, in the sensitive features or X; or its decisions on the
    training rows, which do not survive cross-validation."""
_SHARED_PARAMETERS = {
    "label": """label : hashable, default=None
    The class taken as positive, against all others. By default that of the classifier's
    parameter ``positive``, else the last of two sorted labels (``classes_[1]``).""",
    "to": f"to : {_DEPLOYED}",
    "over": f"over : {_DEPLOYED}",
    "on": """on : label(...), dataset(...), dict, bool array or tuple, default=None
    Rows that the rate is taken over; all training rows by default. A dict such as
    ``{"sex": "F"}`` selects by columns of the sensitive features or of X, ``{"sex": None}`` the
    rows without a value; a tuple intersects. A mask, of shape (n_samples,), is of training rows
    and has no value on an evaluation set.""",
    "weight": """weight : str or array-like of shape (n_samples,), default=None
    What each row counts for, beside its sample weight: a column of amounts of the sensitive
    features or of X, or one amount for each training row. Amounts are not negative, and none is
    missing. An array does not survive cross-validation, and has no value on an evaluation set.""",
    "cap": """cap : float, default=None
    Largest amount of a row, which certificates need. A row with a larger one is an error.""",
    "range": """range : tuple of two floats, default=None
    Smallest and largest value of any row, (low, high), such as ``(0, 25)`` for a loss.
    Certificates need it, and observed values outside are errors then.""",
    "options": """by : str or list of str, default=None
    Columns of the sensitive features, or of X when it is a DataFrame; several make
    intersections. All sensitive features by default.
missing : {"group", "raise"}, default="group"
    Whether rows without a value are a group of their own, or an error.
min_group_size : int, default=30
    Groups in which the rate is taken over fewer rows are small, and a warning names them.
    Rows of weight zero do not count.
small_groups : {"keep", "hold", "merge", "drop"}, default="keep"
    Whether small groups are kept, merged into one group, or left out. A group that is kept moves
    the model as far as its rows can tell: at 25 rows for each group beyond two, by half of what
    its rate differs from that of all rows. With "hold" every group is held at any price, however
    few its rows are.""",
}


def document_rate(function: Function) -> Function:
    """Register a function that makes rates, and describe the parameters that rates share."""
    return make_factory(document_parameters(function, _SHARED_PARAMETERS))


class Taken(NamedTuple):
    """What a rate is taken over, as its arguments say: rows, and what each of them counts for."""

    on: Any = None
    weight: Any = None
    cap: float | None = None

    def term(
        self,
        name: str,
        event: Event,
        rows: tuple[Selector, ...] = (),
        where: tuple[Selector, ...] = (),
    ) -> Term:
        """Make the weighted mean of an event."""
        amount = Amount.of(self.weight, self.cap)
        return Term(name, event, rows, as_selectors(self.on), where, amount)


def make_rate(
    name: str,
    event: Event,
    taken: Taken,
    rows: tuple[Selector, ...] = (),
    where: tuple[Selector, ...] = (),
) -> Rate:
    """Make a rate of one term with coefficient one."""
    return Rate(((1.0, taken.term(name, event, rows, where)),))


def classes_of(label: Hashable | None) -> tuple[Label | ClassPosition, Label | ClassPosition]:
    """Make the selectors of the negative and of the positive class."""
    if label is None:
        return NEGATIVE, POSITIVE
    return Label(to_python_scalar(label), excluded=True), Label(to_python_scalar(label))


def name_with_label(name: str, label: Hashable | None) -> str:
    """Write the name of a rate with its class."""
    return name if label is None else f"{name}({to_python_scalar(label)!r})"


def joint_rates(label: Hashable | None, taken: Taken) -> tuple[Rate, Rate, Rate]:
    """Make the fractions of all rows that are true positive, false positive, false negative."""
    negative, positive = classes_of(label)
    return (
        make_rate("true_positives", Predicted(positive), taken, where=(positive,)),
        make_rate("false_positives", Predicted(positive), taken, where=(negative,)),
        make_rate("false_negatives", Misclassified(), taken, where=(positive,)),
    )


def name_with_rows(name: str, taken: Taken) -> str:
    """Write the name of a quotient with its rows."""
    return str(taken.term(name, Misclassified()))


def read_reference(reference: Any) -> Any:
    """Read ``reference=`` as the name of a group, `overall` or None."""
    if isinstance(reference, (list, tuple)):
        found: Any = tuple(map(as_level, reference))
    else:
        found = None if reference is None else as_level(reference)
    check_hashable(found, "reference= must be a group's value, or a tuple of values")
    return found


def read_columns(by: Any) -> Columns | None:
    """Read ``by=`` as names of columns."""
    if by is None:
        return None
    if isinstance(by, (list, tuple)):
        if not by:
            raise ValueError("by= is empty: name at least one column, or leave it out.")
        columns = tuple(map(to_python_scalar, by))
    else:
        columns = (to_python_scalar(by),)
    check_hashable(columns, "by= must be the name of a column, or a list of names")
    return columns
