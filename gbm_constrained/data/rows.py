"""What constraints look at in the rows: labels, groups, named data sets, other models' decisions.

Each of these is an *attribute*: a small number of levels, and the level of every row. Cells are
made of attributes (:mod:`gbm_constrained.data.cells`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from gbm_constrained._dataframes import (
    as_column,
    column_at,
    is_frame,
    names_of,
    number_of_rows,
    repeated_names,
)
from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import some_of
from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.selectors import (
    MISSING,
    ClassPosition,
    Column,
    DataSet,
    Deployed,
    Judged,
    Label,
    Mask,
    Selector,
    plain,
)
from gbm_constrained.exceptions import UnavailableError

Columns: TypeAlias = tuple[Hashable, ...]
# "label", "source" (which data set), columns that make groups, a mask, another model.
Key: TypeAlias = Literal["label", "source"] | Columns | Mask | Deployed


def key_of(selector: Selector) -> Key:
    """Attribute that a selector looks at."""
    if isinstance(selector, (Label, ClassPosition)):
        return "label"
    if isinstance(selector, DataSet):
        return "source"
    if isinstance(selector, Column):
        return (selector.name,)
    return selector.deployed if isinstance(selector, Judged) else selector


@dataclass(frozen=True)
class Attribute:
    """Levels, and the level of each row.

    Parameters
    ----------
    levels : tuple
        Classes (and None for rows without a label), names of data sets (None of the training
        rows), values of columns (one tuple for each group), ``(False, True)`` of a mask, or the
        decisions of another model.
    codes : ndarray of shape (n_samples,), integer
        Position of each row's level; ``len(levels)`` for a value that is not among them.
    """

    levels: tuple[Any, ...]
    codes: NDArray[Any]

    @cached_property
    def size(self) -> int:
        """Number of levels, and one more where rows may belong to none."""
        return len(self.levels) + int(self.codes.max(initial=0) == len(self.levels))


@dataclass(frozen=True)
class Membership:
    """The attribute of being in a mask, unpacked when asked for: there may be a hundred of them.

    Parameters
    ----------
    mask : Mask
        The training rows that are in it.
    n_samples : int
        All rows; those of further data sets, which follow the training rows, are in no mask.
    """

    mask: Mask
    n_samples: int
    levels: ClassVar[tuple[Any, ...]] = (False, True)
    size: ClassVar[int] = 2

    @property
    def codes(self) -> NDArray[np.int8]:
        """1 for the rows in the mask, 0 for the others; (n_samples,)."""
        codes = np.zeros(self.n_samples, dtype=np.int8)
        codes[: self.mask.n_samples] = self.mask.to_array()
        return codes


def columns_of(
    sensitive_features: Any, n_samples: int, argument: str = "sensitive_features"
) -> dict[Hashable, NDArray[Any]]:
    """Columns of sensitive features, by name.

    Parameters
    ----------
    sensitive_features : Series, DataFrame, dict of arrays, array-like or None
        One value per row; series and tables of pandas, polars or pyarrow. Unnamed columns are
        called ``sensitive_feature_0`` and so on, as in fairlearn.
    n_samples : int
        Rows that there must be.
    argument : str, default="sensitive_features"
        What errors call them.

    Raises
    ------
    ValueError
        If a column does not have one value per row, or two columns have one name.
    """
    if sensitive_features is None:
        return {}
    table: dict[Hashable, Any]
    if is_frame(sensitive_features):
        names = names_of(sensitive_features)
        if repeated := repeated_names(sensitive_features):
            raise ValueError(
                f"{argument} has several columns called {repeated[0]!r}: rename them."
            )
        table = {name: column_at(sensitive_features, j) for j, name in enumerate(names)}
    elif isinstance(sensitive_features, Mapping):
        table = dict(sensitive_features)
    elif hasattr(sensitive_features, "name"):  # a series, of polars "" without a name
        name = sensitive_features.name
        table = {"sensitive_feature_0" if name in (None, "") else name: sensitive_features}
    else:
        values = as_column(sensitive_features)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2:
            raise ValueError(
                f"{argument} must have one or two dimensions, got shape {values.shape}."
            )
        table = {f"sensitive_feature_{j}": values[:, j] for j in range(values.shape[1])}
    columns = {}
    # A dict is split by none of scikit-learn's tools.
    remedy = ", in cross-validation a Series or DataFrame" * isinstance(
        sensitive_features, Mapping
    )
    for name, column in table.items():
        values = as_column(column)
        if values.shape != (n_samples,):
            raise ValueError(
                f"{argument}: column {name!r} has shape {values.shape}, but there are "
                f"{n_samples} rows: give one value per row{remedy}."
            )
        columns[name] = values
    return columns


def _factorised(values: NDArray[Any], what: str) -> tuple[tuple[Any, ...], Codes]:
    """Sorted distinct values (the missing one last) and their positions; `what` they are."""
    try:
        codes, found = pd.factorize(values, sort=False)
    except TypeError:
        odd = next(v for v in values if not pd.api.types.is_hashable(v))
        raise ValueError(
            f"{what} hold {odd!r}, a {type(odd).__name__}, which cannot be told apart from other "
            f"values: give one number or text for each row."
        ) from None
    uniques = list(map(plain, found))
    try:
        order = sorted(range(len(uniques)), key=lambda i: uniques[i])
    except TypeError:  # of several types
        order = sorted(range(len(uniques)), key=lambda i: (str(type(uniques[i])), str(uniques[i])))
    position = np.empty(len(uniques) + 1, dtype=np.intp)
    position[order] = np.arange(len(uniques))
    position[-1] = len(uniques)  # factorize writes -1 for missing values
    levels = tuple(uniques[i] for i in order)
    return (*levels, MISSING) if (codes < 0).any() else levels, position[codes]


def codes_among(
    classes: NDArray[np.generic], values: NDArray[Any], what: str
) -> tuple[Codes, list[Any]]:
    """Class index of each value, ``len(classes)`` for others, and the others; `what` all are."""
    known = {plain(value): i for i, value in enumerate(classes)}
    levels, codes = _factorised(values, what)
    position = np.array([known.get(value, len(known)) for value in levels], dtype=np.intp)
    return position[codes], [value for value in levels if value not in known]


def normalize_text(text: str) -> str:
    """Give texts that look alike the same form.

    White space, invisible characters and the composition of letters are made equal.
    """
    visible = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(unicodedata.normalize("NFC", visible).split())


def _warn_of_similar_values(column: Hashable, values: Sequence[Any]) -> None:
    """Warn of values that are different groups and look like different spellings of one."""
    if not any(isinstance(value, str) for value in values):
        return
    alike: dict[str, list[Any]] = {}
    for value in (value for value in values if value is not MISSING):
        alike.setdefault(normalize_text(str(value)).casefold(), []).append(value)
    found = [_quoted(group) for group in alike.values() if len(group) > 1]
    if found:
        issue_warning(
            f"Column {column!r} has values that look alike and are groups of their own: "
            f"{some_of(found)}. Spell them alike if they mean the same.",
            "GC202",
        )


def _quoted(values: Sequence[Any]) -> str:
    """List values in quotes, those that look alike in quotes in ASCII."""
    forms = {unicodedata.normalize("NFC", repr(value)) for value in values}
    return " and ".join(map(repr if len(forms) == len(values) else ascii, values))


@dataclass
class Rows:
    """The rows of one fit, or of one evaluation set.

    Parameters
    ----------
    y : ndarray of shape (n_samples,), intp
        Class index of each row; -1 for rows without a label.
    classes : ndarray of shape (n_classes,)
        The class labels, sorted.
    weight : ndarray of shape (n_samples,), default=None
        Weight of each row in rates; ones by default.
    columns : dict from name to ndarray of shape (n_samples,), default=empty
        Sensitive features.
    features : sequence of feature tables, default=()
        The features of the training rows, then of each further data set: other models are asked
        about them, and DataFrames are searched for columns.
    sources : sequence of str, default=()
        Names of the further data sets, whose rows follow the training rows.
    sizes : sequence of int, default=None
        Number of training rows, and of rows of each further data set.
    like : Rows, default=None
        Training rows, whose groups come first in the numbering; values that do not occur there
        follow them.
    """

    y: Codes
    classes: NDArray[np.generic]
    weight: Float | None = None
    columns: dict[Hashable, NDArray[Any]] = field(default_factory=dict)
    features: Sequence[Any] = ()
    sources: Sequence[str] = ()
    sizes: Sequence[int] | None = None
    like: Rows | None = None
    _attributes: dict[Key, Attribute | Membership] = field(
        default_factory=dict, init=False, repr=False
    )
    _whole: tuple[Rows, Codes] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return self.y.size

    @property
    def n_training(self) -> int:
        """Rows of the training set, which come first."""
        return self.y.size if self.sizes is None else self.sizes[0]

    def take(self, index: Codes) -> Rows:
        """Take some of the rows, with the attributes that all of them have."""
        weight = None if self.weight is None else self.weight[index]
        part = Rows(self.y[index], self.classes, weight, sources=self.sources)
        part.columns = {name: values[:0] for name, values in self.columns.items()}  # the names
        part._whole = self, index
        return part

    def attribute(self, key: Key) -> Attribute | Membership:
        """Look up an attribute of the rows.

        Raises
        ------
        UnavailableError
            If these rows do not have it.
        """
        if key not in self._attributes:
            self._attributes[key] = self._make(key)
        return self._attributes[key]

    def _make(self, key: Key) -> Attribute | Membership:
        if self._whole is not None:
            rows, index = self._whole
            whole = rows.attribute(key)
            return Attribute(whole.levels, whole.codes[index])
        if key == "label":
            levels: tuple[Any, ...] = tuple(self.classes.tolist())
            codes = self.y
            if (self.y < 0).any():
                levels, codes = (*levels, None), np.where(self.y < 0, len(levels), self.y)
            return Attribute(levels, codes)
        if key == "source":
            if self.like is not None:
                raise UnavailableError("a named data set is part of a fit")
            sizes = [self.y.size] if self.sizes is None else self.sizes
            # No data set is called None, as the training rows are here.
            return Attribute((None, *self.sources), np.repeat(np.arange(len(sizes)), sizes))
        if isinstance(key, Mask):
            return self._membership(key)
        if isinstance(key, Deployed):
            return Attribute((*self.classes.tolist(), "other"), self._decisions(key))
        assert isinstance(key, tuple)
        return self._groups(key)

    def _membership(self, mask: Mask) -> Membership:
        if self.like is not None:
            raise UnavailableError("a mask speaks of training rows")
        if mask.n_samples != self.n_training:
            raise ValueError(
                f"on= was given a mask of {mask.n_samples} rows, but the training data have "
                f"{self.n_training} rows: give one boolean per training row. Where rows are split "
                f"or drawn, as in cross-validation, give a column of sensitive_features and its "
                f"value, as in on={{'chosen': True}}."
            )
        return Membership(mask, self.y.size)

    def _column(self, name: Hashable) -> NDArray[Any]:
        """Values of a column, None on rows of data sets that do not have it."""
        parts: list[NDArray[Any]] = []
        sizes = [self.y.size] if self.sizes is None else self.sizes
        found = False
        for i, size in enumerate(sizes):
            table = self.features[i] if i < len(self.features) else None
            if i == 0 and name in self.columns:
                part = self.columns[name]
            elif name in (names := names_of(table)):
                if name in repeated_names(table):
                    raise ValueError(f"X has several columns called {name!r}: rename them.")
                part = column_at(table, names.index(name))
            else:
                part = np.full(size, None, dtype=object)
                parts.append(part)
                continue
            found = True
            parts.append(part)
        if not found:
            known = [*self.columns]
            for table in self.features[:1]:
                known += names_of(table)
            raise UnavailableError(
                f"column {name!r} is neither in sensitive_features nor in X: give it as "
                f"sensitive_features=...; the columns known are {known}."
            )
        if len(parts) == 1:
            return parts[0]
        # numpy would make numbers of nanoseconds of dates.
        return np.concatenate([np.asarray(pd.Series(part).astype(object)) for part in parts])

    def has_column(self, source: str, name: Hashable) -> bool:
        """Whether the rows of a further data set have a column."""
        if self._whole is not None:  # a part keeps no features
            return self._whole[0].has_column(source, name)
        i = 1 + self.sources.index(source)
        return i < len(self.features) and name in names_of(self.features[i])

    def _groups(self, names: Columns) -> Attribute:
        if not names:
            raise UnavailableError(
                "groups are made by no column: give sensitive_features, or by=."
            )
        if len(names) == 1:
            levels, codes = _factorised(self._column(names[0]), f"values of column {names[0]!r}")
            if self.like is None:
                _warn_of_similar_values(names[0], levels)
            levels = tuple((level,) for level in levels)
        else:
            singles = [self.attribute((name,)) for name in names]
            # Column by column: products of many numbers of levels leave 64 bits.
            first, *others = singles
            codes = first.codes.astype(np.intp, copy=False)
            levels = (*first.levels, (None,))
            for single in others:
                values = [*(value for (value,) in single.levels), None]
                combined = codes * len(values) + single.codes
                occurring, codes = np.unique(combined, return_inverse=True)
                before, last = np.divmod(occurring, len(values))
                levels = tuple((*levels[i], values[k]) for i, k in zip(before, last, strict=True))
        if self.like is None:
            return Attribute(levels, codes)
        known = self.like.attribute(names).levels
        position = {level: i for i, level in enumerate(known)}
        further = [level for level in levels if level not in position]
        position |= {level: len(known) + i for i, level in enumerate(further)}
        mapped = np.array([position[level] for level in levels], dtype=np.intp)
        return Attribute((*known, *further), mapped[codes])

    def _decisions(self, deployed: Deployed) -> Codes:
        if deployed.forgotten is not None:
            raise ValueError(
                f"A constraint asks a {deployed} for its decisions, and the file that it was "
                f"loaded from does not hold that model: state the constraint anew with the model, "
                f"as in churn(to=model), and set it by set_params(constraints=...)."
            )
        if deployed.column is not None:
            decisions = self._column(deployed.column)
        elif deployed.decisions is not None:
            if self.like is not None:
                raise UnavailableError("decisions were given for training rows")
            if len(deployed.decisions) != self.n_training:
                raise ValueError(
                    f"The deployed model's decisions have {len(deployed.decisions)} entries, but "
                    f"the training data have {self.n_training} rows: give one per training row, "
                    f"or the model itself. Where rows are split or drawn, as in cross-validation, "
                    f"give the name of a column of sensitive_features that holds them."
                )
            decisions = np.full(self.y.size, None, dtype=object)
            decisions[: self.n_training] = deployed.decisions
        else:
            if not self.features:
                raise UnavailableError(
                    "the other model cannot be asked about rows without features"
                )
            decisions = np.concatenate([_decisions_of(deployed, X) for X in self.features])
        decided, strange = codes_among(self.classes, decisions, "The other model's decisions")
        if (decided[: self.n_training] == self.classes.size).any():
            if strange == [MISSING]:
                raise ValueError(
                    "The other model's decisions hold missing values: it must decide on every "
                    "training row. Drop these rows, or fill the decisions in."
                )
            raise ValueError(
                f"The other model decides {strange[0]!r}, which is not among the classes of y: "
                f"{self.classes.tolist()}."
            )
        return decided


def _decisions_of(deployed: Deployed, X: Any) -> NDArray[Any]:
    """Ask another model for its decision on each row of a table."""
    n = number_of_rows(X)
    try:
        answers = as_column(deployed.model.predict(X))
    except NotFittedError:
        raise ValueError(
            f"The other model, a {deployed}, is not fitted: fit it before the fit of the model "
            f"that is compared with it."
        ) from None
    except Exception as error:  # of whichever library the model is
        what = f"{type(error).__name__}: {str(error).strip().rstrip('.')}"
        raise ValueError(
            f"The other model, a {deployed}, fails to decide on {n} rows. {what}. Give rows with "
            f"the features that it knows, or its decisions in its place, as the name of a column "
            f"of sensitive_features."
        ) from error
    if answers.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"The other model, a {deployed}, answers with shape {answers.shape} for {n} rows: its "
            f"predict must give one label for each row."
        )
    return answers.ravel()
