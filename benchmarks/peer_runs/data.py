"""The data sets of the benchmark: one plain encoding, the groups, the levels that make sense.

Adult, COMPAS and the sample of Credit are bundled; the others are looked for in the folder that
the environment variable GBM_CONSTRAINED_DATA names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_predict, train_test_split

from gbm_constrained.datasets import load_adult, load_compas, load_credit

from .booster import parameters, plain
from .rules import GAP_RULES, NEYMAN_PEARSON, TASKS, value
from .split import Split

# The defaults of LightGBM (leaves) and XGBoost (depth) together, and half the depth for few rows.
LARGE = {"max_depth": 6, "num_leaves": 31}
SMALL = {"max_depth": 3, "num_leaves": 8}


@dataclass(frozen=True)
class Data:
    """A data set and how it is used.

    Parameters
    ----------
    load : callable
        Gives features, labels 0 and 1, and the group of a row, numbered from 0 on (or None).
    levels : tuple of float
        Bounds of Neyman-Pearson's rate.
    rate : {"fpr", "fnr"}, default="fpr"
        The rate that Neyman-Pearson bounds.
    tree : dict, default=LARGE
        Size of the trees.
    has_groups : bool, default=True
        Without groups there are no gaps to bound.
    mostly_positive : bool, default=False
        Whether most rows are positive.
    test_share : float, default=0.3
        Share of the rows that test.
    """

    load: Callable[[], tuple[pd.DataFrame, pd.Series, pd.Series | None]]
    levels: tuple[float, ...] = (0.05, 0.02, 0.01)
    rate: str = "fpr"
    tree: dict[str, int] = field(default_factory=lambda: LARGE)
    has_groups: bool = True
    mostly_positive: bool = False
    test_share: float = 0.3

    @property
    def level_is_met_by_majority(self) -> bool:
        """Whether Neyman-Pearson's rate is zero if all is decided for the larger class."""
        return self.mostly_positive == (self.rate == "fnr")

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the data set has."""
        return TASKS if self.has_groups else (NEYMAN_PEARSON,)


def _adult() -> tuple[Any, ...]:
    data = load_adult(download=False)
    return data.data, data.target, data.sensitive_features["sex"] == "Male"


def _codes(*columns: pd.Series) -> pd.Series:
    """Give the tuples of values of some columns numbers from 0 on."""
    joined = columns[0].astype(str).str.cat([column.astype(str) for column in columns[1:]], "/")
    return joined.astype("category").cat.codes


def _adult_by_race_and_sex() -> tuple[Any, ...]:
    """Races of fewer than 2,000 rows are one: of some, test rows have three positives."""
    data = load_adult(download=False)
    race, sex = (data.sensitive_features[name].astype(str) for name in ("race", "sex"))
    is_large = race.map(race.value_counts()) >= 2000
    return data.data, data.target, _codes(race.where(is_large, "other"), sex)


def _compas() -> tuple[Any, ...]:
    data = load_compas(download=False)
    return data.data, data.target, data.sensitive_features["race"] == "African-American"


def _credit() -> tuple[Any, ...]:
    data = load_credit(download=False)
    return data.data, data.target, None


def _read(file: str) -> pd.DataFrame:
    folder = os.environ.get("GBM_CONSTRAINED_DATA")
    path = Path(folder or ".").expanduser() / file
    if folder is None or not path.is_file():
        raise FileNotFoundError(
            f"{file} is not bundled: put it into a folder and name that in the environment "
            "variable GBM_CONSTRAINED_DATA."
        )
    return pd.read_parquet(path)


def _default() -> tuple[Any, ...]:
    table = _read("default_credit.parquet")
    return table.drop(columns="default payment"), table["default payment"], table["SEX"] == 2


def _bank() -> tuple[Any, ...]:
    table = _read("bank.parquet")
    return table.drop(columns="y"), table["y"] == "yes", table["marital"] == "married"


def _law_school() -> tuple[Any, ...]:
    table = _read("law_school.parquet")
    return table.drop(columns="pass_bar"), table["pass_bar"], table["race"] == "White"


def _law_school_by_race_and_sex() -> tuple[Any, ...]:
    table = _read("law_school.parquet")
    return table.drop(columns="pass_bar"), table["pass_bar"], _codes(table["race"], table["male"])


def _german() -> tuple[Any, ...]:
    table = _read("german.parquet")
    # 1 is a good credit, 2 a bad one; A92 and A95 are women.
    women = table["personal_status_sex"].isin(["A92", "A95"])
    return table.drop(columns="credit_risk"), table["credit_risk"] == 2, ~women


DATA = {
    "adult": Data(_adult),
    "compas": Data(_compas, tree=SMALL),
    "default": Data(_default),
    "bank": Data(_bank),
    # One in nine fails, and seven in ten of these are taken to pass by a plain booster.
    "law_school": Data(_law_school, levels=(0.6, 0.4, 0.2), mostly_positive=True),
    # 210 negative test rows cannot tell 0.01 from 0.02.
    "german": Data(_german, levels=(0.2, 0.1, 0.05), tree=SMALL),
    # Next to no false alarms, but misses, and 148 frauds in test rows.
    "credit": Data(_credit, levels=(0.2, 0.1, 0.05), rate="fnr", has_groups=False),
}

# The same rows with more groups than two, for benchmarks/many_groups.py alone.
MANY_GROUPS = {
    # The smallest group has 95 positives: half of them test.
    "adult_by_race_and_sex": Data(_adult_by_race_and_sex, test_share=0.5),
    "law_school_by_race_and_sex": Data(
        _law_school_by_race_and_sex, levels=DATA["law_school"].levels, mostly_positive=True
    ),
}


def data_of(name: str) -> Data:
    """Return a data set by its name."""
    return (DATA | MANY_GROUPS)[name]


def encoded(features: pd.DataFrame) -> np.ndarray:
    """Numbers as they are, all else as codes of its sorted values; -1 where missing."""
    columns = [
        column.to_numpy(dtype=float)
        if pd.api.types.is_numeric_dtype(column.dtype)
        else column.astype("category").cat.codes.to_numpy(dtype=float)
        for _, column in features.items()
    ]
    return np.nan_to_num(np.column_stack(columns), nan=-1.0)


def split_of(name: str, seed: int) -> tuple[Split, np.ndarray]:
    """Training rows, a quarter of them for calibration, and the labels of the test rows.

    Labels and groups have equal shares in all parts.
    """
    data = data_of(name)
    features, target, codes = data.load()
    X, y = encoded(features), target.to_numpy().astype(int)
    groups = np.zeros(y.size, dtype=int) if codes is None else codes.to_numpy().astype(int)
    cells = (groups.max() + 1) * y + groups
    train, test = train_test_split(
        np.arange(y.size), test_size=data.test_share, stratify=cells, random_state=seed
    )
    _, kept = train_test_split(
        np.arange(train.size), test_size=0.25, stratify=cells[train], random_state=seed
    )
    calibration = np.zeros(train.size, dtype=bool)
    calibration[kept] = True
    parts = (X[train], y[train], groups[train], calibration, X[test], groups[test])
    return Split(*parts), y[test]


def plain_gaps(name: str, trees: int) -> dict[str, float]:
    """Gaps of the plain booster on the training rows of the first split, out of fold.

    To two digits, and 0.02 at least: they say which bounds are worth asking for.
    """
    split, _ = split_of(name, 0)
    model = plain(parameters(trees, DATA[name].tree))
    decisions = cross_val_predict(model, split.X, split.y, cv=4)
    return {
        task: max(float(f"{value(rule, split.y, decisions, split.groups):.2g}"), 0.02)
        for task, rule in GAP_RULES.items()
    }
