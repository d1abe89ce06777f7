"""What is compared: the peers, and the tables with their groups and the levels that make sense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from data_sets import ALL_TABLES, load
from sklearn.model_selection import cross_val_predict, train_test_split

from .methods import (
    CLASS_TASKS,
    GAP_RULES,
    NEYMAN_PEARSON,
    TASKS,
    Split,
    parameters,
    plain,
    rule_of,
    value,
)

ALL_TASKS = (*TASKS, *CLASS_TASKS)
ODDS_AND_RATES = ("selection_rate_gap", "fpr_gap", "tpr_gap", "equalized_odds")


@dataclass(frozen=True)
class Peer:
    """A way to meet a rule.

    Parameters
    ----------
    name : str
        Its name in the table.
    method : str
        Module and class in this folder that runs it.
    tasks : tuple of str
        The tasks that it offers.
    environment : str, default=""
        Name of its requirements file; runs beside this package when empty.
    needs_group : bool, default=False
        Whether its decisions need the sensitive feature.
    is_one_model : bool, default=True
        Whether its decisions are those of one deterministic model.
    calibrates : bool, default=False
        Whether a quarter of the training rows is kept from its booster, to choose decisions on.
    is_slow : bool, default=False
        Whether only every third bound is asked of it.
    asks : tuple of float, default=()
        What is asked of it instead of bounds, such as the rates of a penalty.
    source : str, default=""
        Repository and commit, "address@hash", of a peer that is no package.
    """

    name: str
    method: str
    tasks: tuple[str, ...] = TASKS
    environment: str = ""
    needs_group: bool = False
    is_one_model: bool = True
    calibrates: bool = False
    is_slow: bool = False
    asks: tuple[float, ...] = ()
    source: str = ""


LINEARPOST = (
    "https://github.com/uiuctml/fair-classification@92ca8b3367d307a2030ec4361036ed659923c28c"
)
LINEARPOST_TASKS = ("selection_rate_gap", "tpr_gap", "equalized_odds", *CLASS_TASKS)
PEERS = {
    peer.name: peer
    for peer in (
        Peer("plain", "beside.Plain", ALL_TASKS, asks=(float("inf"),)),
        Peer("ours_lightgbm", "beside.OursLightGBM", ALL_TASKS),
        Peer("ours_xgboost", "beside.OursXGBoost", ALL_TASKS),
        Peer("groups_lightgbm", "beside.GroupsLightGBM", tuple(GAP_RULES), needs_group=True),
        Peer("groups_xgboost", "beside.GroupsXGBoost", tuple(GAP_RULES), needs_group=True),
        Peer("tuned_threshold", "beside.TunedThreshold", calibrates=True),
        Peer("umbrella", "beside.Umbrella", (NEYMAN_PEARSON,), calibrates=True),
        Peer("npmc_cx", "beside.NPMCCX", (NEYMAN_PEARSON,)),
        Peer("npmc_er", "beside.NPMCER", (NEYMAN_PEARSON,)),
        Peer(
            "fairgbm", "others.FairGBM", (NEYMAN_PEARSON, "fpr_gap", "tpr_gap", "equalized_odds"),
            "fairgbm",
        ),
        Peer(
            "exponentiated_gradient", "others.Reduction", tuple(GAP_RULES), "fairlearn",
            is_one_model=False, is_slow=True,
        ),
        Peer(
            "threshold_optimizer", "others.GroupThresholds", ODDS_AND_RATES, "fairlearn",
            needs_group=True, is_one_model=False, calibrates=True,
        ),
        Peer(
            "oxonfair", "others.OxonFair", TASKS, "oxonfair", needs_group=True, calibrates=True
        ),
        Peer(
            "error_parity", "others.ErrorParity", ODDS_AND_RATES, "error_parity",
            needs_group=True, is_one_model=False, calibrates=True,
        ),
        Peer(
            "mmm_fair", "others.MMMFair", ODDS_AND_RATES, "mmm_fair",
            asks=(0.1, 0.2, 0.4, 0.7, 1.0),
        ),
        Peer(
            "linearpost", "others.LinearPost", LINEARPOST_TASKS, "linearpost",
            is_one_model=False, calibrates=True, source=LINEARPOST,
        ),
        Peer(
            "linearpost_groups", "others.LinearPostOfGroups", LINEARPOST_TASKS, "linearpost",
            needs_group=True, is_one_model=False, calibrates=True, source=LINEARPOST,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """How a table of two classes is used.

    Parameters
    ----------
    table : str
        Its name among the tables of all benchmarks.
    by : tuple of str, default=()
        Columns whose values, joined, are the groups. Without groups there are no gaps to bound.
    levels : tuple of float
        Bounds of Neyman-Pearson's rate.
    rate : {"fpr", "fnr"}, default="fpr"
        The rate that Neyman-Pearson bounds.
    mostly_positive : bool, default=False
        Whether most rows are positive.
    test_share : float, default=0.3
        Share of the rows that test.
    fewest : int, default=0
        Values of the first column with fewer rows are one.
    hides_group : bool, default=False
        Whether the features of the table leave the group out. Only peers that need the group have
        it as a feature, then.
    n_classes : int, default=2
        Number of classes.
    """

    table: str
    by: tuple[str, ...] = ()
    levels: tuple[float, ...] = (0.05, 0.02, 0.01)
    rate: str = "fpr"
    mostly_positive: bool = False
    test_share: float = 0.3
    fewest: int = 0
    hides_group: bool = False
    n_classes: int = 2

    @property
    def level_is_met_by_majority(self) -> bool:
        """Whether Neyman-Pearson's rate is zero if all is decided for the larger class."""
        return self.mostly_positive == (self.rate == "fnr")

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the data set has."""
        if self.n_classes > 2:
            return tuple(CLASS_TASKS)
        return TASKS if self.by else (NEYMAN_PEARSON,)

    @property
    def tree(self) -> dict[str, int]:
        """Size of the trees."""
        return ALL_TABLES[self.table].tree

    def codes(self) -> Any:
        """Give the groups of the rows numbers from 0 on."""
        if not self.by:
            return np.zeros(load(self.table).y.size, dtype=int)
        first, *others = (load(self.table).groups[name] for name in self.by)
        first = first.where(first.map(first.value_counts()) >= self.fewest, "other")
        joined = first.str.cat(others, "/") if others else first
        return joined.astype("category").cat.codes.to_numpy().astype(int)


LAW_LEVELS = (0.6, 0.4, 0.2)
DATA = {
    "adult": Data("adult", ("sex",)),
    "compas": Data("compas", ("black",)),
    "default": Data("default", ("sex",)),
    "bank": Data("bank", ("married",)),
    # One in nine fails, and seven in ten of these are taken to pass by a plain booster.
    "law_school": Data("law_school", ("white",), LAW_LEVELS, mostly_positive=True),
    # 210 negative test rows cannot tell 0.01 from 0.02.
    "german": Data("german", ("men",), (0.2, 0.1, 0.05)),
    # Next to no false alarms, but misses, and 148 frauds in test rows.
    "credit": Data("credit", (), (0.2, 0.1, 0.05), "fnr"),
    "compas_score": Data("compas_score", ("black",), n_classes=3),
    "law_thirds": Data("law_thirds", ("white",), n_classes=3),
    "nursery": Data("nursery_of_finance", ("convenient",), n_classes=4),
}
# The same rows with more groups than two, for benchmarks/many_groups.py alone.
MANY_GROUPS = {
    # The smallest group has 95 positives: half of them test. Of some races of fewer than 2,000
    # rows test rows have three positives.
    "adult_by_race_and_sex": Data("adult", ("race", "sex"), test_share=0.5, fewest=2000),
    "law_school_by_race_and_sex": Data(
        "law_school", ("race", "male"), LAW_LEVELS, mostly_positive=True
    ),
}
# ACSIncome, for benchmarks/acs_income.py alone. Seven in ten rows test, so that test gaps have
# small errors. The last has the columns and the eight groups of M2FGB's authors.
ACS = {
    "acs_by_sex": Data("acs_without_sex", ("sex",), test_share=0.7, hides_group=True),
    "acs_by_race": Data("acs_without_race", ("race",), test_share=0.7, hides_group=True),
    "acs_by_race_and_sex": Data(
        "acs_without_race_and_sex", ("race_of_four", "sex"), test_share=0.7, hides_group=True
    ),
    "acs_of_eight_columns": Data("acs_of_eight_columns", ("race_of_four", "sex"), test_share=0.7),
}
ALL_DATA = DATA | MANY_GROUPS | ACS


def split_of(name: str, seed: int) -> tuple[Split, np.ndarray]:
    """Training rows, a quarter of them for calibration, and the labels of the test rows.

    Labels and groups have equal shares in all parts.
    """
    data = ALL_DATA[name]
    X, y, groups = load(data.table).X, load(data.table).y, data.codes()
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
    (split, _), data = split_of(name, 0), ALL_DATA[name]
    model = plain(parameters(trees, data.tree))
    decisions = cross_val_predict(model, split.X, split.y, cv=4)
    rules = [rule_of(task, data.rate, data.n_classes) for task in data.tasks]
    return {
        rule.task: max(float(f"{value(rule, split.y, decisions, split.groups):.2g}"), 0.02)
        for rule in rules
        if rule.is_gap
    }
