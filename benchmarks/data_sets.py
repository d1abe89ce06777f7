"""The tables of the benchmarks: features, targets, groups, and which half constants are chosen on.

Adult, COMPAS and the sample of Credit are bundled; the others are looked for in the folder that
the environment variable GBM_CONSTRAINED_DATA names. Constants of the package are chosen on the
tables of the half "tune", and figures of the sweep are reported of the half "report". A table is
in one half for all tasks.
"""

from __future__ import annotations

import io
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from gbm_constrained.datasets import load_adult, load_compas, load_credit

# The defaults of LightGBM (leaves) and XGBoost (depth) together, and half the depth for few rows.
LARGE = {"max_depth": 6, "num_leaves": 31}
SMALL = {"max_depth": 3, "num_leaves": 8}
TUNE, REPORT = "tune", "report"
FEWEST = 50  # rows of a class; rarer classes are left out
AGES = (0, 25, 35, 45, 55, 65, 200)


class Rows(NamedTuple):
    """Features, targets, columns of groups, and an amount of each row."""

    X: Any
    y: Any
    groups: pd.DataFrame
    amounts: Any


@dataclass(frozen=True)
class Table:
    """A table, its target, and the columns that make groups.

    Parameters
    ----------
    half : {"tune", "report"}
        Whether constants may be chosen on it.
    load : callable
        Gives a frame of features, the target, a frame of group columns, and amounts or None.
    two : tuple of str
        Columns of two values.
    many : tuple of str
        Columns with all their values as they stand.
    tree : dict, default=LARGE
        Size of the trees.
    """

    half: str
    load: Callable[[], tuple[Any, Any, Any, Any]]
    two: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    tree: dict[str, int] = field(default_factory=lambda: LARGE)


def find(file: str) -> Path:
    """Find a file that is not bundled."""
    folder = os.environ.get("GBM_CONSTRAINED_DATA")
    path = Path(folder or ".").expanduser() / file
    if folder is None or not path.is_file():
        raise FileNotFoundError(
            f"{file} is not bundled: put it into a folder and name that in the environment "
            "variable GBM_CONSTRAINED_DATA."
        )
    return path


def read(file: str) -> pd.DataFrame:
    """Read a table that is not bundled."""
    return pd.read_parquet(find(file))


@cache
def read_a9a(name: str) -> tuple[Any, NDArray[np.bool_]]:
    """Read the features of "a9a" or its test rows "a9a.t", and whether each row is positive."""
    text = lzma.decompress(find(f"{name}.xz").read_bytes())
    X, y = load_svmlight_file(io.BytesIO(text), n_features=123)
    return sparse.csr_array(X), y > 0


def encoded(features: pd.DataFrame) -> np.ndarray:
    """Numbers as they are, all else as codes of its sorted values; -1 where missing."""
    columns = [
        column.to_numpy(dtype=float)
        if pd.api.types.is_numeric_dtype(column.dtype)
        else column.astype("category").cat.codes.to_numpy(dtype=float)
        for _, column in features.items()
    ]
    return np.nan_to_num(np.column_stack(columns), nan=-1.0)


def bands(ages: Any) -> pd.Series:
    """Bands of ten years of age as text."""
    return pd.cut(ages, AGES).astype(str)


def texts(**columns: Any) -> pd.DataFrame:
    """Group columns as text, with missing values as a group of their own."""
    return pd.DataFrame({k: pd.Series(np.asarray(v)).astype(str) for k, v in columns.items()})


def _acs(target: str = "PINCP", without: tuple[str, ...] = ()) -> tuple[Any, ...]:
    table = read("acs_income.parquet")
    groups = texts(
        sex=table["SEX"].astype(int), race=table["RAC1P"].astype(int), age=bands(table["AGEP"])
    )
    groups["race_of_four"] = groups["race"].where(groups["race"].isin(["0", "1", "5"]), "other")
    left_out = {"PINCP", target, *without}
    return table.drop(columns=[*left_out]), table[target], groups, table["WKHP"]


def _adult(target: str = "income") -> tuple[Any, ...]:
    data = load_adult(download=False)
    X, given = data.data, data.sensitive_features
    groups = texts(sex=given["sex"], race=given["race"], age=bands(X["age"]))
    if target == "income":
        return X, data.target, groups, X["hours-per-week"]
    return X.drop(columns=target), X[target], groups, None


