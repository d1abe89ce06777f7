"""Rows of a fit or of an evaluation set, and the attributes that divide them into cells.

An attribute consists of a small number of levels, and the level of each row: labels, groups, named
data sets, masks, and decisions of other models. Attributes define cells
(:mod:`gbm_constrained.data.cells`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from gbm_constrained._dataframes import (
    as_column,
    column_at,
    names_of,
    number_of_rows,
    repeated_names,
)
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.conditions import columns_named, read_conditions
from gbm_constrained.constraints.selectors import (
    MISSING,
    Amount,
    Columns,
    Key,
    Mask,
    ReferenceModel,
    to_python_scalar,
)
from gbm_constrained.data.exact_sums import Machine, round_weights
from gbm_constrained.exceptions import UnavailableError


@dataclass(frozen=True)
class Attribute:
    """Levels of an attribute, and the level of each row.

    Parameters
    ----------
    levels : Classes (and None for rows without a label), names of data sets (None of the training
        rows), values of columns (one tuple for each group), ``(False, True)`` of a mask, or the
        decisions of another model.
    codes : (n_samples,). Position of each row's level; ``len(levels)`` for a value that is not
        among them.
    """

    levels: tuple[Any, ...]
    codes: NDArray[Any]

    @cached_property
    def size(self) -> int:
        """Number of levels, and one more if some rows have no level."""
        return len(self.levels) + int(self.codes.max(initial=0) == len(self.levels))


def factorize(values: NDArray[Any], what: str) -> tuple[tuple[Any, ...], NDArray[Any]]:
    """Find the sorted distinct values, a missing one last, and the position of each value.

    Positions are in the smallest type. Error messages call the values `what`.
    """
    try:
        codes, found = pd.factorize(values, sort=False)
    except TypeError:
        odd = next(v for v in values if not pd.api.types.is_hashable(v))
        raise ValueError(
            f"{what} hold {odd!r}, a {type(odd).__name__}, which cannot be told apart from other "
            f"values: give one number or text for each row."
        ) from None
    uniques = list(map(to_python_scalar, found))
    levels = sort_values(uniques)
    rank = {value: i for i, value in enumerate(levels)}
    position = np.array([*(rank[value] for value in uniques), len(levels)], dtype=np.intp)
    small = position.astype(np.min_scalar_type(position.size))  # A code for each row is kept.
    return (*levels, MISSING) if (codes < 0).any() else levels, small[codes]


def sort_values(values: Sequence[Any]) -> tuple[Any, ...]:
    """Sort distinct values, those of several types by type; a missing one comes last."""
    known = [value for value in values if value != MISSING]
    try:
        known.sort()
    except TypeError:
        known.sort(key=lambda value: (str(type(value)), str(value)))
    return (*known, *([MISSING] if len(known) < len(values) else []))


def codes_among(
    classes: NDArray[np.generic], values: NDArray[Any], what: str
) -> tuple[Codes, list[Any]]:
    """Find the class of each value, and the values that are no class: code ``len(classes)``."""
    known = {to_python_scalar(value): i for i, value in enumerate(classes)}
    levels, codes = factorize(values, what)
    position = np.array([known.get(value, len(known)) for value in levels], dtype=np.intp)
    return position[codes], [value for value in levels if value not in known]


def normalize_text(text: str) -> str:
    """Map texts that look alike to one: by white space, invisible characters and composition."""
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFC", visible).split())


def warn_of_similar_values(column: Hashable, values: Sequence[Any]) -> None:
    """Warn of groups whose values look like different spellings of one value."""
    if not any(isinstance(value, str) for value in values):
        return
    alike: dict[str, list[Any]] = {}
    for value in (value for value in values if value is not MISSING):
        alike.setdefault(normalize_text(str(value)).casefold(), []).append(value)
    found = []
    for group in (group for group in alike.values() if len(group) > 1):
        # Quotes do not tell two forms of one letter apart, but those in ASCII do.
        forms = {unicodedata.normalize("NFC", repr(value)) for value in group}
        found.append(" and ".join(map(repr if len(forms) == len(group) else ascii, group)))
    if found:
        issue_warning(
            f"Column {column!r} has values that look alike and are groups of their own: "
            f"{join_truncated(found)}. Spell them alike if they mean the same.",
            "GC202",
        )


def _hint(name: Hashable, known: Sequence[Hashable]) -> str:
    """Say what may have been meant by the name of a column that is not there."""
    plain = {str(one).casefold(): one for one in known}
    if near := get_close_matches(str(name).casefold(), list(plain), 1, cutoff=0.8):
        return f" Did you mean {plain[near[0]]!r}?"
    if "sensitive_feature_0" in known:
        return (
            f" An array has no name, and is called 'sensitive_feature_0': give "
            f"sensitive_features={{{name!r}: values}}."
        )
    if not known:
        return f" In a Pipeline, write STEP__sensitive_features={{{name!r}: values}} in fit."
    return ""


@dataclass
class Rows:
    """Rows of one fit, or of one evaluation set.

    Parameters
    ----------
    y : (n_samples,). Class index of each row; -1 for rows without a label.
    classes : (n_classes,). Sorted class labels.
    weight : (n_samples,). Weight of each row in rates; ones by default. Weights of rows on several
        machines are rounded, so that machines add them without error.
    columns : Sensitive features, (n_samples,) each, by name.
    features : Features of the training rows and of each further data set, for the predictions of
        reference models and for further columns.
    sources : Names of the further data sets, whose rows follow the training rows.
    sizes : Number of training rows, and of rows of each further data set.
    like : Training rows, whose groups come first in the numbering; values that do not occur there
        follow them.
    remedy : How a column that is missing can be given, in messages.
    machine : The machine that holds the rows, which may be one of several.
    small_groups : Whether the fit of an audited model took a group for small, by the texts of
        constraint and group; that of other groups is said by their rows.
    """

    y: Codes
    classes: NDArray[np.generic]
    weight: Float | None = None
    columns: dict[Hashable, NDArray[Any]] = field(default_factory=dict)
    features: Sequence[Any] = ()
    sources: Sequence[str] = ()
    sizes: Sequence[int] = ()
    like: Rows | None = None
    remedy: str = "as sensitive_features=..."
    machine: Machine = field(default_factory=Machine)
    small_groups: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    _attributes: dict[Key, Attribute] = field(default_factory=dict, init=False, repr=False)
    _amounts: dict[Amount, Float] = field(default_factory=dict, init=False, repr=False)
    _whole: tuple[Rows, Codes] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.sizes = self.sizes or [self.y.size]
        if self.weight is not None:
            self.weight = round_weights(self.weight, self.machine.communicator)

    def __len__(self) -> int:
        return self.y.size

    @property
    def n_training(self) -> int:
        """Number of training rows, which come first."""
        return self.sizes[0]

    def take(self, index: Codes) -> Rows:
        """Take some of the rows; their levels are numbered as those of all rows."""
        weight = None if self.weight is None else self.weight[index]
        part = Rows(self.y[index], self.classes, weight, sources=self.sources)
        part.columns = {name: values[:0] for name, values in self.columns.items()}  # The names.
        part.machine = self.machine.take(index)
        part.small_groups = self.small_groups
        part._whole = self, index
        return part

    def attribute(self, key: Key) -> Attribute:
        """Look up an attribute, or raise `UnavailableError` if the rows do not have it."""
        if self._whole is None and isinstance(key, Mask):
            return _membership(key, self)  # A fit may have a hundred, which stay packed.
        if key not in self._attributes:
            if self._whole is not None:
                rows, index = self._whole
                whole = rows.attribute(key)
                found = Attribute(whole.levels, whole.codes[index])
            elif isinstance(key, ReferenceModel):
                found = _decisions(key, self)
            elif isinstance(key, tuple):
                found = _groups(key, self)
            elif key == "label":
                levels: tuple[Any, ...] = tuple(self.classes.tolist())
                found = Attribute(levels, self.y)
                if (self.y < 0).any():
                    codes = np.where(self.y < 0, len(levels), self.y)
                    found = Attribute((*levels, None), codes)
            elif self.like is not None:
                raise UnavailableError("a named data set is part of a fit")
            else:  # None is the name of the training rows, and of no data set.
                source = np.repeat(np.arange(len(self.sizes)), self.sizes)
                found = Attribute((None, *self.sources), source)
            self._attributes[key] = found
        return self._attributes[key]

    def amounts(self, amount: Amount) -> Float:
        """Look up what each row counts for, or raise `UnavailableError` if that is not known."""
        if amount not in self._amounts:
            if self._whole is None:
                self._amounts[amount] = find_amounts(amount, self)
            else:
                rows, index = self._whole
                self._amounts[amount] = rows.amounts(amount)[index]
        return self._amounts[amount]

    def column(self, name: Hashable) -> NDArray[Any]:
        """Collect the values of a column, None on rows of data sets without the column."""
        parts = [self._column_of_source(i, name) for i in range(len(self.sizes))]
        if all(part is None for part in parts):
            known = [*self.columns]
            for table in self.features[:1]:
                known += names_of(table)
            name = next((c for c in columns_named(name, known) if c not in known), name)
            raise UnavailableError(
                f"column {name!r} is neither in sensitive_features nor in X: give it "
                f"{self.remedy}; the columns known are {list(dict.fromkeys(known))}."
                f"{_hint(name, known)}"
            )
        if len(parts) == 1:
            return np.asarray(parts[0])
        # The conversion of dates by numpy would give numbers of nanoseconds.
        return np.concatenate(
            [
                np.full(size, None, dtype=object)
                if part is None
                else np.asarray(pd.Series(part).astype(object))
                for size, part in zip(self.sizes, parts, strict=True)
            ]
        )

    def _column_of_source(self, i: int, name: Hashable) -> NDArray[Any] | None:
        """Look up a column of the training rows (0), or of a further data set."""
        if i == 0 and name in self.columns:
            return self.columns[name]
        table = self.features[i] if i < len(self.features) else None
        names = names_of(table)
        if name not in names:
            return self._meets(i, name)
        if name in repeated_names(table):
            raise ValueError(f"X has several columns called {name!r}: rename them.")
        return column_at(table, names.index(name))

    def _meets(self, i: int, text: Hashable) -> NDArray[Any] | None:
        """Find the rows that meet conditions on columns of a source; None without a column."""
        found = []
        for condition in read_conditions(text):
            values = self._column_of_source(i, condition.column)
            if values is None:
                return None
            found.append(condition.holds(values))
        return np.all(found, axis=0) if found else None

    def has_column(self, source: str, name: Hashable) -> bool:
        """Whether the rows of a further data set have a column, or those of conditions."""
        if self._whole is not None:  # A part of the rows has no features.
            return self._whole[0].has_column(source, name)
        i = 1 + self.sources.index(source)
        known = names_of(self.features[i]) if i < len(self.features) else []
        return set(columns_named(name, known)) <= set(known)


def _membership(mask: Mask, rows: Rows) -> Attribute:
    """Find the rows in a mask; rows of further data sets, which follow, are in no mask."""
    if rows.like is not None:
        raise UnavailableError("a mask speaks of training rows")
    _refuse_on_machines(rows, "A mask", "on={'chosen': True}")
    if mask.n_samples != rows.n_training:
        raise ValueError(
            f"on= was given a mask of {mask.n_samples} rows, but the training data have "
            f"{rows.n_training} rows: give one boolean per training row. Where rows are split "
            f"or drawn, as in cross-validation, give a column of sensitive_features and its "
            f"value, as in on={{'chosen': True}}."
        )
    codes = np.zeros(rows.y.size, dtype=np.int8)
    codes[: mask.n_samples] = mask.to_array()
    return Attribute((False, True), codes)


def _groups(names: Columns, rows: Rows) -> Attribute:
    """Divide the rows by the values of columns."""
    if not names:
        raise UnavailableError("groups are made by no column: give sensitive_features, or by=.")
    if len(names) == 1:
        values, codes = factorize(rows.column(names[0]), f"values of column {names[0]!r}")
        levels = tuple((value,) for value in values)
    else:
        levels, codes = _intersect([rows.attribute((name,)) for name in names])
    levels, codes = _unite(rows, names, levels, codes)
    if rows.like is None:
        if len(names) == 1:
            warn_of_similar_values(names[0], [value for (value,) in levels])
        return Attribute(levels, codes)
    known = rows.like.attribute(names).levels
    united = tuple(dict.fromkeys([*known, *levels]))
    return Attribute(united, _renumber(levels, codes, united))


def _renumber(levels: Sequence[Any], codes: NDArray[Any], united: Sequence[Any]) -> NDArray[Any]:
    """Give codes of levels the positions of these among others, in the smallest type."""
    position = {level: i for i, level in enumerate(united)}
    mapped = np.array([position[level] for level in levels], np.min_scalar_type(len(united)))
    return np.asarray(mapped[codes])


def _unite(
    rows: Rows, names: Columns, levels: tuple[Any, ...], codes: NDArray[Any]
) -> tuple[tuple[Any, ...], NDArray[Any]]:
    """Give groups the numbers that they have on all machines."""
    communicator = rows.machine.communicator
    if communicator.holds_all_rows:
        return levels, codes
    found = {level for of_machine in communicator.gather(levels) for level in of_machine}
    if len(names) == 1:
        united = [(value,) for value in sort_values([value for (value,) in found])]
    else:
        ranks = [
            {value: i for i, (value,) in enumerate(rows.attribute((name,)).levels)}
            for name in names
        ]
        united = sorted(found, key=lambda level: [r[v] for r, v in zip(ranks, level, strict=True)])
    return tuple(united), _renumber(levels, codes, united)


def _intersect(singles: Sequence[Attribute]) -> tuple[tuple[Any, ...], NDArray[Any]]:
    """Combine the levels of several columns that occur together."""
    # Columns are combined one by one, because products of many sizes exceed 64 bits.
    first, *others = singles
    codes = first.codes.astype(np.intp, copy=False)
    levels: tuple[Any, ...] = (*first.levels, (None,))
    for single in others:
        values = [*(value for (value,) in single.levels), None]
        combined = codes * len(values) + single.codes
        occurring, codes = np.unique(combined, return_inverse=True)
        before, last = np.divmod(occurring, len(values))
        levels = tuple((*levels[i], values[k]) for i, k in zip(before, last, strict=True))
    return levels, codes.astype(np.min_scalar_type(len(levels)))


def _decisions(model: ReferenceModel, rows: Rows) -> Attribute:
    """Find the decision of another model on each row."""
    if model.forgotten is not None:
        raise ValueError(
            f"A constraint asks a {model} for its decisions, and the file that it was "
            f"loaded from does not hold that model: state the constraint anew with the model, "
            f"as in churn(to=model), and set it by set_params(constraints=...)."
        )
    if model.column is not None:
        decisions = rows.column(model.column)
    elif model.decisions is None:
        if not rows.features:
            raise UnavailableError("the other model cannot be asked about rows without features")
        decisions = np.concatenate([_predict(model, X) for X in rows.features])
    else:
        if rows.like is not None:
            raise UnavailableError("decisions were given for training rows")
        _refuse_on_machines(rows, "An array of a model's decisions", "churn(to='deployed')")
        if len(model.decisions) != rows.n_training:
            raise ValueError(
                f"The deployed model's decisions have {len(model.decisions)} entries, but "
                f"the training data have {rows.n_training} rows: give one per training row, "
                f"or the model itself. Where rows are split or drawn, as in cross-validation, "
                f"give the name of a column of sensitive_features that holds them."
            )
        decisions = np.full(rows.y.size, None, dtype=object)
        decisions[: rows.n_training] = model.decisions
    decided, strange = codes_among(rows.classes, decisions, "The other model's decisions")
    if (decided[: rows.n_training] == rows.classes.size).any():
        if strange == [MISSING]:
            raise ValueError(
                "The other model's decisions hold missing values: it must decide on every "
                "training row. Drop these rows, or fill the decisions in."
            )
        raise ValueError(
            f"The other model decides {strange[0]!r}, which is not among the classes of y: "
            f"{rows.classes.tolist()}."
        )
    return Attribute((*rows.classes.tolist(), "other"), decided)


def find_amounts(amount: Amount, rows: Rows) -> Float:
    """Find what each row counts for; zero on rows of data sets without the column.

    Raises
    ------
    ValueError
        If amounts are missing, negative, infinite or above the cap, or rows are on machines.
    UnavailableError
        If the rows do not have the amounts.
    """
    if not rows.machine.communicator.holds_all_rows:
        raise ValueError(
            f"weight={amount} counts amounts, and the rows are on several machines, whose sums "
            f"of amounts depend on how the rows are dealt: train on one machine, or count rows."
        )
    if amount.packed:
        if rows.like is not None:
            raise UnavailableError("amounts were given for training rows")
        if amount.n_samples != rows.n_training:
            raise ValueError(
                f"weight= was given {amount.n_samples} amounts, but the training data have "
                f"{rows.n_training} rows: give one amount per training row. Where rows are split "
                f"or drawn, as in cross-validation, give the name of a column of amounts."
            )
        others = np.zeros(rows.y.size - rows.n_training)
        amounts = np.concatenate([amount.to_array(), others])
    else:
        numbers = pd.to_numeric(pd.Series(rows.column(amount.column)), errors="coerce")
        amounts = numbers.to_numpy(np.float64, na_value=np.nan, copy=True)
        ends = np.cumsum(rows.sizes)
        for source, size, end in zip(rows.sources, rows.sizes[1:], ends[1:], strict=True):
            if not rows.has_column(source, amount.column):
                amounts[end - size : end] = 0.0
    limit = np.inf if amount.cap is None else amount.cap
    for is_wrong, what, remedy in (
        (np.isnan(amounts), "missing or no numbers", "Fill them in, or drop these rows"),
        (np.isinf(amounts), "infinite", "Give finite ones"),
        (amounts < 0.0, "negative", "Rows count for 0 or more: clip them, or drop these rows"),
        (amounts > limit, f"above cap={limit:g}", "Raise cap=, or clip the amounts"),
    ):
        if is_wrong.any():
            raise ValueError(
                f"weight={amount}: the amounts of {int(is_wrong.sum())} of {amounts.size} rows "
                f"are {what}, the first in row {int(is_wrong.argmax())} "
                f"({amounts[is_wrong.argmax()]:g}). {remedy}."
            )
    return amounts


def _refuse_on_machines(rows: Rows, what: str, example: str) -> None:
    """Refuse an array with an entry for each row of one table where rows are on machines."""
    if not rows.machine.communicator.holds_all_rows:
        raise ValueError(
            f"{what} has an entry for each row of one table, and the rows are on several "
            f"machines: make it a column of sensitive_features, as in {example}."
        )


def _predict(model: ReferenceModel, X: Any) -> NDArray[Any]:
    """Predict the rows of a table by another model."""
    n = number_of_rows(X)
    try:
        answers = as_column(model.model.predict(X))
    except NotFittedError:
        raise ValueError(
            f"The other model, a {model}, is not fitted: fit it before the fit of the model "
            f"that is compared with it."
        ) from None
    except Exception as error:  # The model may be of any library.
        what = f"{type(error).__name__}: {str(error).strip().rstrip('.')}"
        raise ValueError(
            f"The other model, a {model}, fails to decide on {n} rows. {what}. Give rows with "
            f"the features that it knows, or its decisions in its place, as the name of a column "
            f"of sensitive_features."
        ) from error
    if answers.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"The other model, a {model}, answers with shape {answers.shape} for {n} rows: its "
            f"predict must give one label for each row."
        )
    return answers.ravel()
