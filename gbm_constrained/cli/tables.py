"""Tables in files: columns as they are written there, features, targets, weights and groups."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import itertools
import math
import os
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype
from sklearn.model_selection import train_test_split

from gbm_constrained._typing import Codes, Float
from gbm_constrained.cli.arguments import LIBRARIES, say
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.conditions import columns_named, read_conditions
from gbm_constrained.constraints.selectors import Column
from gbm_constrained.data.fit_data import check_targets
from gbm_constrained.data.splits import Times
from gbm_constrained.data.validation import check_weight

CSV = (".csv", ".csv.gz")
Label = str | int | float | bool


@dataclass(frozen=True)
class LabelledRows:
    """Targets of rows, and what constraints are measured with.

    Attributes
    ----------
    y : ndarray of shape (n_samples,)
        Labels, or the numbers that a regressor is to predict.
    weight : ndarray of shape (n_samples,) or None
        Sample weights.
    groups : DataFrame
        Columns that constraints use.
    time : Series or None
        Time of each row.
    """

    y: NDArray[Any]
    weight: NDArray[Any] | None
    groups: pd.DataFrame
    time: pd.Series[Any] | None = None

    def take(self, index: Codes) -> LabelledRows:
        """Take rows by position."""
        weight = None if self.weight is None else self.weight[index]
        time = None if self.time is None else self.time.iloc[index]
        return LabelledRows(self.y[index], weight, self.groups.iloc[index], time)


def is_csv(path: Path) -> bool:
    """Whether a file is CSV by its name."""
    return path.name.lower().endswith(CSV)


def read_table(path: Path) -> pd.DataFrame:
    """Read a table as pandas does, every column under a name of its own."""
    if is_csv(path):
        # The header is read as a row, because pandas numbers names that occur again.
        header = read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
        counts = Counter(filter(None, header.to_numpy()[0]))
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(
                f"{path} has several columns {repeated[0]!r}: give each its own name."
            )
        # In chunks, pandas may read a column as numbers in one and as texts in another.
        table = read_csv(path, low_memory=False)
    elif importlib.util.find_spec("pyarrow") is None:
        raise ImportError(
            f"reading {path} needs pyarrow: pip install 'gbm_constrained[datasets]', or give CSV."
        )
    else:
        try:
            table = pd.read_parquet(path, engine="pyarrow")
        except (ValueError, OSError) as error:
            raise ValueError(f"{path} cannot be read as Parquet: {error}") from None
    if table.empty:
        raise ValueError(f"{path} has no rows.")
    # Parquet keeps an index. The levels of an index that have names are columns like others.
    named = [name for name in table.index.names if name is not None]
    table = table.reset_index(level=named).reset_index(drop=True)
    return table.set_axis(table.columns.map(str), axis=1)  # One text names several levels.


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Read CSV whose rows may end in a comma; other fields without a name are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            # By default pandas takes the first fields of longer rows as an index, which moves all
            # names by one column.
            table: pd.DataFrame = pd.read_csv(path, index_col=False, **options)
        except pd.errors.ParserWarning:
            raise ValueError(
                f"{path} has rows with more fields than its header has names: name every column."
            ) from None
        # Errors of bytes, of lines, and of compressed files that end too soon name no file.
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be read as CSV in UTF-8: {error}") from None
    return table


def as_values(
    column: pd.Series, texts: pd.Series | None = None, *, keeps_texts: bool = False
) -> pd.Series:
    """Convert a column of labels or groups to values that are alike in CSV and in Parquet.

    Numbers are whole numbers if all of them are. Numbers of CSV stay texts where a number would
    lose something, such as the zero of 01: `texts` are those of a column of numbers in the file.
    """
    if is_datetime64_any_dtype(column):
        return column.astype(str).where(column.notna()).astype(object)
    codes, uniques = pd.factorize(column if texts is None else texts)
    found = uniques.tolist()
    if texts is not None and not keeps_texts:
        found = _as_numbers(found)
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in found):
        is_whole = all(float(value).is_integer() for value in found)
        found = [int(value) if is_whole else float(value) for value in found]
        found = list(map(str, found)) if keeps_texts else found
    return pd.Series(np.array([*found, None], dtype=object)[codes], name=column.name)


def _as_numbers(texts: list[str]) -> list[Any]:
    """Convert texts to numbers, unless a text such as 01 or +1 says more than its number."""
    number = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?)?")
    trimmed = list(map(str.strip, texts))
    if not all(number.fullmatch(text) or str(float(text)) == text for text in trimmed):
        return texts
    numbers = [int(t) if t.removeprefix("-").isdigit() else float(t) for t in trimmed]
    return numbers if len(set(numbers)) == len(set(trimmed)) else texts


def _refuse_missing(target: pd.Series, kind: str) -> None:
    """Refuse a target of which some values are missing."""
    missing = np.flatnonzero(target.isna())
    if missing.size:
        raise ValueError(
            f"--target {target.name}: {missing.size} rows have no {kind}, the first is row "
            f"{missing[0]}: take them out."
        )


def as_labels(values: pd.Series) -> NDArray[Any]:
    """Convert a target to labels: texts, whole numbers or bools, and no value missing."""
    _refuse_missing(values, "label")
    labels = values.tolist()
    types = set(map(type, labels))
    if len(types) > 1 or not types <= {str, int, bool}:
        found = sorted(kind.__name__ for kind in types)
        raise ValueError(
            f"--target {values.name} must hold texts, whole numbers or bools as labels, and holds "
            f"{' and '.join(found)}."
        )
    return np.array(labels)


def as_targets(column: pd.Series) -> Float:
    """Convert the target of a regressor: finite numbers, and no value missing."""
    _refuse_missing(column, "value")
    name = f"--target {column.name}"
    if not is_numeric_dtype(column):
        other = column[pd.to_numeric(column, errors="coerce").isna()]
        example = (column if other.empty else other).iloc[0]
        raise ValueError(
            f"{name} holds {example!r}, which is no number, and the constraints are about "
            f"predicted numbers: write numbers there, or bound rates of classes such as fpr."
        )
    return check_targets(column.to_numpy(dtype=np.float64), name)


def list_missing(path: Path, table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """List the texts that count as missing values in the named columns of a CSV file."""
    names = [name for name in names if table[name].isna().any()]
    if not names or not is_csv(path):
        return []
    texts = read_csv(path, usecols=names, dtype=str, keep_default_na=False)
    return [
        f"{name}: {text!r} is a missing value ({count:,} rows)"
        for name in names
        for text, count in texts[name][table[name].isna()].value_counts().items()
        if text
    ]


def make_categories(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Make categories of the texts in a table of features, and list their columns."""
    table, made = table.copy(), []
    for name in map(str, table):
        dtype = table[name].dtype
        if isinstance(dtype, pd.CategoricalDtype) or is_numeric_dtype(dtype):
            continue
        kind = pd.api.types.infer_dtype(table[name], skipna=True)
        if kind == "boolean":
            table[name] = table[name].astype("boolean")
        elif kind == "empty":  # CSV reads empty columns as NaN, and XGBoost needs a category.
            table[name] = np.nan
        elif kind == "string":
            table[name] = table[name].astype("category")
            made.append(name)
        else:
            raise ValueError(
                f"column {name!r} holds {kind} values, which no booster takes: turn them into "
                f"numbers or texts, or leave the column out."
            )
    return table, made