def _compas() -> tuple[Any, ...]:
    data = load_compas(download=False)
    given = data.sensitive_features
    is_black = given["race"] == "African-American"
    groups = texts(black=is_black, sex=given["sex"], race=given["race"],
                   age=pd.cut(data.data["age"], (0, 25, 45, 200)))  # fmt: skip
    return data.data, data.target, groups, None


def _compas_score() -> tuple[Any, ...]:
    data = load_compas(target="score_text", download=False)
    given = data.sensitive_features
    groups = texts(sex=given["sex"], black=given["race"] == "African-American")
    return data.data, data.target, groups, None


def _credit() -> tuple[Any, ...]:
    data = load_credit(download=False)
    return data.data, data.target, texts(all=np.zeros(len(data.target))), data.data["Amount"]


def _default(target: str = "default payment") -> tuple[Any, ...]:
    table = read("default_credit.parquet")
    groups = texts(
        sex=table["SEX"],
        education=table["EDUCATION"],
        marriage=table["MARRIAGE"],
        age=bands(table["AGE"]),
    )
    if target != "default payment":
        X = table.drop(columns=["default payment", target])
        return X, np.log10(table[target]), groups, None
    return table.drop(columns=target), table[target], groups, table["LIMIT_BAL"] / 1000


def _bank(target: str = "y") -> tuple[Any, ...]:
    table = read("bank.parquet")
    married = table["marital"] == "married"
    groups = texts(married=married, job=table["job"], marital=table["marital"],
                   education=table["education"], age=bands(table["age"]))  # fmt: skip
    if target != "y":
        return table.drop(columns=["y", target]), np.log1p(table[target]), groups, None
    return table.drop(columns="y"), table["y"] == "yes", groups, table["duration"]


def _law(target: str = "pass_bar") -> tuple[Any, ...]:
    table = read("law_school.parquet").dropna(subset=[target, "race"]).reset_index(drop=True)
    groups = texts(white=table["race"] == "White", male=table["male"], race=table["race"],
                   income=table["fam_inc"], tier=table["tier"])  # fmt: skip
    left_out = ["pass_bar"] if target == "pass_bar" else [target, "pass_bar", "zgpa", "decile1b",
                                                          "decile3"]  # fmt: skip
    return table.drop(columns=left_out), table[target], groups, None


def _law_thirds() -> tuple[Any, ...]:
    """Thirds of the first year's grades, which the group and what comes before it predict."""
    X, grades, *others = _law("zfygpa")
    return X, pd.qcut(grades, 3, labels=False), *others


def _nursery() -> tuple[Any, ...]:
    X, y, *_ = _classes("multiclass/nursery.parquet")()
    return X, y, texts(convenient=X["x5"] == "convenient"), None


def _german() -> tuple[Any, ...]:
    table = read("german.parquet")
    women = table["personal_status_sex"].isin(["A92", "A95"])
    status, ages = table["personal_status_sex"], bands(table["age"])
    groups = texts(women=women, men=~women, status=status, age=ages, housing=table["housing"])
    y = table["credit_risk"] == 2
    return table.drop(columns="credit_risk"), y, groups, table["amount"]


def _crime() -> tuple[Any, ...]:
    table = read("communities_crime.parquet").apply(pd.to_numeric, errors="coerce")
    X, shares = table.iloc[:, 5:-1], table.iloc[:, [7, 8, 9, 10]]
    high = (shares > shares.median()).to_numpy()
    groups = texts(black=high[:, 0], hispanic=high[:, 3], state=table.iloc[:, 0].astype(int))
    return X, table.iloc[:, -1], groups, None


def _classes(file: str, merge: Callable[[Any], Any] | None = None) -> Any:
    """Make the loader of a table whose last column is the class."""

    def load() -> tuple[Any, ...]:
        table = read(file)
        y = table.iloc[:, -1]
        return table.iloc[:, :-1], merge(y) if merge else y, texts(all=np.zeros(len(y))), None

    return load


