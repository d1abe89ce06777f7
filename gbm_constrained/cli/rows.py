"""Rows of a command: labels, weights, groups and features of a table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from gbm_constrained._typing import Codes
from gbm_constrained.cli.arguments import LIBRARIES, say
from gbm_constrained.cli.constraints import find_text_columns, list_columns
from gbm_constrained.cli.model_files import ModelFile
from gbm_constrained.cli.tables import (
    LabelledRows,
    are_texts,
    as_labels,
    as_values,
    describe_missing_column,
    list_missing,
    make_categories,
    read_table,
    read_texts,
)
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.times import Times
from gbm_constrained.data.validation import check_weight

# Characters that each library refuses in the name of a feature, without naming the feature.
REFUSED_CHARACTERS = {"xgboost": "[]<", "lightgbm": '",:[]{}'}
# A column with more distinct texts, or a larger share of distinct texts, may identify its rows.
MAX_TEXTS, MAX_SHARE_OF_TEXTS = 1000, 0.5


def read_rows(
    options: argparse.Namespace, constraints: Sequence[Constraint], model: ModelFile | None = None
) -> tuple[pd.DataFrame, LabelledRows]:
    """Read the table; features that a model was trained on as texts are texts in CSV too."""
    path, target = options.data, options.target
    table = read_table(path)
    _check_columns(options, table)
    used, decisions = list_columns(constraints)
    used = [name for name in dict.fromkeys([*options.sensitive, *used]) if name in table]
    features = [] if model is None else model.find_text_columns(table)
    texts = read_texts(path, table, {target, *used, *features})
    changed = [name for name in features if name in texts]
    table[changed] = texts[changed]
    has_text_labels = model is not None and are_texts(model.labels or [])
    values = as_values(table[target], texts.get(target), keeps_texts=has_text_labels)
    y = as_labels(values, target)
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
    refused = REFUSED_CHARACTERS[options.library]
    if unfit := [name for name in names if set(refused).intersection(str(name))]:
        raise ValueError(
            f"{LIBRARIES[options.library]} trains on no columns with any of {' '.join(refused)} "
            f"in their names, as {unfit[0]!r} has: rename or --drop it."
        )
    X, made = make_categories(table[names])
    if made:
        say(options, f"text columns as categories: {', '.join(made)}")
    for name in made:
        distinct = X[name].nunique()
        if distinct > min(MAX_TEXTS, MAX_SHARE_OF_TEXTS * len(X)):
            say(options, f"{name} has {distinct:,} distinct texts: --drop it if it names rows")
    # pandas names columns without a header so.
    for name in X.columns[X.columns.str.fullmatch(r"Unnamed: \d+")]:
        say(options, f"{name!r} is a feature: --drop it if it is the index of a table")
    return X


def split_rows(options: argparse.Namespace, labelled: LabelledRows) -> tuple[Codes, Codes]:
    """Split the rows into those to train on and those held out: the latest ones by time.

    Raises
    ------
    ValueError
        If a part lacks a label, or times are missing or have no order.
    """
    y, share = labelled.y, options.test_fraction
    rows = np.arange(y.size)
    if share == 0.0:
        return rows, rows[:0]
    n_labels, n_held_out = np.unique(y).size, math.ceil(share * y.size)
    if min(n_held_out, y.size - n_held_out) < n_labels:
        raise ValueError(
            f"--test-fraction {share:g} holds out {n_held_out} of {y.size} rows, and both parts "
            f"need rows of all {n_labels} labels: give another share, or 0 to train on all rows."
        )
    if labelled.time is None:
        parts = train_test_split(rows, test_size=share, stratify=y, random_state=options.seed)
        return np.sort(parts[0]), np.sort(parts[1])
    times = Times.read(labelled.time, len(rows), f"--time {options.time}")
    remedy = "give finer times, or --test-fraction 0"
    earlier, later = (period.rows for period in times.cut([1.0 - share, share], remedy))
    for part, name in ((earlier, "train on"), (later, "hold out")):
        if np.unique(y[part]).size < n_labels:
            raise ValueError(
                f"--time {options.time} leaves rows of {np.unique(y[part]).tolist()} alone to "
                f"{name}, and both parts need rows of all {n_labels} labels: give another "
                f"--test-fraction, or 0 to train on all rows."
            )
    return earlier, later