def are_texts(values: Sequence[Any]) -> bool:
    """Whether there are categories, or labels, and all of them are texts."""
    return bool(values) and all(isinstance(value, str) for value in values)


def describe_missing_column(path: Path, table: pd.DataFrame, name: object) -> str:
    """Say that a table has no such column, and which one may be meant."""
    near = difflib.get_close_matches(str(name), list(table.columns), n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"it has {list(table.columns)}."
    return f"{path} has no column {name!r}: {remedy}"


def list_columns(
    constraints: Sequence[Constraint], table: pd.DataFrame
) -> tuple[list[Any], list[Any]]:
    """List the columns that constraints use, and those of them that hold decisions.

    Conditions stand for their columns, unless the table has a column of that very name.
    """
    names = (name for constraint in constraints for name in constraint.columns)
    used = [column for name in names for column in columns_named(name, table.columns)]
    used += [amount.column for constraint in constraints for amount in constraint.amounts]
    decisions = [m.column for constraint in constraints for m in constraint.reference_models]
    return list(dict.fromkeys([*used, *decisions])), list(dict.fromkeys(decisions))


def find_text_columns(constraints: Sequence[Constraint]) -> set[Any]:
    """Find the columns whose values constraints name as texts, as in on={zip: "02134"}."""
    named: list[tuple[Any, Any]] = []
    for constraint in constraints:
        expression = constraint.expression
        named += zip(expression.columns, expression.reference_group or (), strict=False)
        named += [(c.name, c.value) for c in constraint.selectors if isinstance(c, Column)]
        conditions = itertools.chain.from_iterable(map(read_conditions, constraint.columns))
        named += [(c.column, c.value) for c in conditions]
    return {name for name, value in named if isinstance(value, str)}


def read_rows(
    options: argparse.Namespace,
    constraints: Sequence[Constraint],
    *,
    predicts_numbers: bool,
    model: Any = None,
) -> tuple[pd.DataFrame, LabelledRows]:
    """Read the table; features that a model was trained on as texts are texts in CSV too."""
    path, target = options.data, options.target
    table = read_table(path)
    _check_columns(options, table)
    used, decisions = list_columns(constraints, table)
    used = [name for name in dict.fromkeys([*options.sensitive, *used]) if name in table]
    features = [] if model is None else model.find_text_columns(table)
    numbers = [
        name
        for name in {target, *used, *features}
        if is_numeric_dtype(table[name]) and not is_bool_dtype(table[name])
    ]
    texts = table[[]]
    if numbers and is_csv(path):  # The columns that pandas has read as numbers are read as texts.
        texts = read_csv(path, usecols=numbers, dtype=str).where(table[numbers].notna())
    changed = [name for name in features if name in texts]
    table[changed] = texts[changed]
    if predicts_numbers:
        y: NDArray[Any] = as_targets(table[target])
    else:
        has_text_labels = model is not None and are_texts(model.labels or [])
        values = as_values(table[target], texts.get(target), keeps_texts=has_text_labels)
        y = as_labels(values)
    as_texts = find_text_columns(constraints)
    if y.dtype.kind == "U":
        as_texts.update(decisions)
    groups = {
        name: as_values(table[name], texts.get(name), keeps_texts=name in as_texts)
        for name in used
    }
    for line in list_missing(path, table, used):
        say(options, line)
    weight = None
    if options.weight is not None:
        weight = table[options.weight].to_numpy()
        if weight.dtype.kind not in "iufb":
            raise ValueError(f"--weight {options.weight} must hold numbers.")
        weight = check_weight(weight, len(table), f"--weight {options.weight}")
    time = None if options.time is None else table[options.time]
    return table, LabelledRows(y, weight, pd.DataFrame(groups, index=table.index), time)


def _check_columns(options: argparse.Namespace, table: pd.DataFrame) -> None:
    """Refuse columns that do not exist, or have two roles."""
    roles: dict[str, str] = {}
    for option in ("target", "weight", "time", "sensitive", "drop"):
        given = getattr(options, option, None) or []
        for name in [given] if isinstance(given, str) else given:
            if name not in table:
                missing = describe_missing_column(options.data, table, name)
                raise ValueError(f"--{option}: {missing}")
            if roles.setdefault(name, option) != option:
                raise ValueError(f"--{option} {name}: this column is --{roles[name]} already.")


def make_features(options: argparse.Namespace, table: pd.DataFrame) -> pd.DataFrame:
    """Take the features out of a table, with categories for texts."""
    left_out = {options.target, options.weight, options.time, *options.sensitive, *options.drop}
    names = [name for name in table if name not in left_out]
    if not names:
        raise ValueError(f"{options.data} has no columns left to train on.")
    # Each library refuses these in the name of a feature, without naming the feature.
    refused = "[]<" if options.library == "xgboost" else '",:[]{}'
    if unfit := [name for name in names if set(refused).intersection(str(name))]:
        raise ValueError(
            f"{LIBRARIES[options.library]} trains on no columns with any of {' '.join(refused)} "
            f"in their names, as {unfit[0]!r} has: rename or --drop it."
        )
    X, made = make_categories(table[names])
    if made:
        say(options, f"text columns as categories: {', '.join(made)}")
    for name in made:  # So many distinct texts may identify the rows.
        distinct = X[name].nunique()
        if distinct > min(1000, 0.5 * len(X)):
            say(options, f"{name} has {distinct:,} distinct texts: --drop it if it names rows")
    # pandas names columns without a header so.
    for name in X.columns[X.columns.str.fullmatch(r"Unnamed: \d+")]:
        say(options, f"{name!r} is a feature: --drop it if it is the index of a table")
    return X


def split_rows(
    options: argparse.Namespace, strata: NDArray[Any], time: Any = None
) -> tuple[Codes, Codes]:
    """Split the rows into those to train on and those held out: the latest ones by time.

    Without times, rows of each of the strata are held out.

    Raises
    ------
    ValueError
        If a part lacks a label, or times are missing or have no order.
    """
    rows, share = np.arange(strata.size), options.test_fraction
    if share == 0.0:
        return rows, rows[:0]
    n_labels, n_held_out = np.unique(strata).size, math.ceil(share * strata.size)
    if min(n_held_out, strata.size - n_held_out) < n_labels:
        needed = "rows" if n_labels == 1 else f"rows of all {n_labels} labels"
        raise ValueError(
            f"--test-fraction {share:g} holds out {n_held_out} of {strata.size} rows, and both "
            f"parts need {needed}: give another share, or 0 to train on all rows."
        )
    if time is None:
        parts = train_test_split(rows, test_size=share, stratify=strata, random_state=options.seed)
        return np.sort(parts[0]), np.sort(parts[1])
    times = Times.read(time, rows.size, f"--time {options.time}")
    remedy = "give finer times, or --test-fraction 0"
    earlier, later = (period.rows for period in times.cut([1.0 - share, share], remedy))
    for part, name in ((earlier, "train on"), (later, "hold out")):
        found = np.unique(strata[part])
        if found.size < n_labels:
            raise ValueError(
                f"--time {options.time} leaves rows of {found.tolist()} alone to "
                f"{name}, and both parts need rows of all {n_labels} labels: give another "
                f"--test-fraction, or 0 to train on all rows."
            )
    return earlier, later


def check_input(role: str, path: Path) -> None:
    """Refuse a file that cannot be read."""
    if role == "DATA" and not path.name.lower().endswith((".parquet", ".pq", *CSV)):
        raise ValueError(f"DATA {path} must be a table that ends in .parquet or .csv.")
    if path.is_dir():
        raise ValueError(f"{role} {path} is a folder: name a file in it.")
    if not path.exists():
        others = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        remedy = f"did you mean {path.parent / near[0]}?" if near else "check its name and folder."
        raise ValueError(f"{role} {path} does not exist: {remedy}")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{role} {path} cannot be read: permission is denied.")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{role} {path} is empty: give a file with content.")


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or would be written over another one."""
    # Every option or argument that is a file, as messages name it.
    roles = {"data": "DATA", "model": "MODEL"}
    roles |= {name: f"--{name}" for name in ("out", "html", "json")}
    files = {
        role: getattr(options, name)
        for name, role in roles.items()
        if getattr(options, name, None) is not None
    }
    for (first, one), (second, other) in itertools.combinations(files.items(), 2):
        both_exist = one.exists() and other.exists()  # Then links may lead to one file.
        is_same = one.samefile(other) if both_exist else one.resolve() == other.resolve()
        if second.startswith("--") and is_same:
            raise ValueError(
                f"{second} {other} would be written over {first} {one}: name another file."
            )
    for role, path in files.items():
        if not role.startswith("--"):
            continue
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{role} {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise ValueError(f"{role} {path} is a folder: name a file in it.")
        is_new = not path.exists()
        try:
            path.open("ab").close()  # An existing file stays as it is.
        except OSError as error:
            raise ValueError(f"{role} {path} cannot be written: {error.strerror}.") from None
        if is_new:
            path.unlink()