def _rings(y: Any) -> Any:
    """Ten bands of the rings of abalones."""
    return pd.cut(y.astype(float), [0, 5, 6, 7, 8, 9, 10, 11, 13, 16, 99], labels=False)


BINARY = {
    "acs": Table(TUNE, _acs, ("sex",), ("race", "age")),
    "default": Table(TUNE, _default, ("sex",), ("education", "marriage", "age")),
    "german": Table(TUNE, _german, ("women",), ("status", "age", "housing"), SMALL),
    "adult": Table(REPORT, _adult, ("sex",), ("race", "age")),
    "compas": Table(REPORT, _compas, ("black", "sex"), ("race", "age"), SMALL),
    "bank": Table(REPORT, _bank, ("married",), ("job", "marital", "education", "age")),
    "law_school": Table(REPORT, _law, ("white", "male"), ("income", "tier")),
}
AMOUNTS = {
    "credit": Table(TUNE, _credit),
    **{name: BINARY[name] for name in ("default", "german", "adult", "bank")},
}
CLASSES = {
    "dry_bean": Table(TUNE, _classes("dry_bean.parquet")),
    "page_blocks": Table(TUNE, _classes("multiclass/page_blocks.parquet")),
    "satimage": Table(TUNE, _classes("multiclass/satimage.parquet")),
    "compas_score": Table(REPORT, _compas_score, tree=SMALL),
    "pendigits": Table(REPORT, _classes("multiclass/pendigits.parquet")),
    "segment": Table(REPORT, _classes("multiclass/segment.parquet")),
    "nursery": Table(REPORT, _classes("multiclass/nursery.parquet")),
    "fars": Table(REPORT, _classes("multiclass/fars.parquet")),
    "abalone": Table(REPORT, _classes("multiclass/abalone.parquet", _rings), tree=SMALL),
}
TARGETS = {
    "acs_hours": Table(TUNE, lambda: _acs("WKHP"), ("sex",), ("race", "age")),
    "default_limit": Table(
        TUNE, lambda: _default("LIMIT_BAL"), ("sex",), ("education", "marriage", "age")
    ),
    "crime": Table(TUNE, _crime, ("black", "hispanic"), ("state",), SMALL),
    "adult_hours": Table(REPORT, lambda: _adult("hours-per-week"), ("sex",), ("race", "age")),
    "law_grade": Table(REPORT, lambda: _law("zfygpa"), ("white", "male"), ("income", "tier")),
    "bank_duration": Table(
        REPORT, lambda: _bank("duration"), ("married",), ("job", "marital", "age")
    ),
}
# ACSIncome without columns of groups, and without those that M2FGB's authors leave out.
ACS = {
    "acs_without_sex": Table(TUNE, lambda: _acs(without=("SEX",))),
    "acs_without_race": Table(TUNE, lambda: _acs(without=("RAC1P",))),
    "acs_without_race_and_sex": Table(TUNE, lambda: _acs(without=("RAC1P", "SEX"))),
    "acs_of_eight_columns": Table(TUNE, lambda: _acs(without=("OCCP", "POBP"))),
}
# Several classes with groups.
GROUPED_CLASSES = {
    "law_thirds": Table(REPORT, _law_thirds, ("white",)),
    "nursery_of_finance": Table(REPORT, _nursery, ("convenient",)),
}
TABLES = BINARY | AMOUNTS | CLASSES | TARGETS  # Of the sweep, which covers them all.
ALL_TABLES = TABLES | ACS | GROUPED_CLASSES


@cache
def load(name: str) -> Rows:
    """Rows of a table, with features as numbers and classes numbered from 0 on."""
    X, y, groups, amounts = ALL_TABLES[name].load()
    X, y = encoded(pd.DataFrame(X)), np.asarray(y)
    if name not in TARGETS:
        y = np.unique(y.astype(str) if y.dtype == object else y, return_inverse=True)[1]
        kept = np.bincount(y)[y] >= FEWEST
        y = np.unique(y[kept], return_inverse=True)[1]
    else:
        y = y.astype(float)
        kept = np.isfinite(y)
        y = y[kept]
    groups = groups[kept].reset_index(drop=True)
    amounts = None if amounts is None else np.asarray(amounts, dtype=float)[kept]
    return Rows(X[kept], y, groups, amounts)
