"""Constraints on pair rates: test AUC and test gaps under each, on both libraries.

    python benchmarks/auc.py [TABLE ...] [--library xgboost lightgbm] [--set compas bank a9a]
        [--seeds 5] [--output FOLDER]

Each TABLE is one of these, and without a name all are printed:

- adult: one constraint by sex on Adult's own split, depth 4 or 15 leaves, 150 rounds at 0.1.
- hidden: the same without the column of the sexes among the features.
- splits: the constraints of 0.01 on three random splits of 70/30.
- affine: an affine change of women's scores, which needs the sex at prediction, in the place of a
  constraint: margins become ``slope * margin + shift``. Of a grid of both, that of the largest AUC
  is taken among those that meet the constraint out of fold. It cannot change the gap of `auc`.
- both: `cross_auc` and `auc` by sex at 0.02 together.
- threshold: an AUC constraint beside `fpr() <= 0.05`.
- groups: COMPAS by race, races of 300 rows or more.
- cost: CPU time over that of plain fits, 300,000 rows of 30 columns. Plain and constrained fits
  alternate within one process, so that other work on the machine slows both.
- growth: CPU time of a round at 100,000 and 1,000,000 rows.
- linear: ``ConstrainedLogisticRegression`` on a9a by sex with defaults, in the set's own split, by
  the density of scores and by the square.
- square: both proxies side by side in XGBoost (depth 4, 150 rounds at 0.1, four folds) on Adult's
  own split. Gaps on training rows are those that the constraint bounds; those of boosters are
  out of fold.
- pareto: Figures 1 to 4 of the source paper, with boosters. Three sets: a9a by sex, bank by age
  (25 to 60 or not) and COMPAS by race (Caucasian or not). The paper's COMPAS has 11,757
  rows, this one 7,214. Rows are split 60/20/20, those of a9a as they come with a fifth of the
  training rows for validation. At each bound the fit of largest validation AUC is taken among
  those whose gap on validation rows is within the bound, and test rows measure it. The learners:

  - linear, units: the level-set method with a linear score or ten sigmoid units, at several kappa.
  - lagrangian: `ConstrainedLogisticRegression`, a linear score under a proxy-Lagrangian, whose
    multipliers move on the true gaps and whose gradients see a smooth stand-in.
  - xgboost, lightgbm: 100 rounds at 0.05, at several bounds, fewer of them on bank and a9a.
  - affine: an affine change of the linear scores of one group, which needs the group.
  - correlation: a linear score with the correlation of score and group as a penalty on the
    logistic loss, for `mean_rank` only.

Gaps are of women less men. "held out" is the largest value of the constraints out of fold, which a
fit reports. Nothing is chosen on test rows. Rows of a CSV are measured once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from data_sets import read, read_a9a
from libraries import LIBRARIES
from libraries import make as make_model
from numpy.typing import NDArray
from result_file import HERE, Figures, Table, at_least, make_parser, run_tables
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.preprocessing import StandardScaler
from sweep_rules import area

from gbm_constrained import CrossFit, auc, cross_auc, each, fpr, gap, label, mean_rank, overall
from gbm_constrained.data.rows import Rows
from gbm_constrained.datasets import load_adult
from gbm_constrained.linear_model import ConstrainedAUCScorer, ConstrainedLogisticRegression
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.pairs import pair_rate, pair_table
from gbm_constrained.solvers import ABPP

OWN = "own"  # The split that Adult comes with.
HIDDEN = "own, sex hidden"  # The same, without the column of the groups among the features.
BOUNDS = (0.05, 0.02, 0.01)
CELLS = [
    ("plain", 0.0),
    *((rule, bound) for rule in ("mean_rank", "cross_auc", "subgroup") for bound in BOUNDS),
    ("auc", 0.02),
    ("positives", 0.01),
]
# Test AUC that a prototype of the density kernel reached, rounded down.
EARLIER = {
    ("mean_rank", 0.05): 0.919, ("mean_rank", 0.02): 0.915, ("mean_rank", 0.01): 0.914,
    ("cross_auc", 0.05): 0.922, ("cross_auc", 0.02): 0.919, ("cross_auc", 0.01): 0.918,
    ("subgroup", 0.05): 0.922, ("subgroup", 0.02): 0.920, ("subgroup", 0.01): 0.918,
    ("auc", 0.02): 0.915, ("positives", 0.01): 0.925,
}  # fmt: skip
Score = NDArray[np.float64]


def make(library: str, constraints: list[Any], **options: Any) -> Any:
    """Make a classifier under constraints."""
    size = {"max_depth": 4} if library == "xgboost" else {"num_leaves": 15}
    given = {"n_estimators": 150, "learning_rate": 0.1, "n_jobs": 1, **size, **options}
    return make_model(library, constraints, **given)


class Split(NamedTuple):
    """Features, labels of 0 and 1, and the group of each row, of training and test rows."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    group: NDArray[np.str_]
    X_test: pd.DataFrame
    y_test: NDArray[np.int64]
    group_test: NDArray[np.str_]

    @property
    def fit_options(self) -> dict[str, Any]:
        """Give the groups to a fit whose features lack them."""
        if "sex" in self.X:
            return {}
        return {"sensitive_features": pd.DataFrame({"sex": self.group}, index=self.X.index)}


def load_split(split: str) -> Split:
    """Read Adult by sex: its own split, or a random one of 70/30 whose seed is given."""
    adult = load_adult()
    X, y, group = adult.data, adult.target.to_numpy(), adult.data["sex"].astype(str).to_numpy()
    rows = np.arange(y.size)
    if split == HIDDEN:
        X = X.drop(columns="sex")
    if split in (OWN, HIDDEN):
        is_train = (adult.split == "train").to_numpy()
        train, test = rows[is_train], rows[~is_train]
    else:
        train, test = train_test_split(rows, test_size=0.3, random_state=int(split), stratify=y)
    return Split(X.iloc[train], y[train], group[train], X.iloc[test], y[test], group[test])


def load_compas() -> tuple[pd.DataFrame, NDArray[np.int64], NDArray[np.str_]]:
    """Read the 7,214 rows of the two-year file by race, without the scores of COMPAS."""
    frame = read("compas.parquet")
    kept = [
        "sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count",
        "priors_count", "c_charge_degree",
    ]  # fmt: skip
    X = frame[kept].apply(lambda c: c.astype("category") if c.dtype.kind not in "if" else c)
    return X, frame["two_year_recid"].to_numpy(np.int64), frame["race"].astype(str).to_numpy()


def background_subgroup(bound: float) -> list[Any]:
    """Bound the difference of Example 5 for women, with all rows as background, both ways."""
    women = {"sex": "Female"}
    difference = auc(negatives=women) - auc(positives=women)
    return [difference <= bound, difference >= -bound]


RULES: dict[str, Callable[[float], list[Any]]] = {
    "plain": lambda bound: [],
    "mean_rank": lambda bound: [gap(mean_rank(), by="sex") <= bound],
    "cross_auc": lambda bound: [gap(cross_auc(), by="sex") <= bound],
    "subgroup": background_subgroup,
    "auc": lambda bound: [gap(auc(), by="sex") <= bound],
    "positives": lambda bound: [
        gap(mean_rank(on=label(1)), by="sex", reference=overall) <= bound
    ],
    "both": lambda bound: [
        gap(cross_auc(), by="sex") <= bound, gap(auc(), by="sex") <= bound,
    ],
}  # fmt: skip
GAPS = ("mean_rank", "cross_auc", "subgroup", "auc", "positives")


def rank_pairs(score: Score, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """Compute the fraction of pairs whose first row scores higher, ties by half."""
    return area(score[first], score[second])


def measure_pairs(y: Any, score: Score, group: Any) -> Figures:
    """Measure the AUC and the signed gaps of two groups: the first by name less the second."""
    a, b = (group == name for name in np.unique(group))
    p, n = y == 1, y == 0
    everyone = np.full(y.size, True)
    ranked = {name: rank_pairs(score, of, everyone) for name, of in (("a", a), ("b", b))}
    return {
        "test_auc": rank_pairs(score, p, n),
        "mean_rank": ranked["a"] - ranked["b"],
        "cross_auc": rank_pairs(score, p & a, n & b) - rank_pairs(score, p & b, n & a),
        "subgroup": rank_pairs(score, p, n & a) - rank_pairs(score, p & a, n),
        "auc": rank_pairs(score, p & a, n & a) - rank_pairs(score, p & b, n & b),
        "positives": max(
            (rank_pairs(score, p & of, p) - 0.5 for of in (a, b)), key=abs
        ),
    }  # fmt: skip


def measure_cell(library: str, rule: str, bound: float, split: str) -> Figures:
    """Fit under a constraint by sex, and measure it on test rows."""
    rows = load_split(split)
    model = make(library, RULES[rule](bound))
    start = time.process_time()
    model.fit(rows.X, rows.y, **rows.fit_options)
    seconds = time.process_time() - start
    score = model.predict_proba(rows.X_test)[:, 1]
    found = measure_pairs(rows.y_test, score, rows.group_test)
    held_out = np.nan
    if model.constraints:
        held_out = float(model.constraint_report_["held_out"].astype(float).abs().max())
    return found | {"held_out": held_out, "cpu_seconds": seconds}


def describe_cell(found: pd.DataFrame, library: str, rule: str, bound: float, *_: Any) -> Any:
    """Write the gaps that a constraint is about, and what a prototype reached."""
    gaps = [rule] if rule in GAPS else [g for g in GAPS if rule == "plain" or g.endswith("auc")]
    shown = ", ".join(f"{found[g].mean():+.4f}" for g in gaps)
    return {"gaps": shown, "earlier": EARLIER.get((rule, bound), np.nan)}


def table_of_cells(cells: Sequence[tuple[str, float]], splits: Sequence[str]) -> Table:
    """Make a table of the test AUC and gap under each constraint, means over the splits."""
    return Table(
        measure_cell,
        {"library": LIBRARIES, "rule bound": cells, "split": splits},
        "{library:9} {rule:10} {bound:5}  {held_out:11.4f}  {gaps:8}  {test_auc:8.4f}  "
        "{earlier:9}   {cpu_seconds:11.1f}",
        describe_cell,
        heading="library   rule       bound  out of fold  test gap  test AUC  prototype  seconds",
        file="adult",
    )


# ------------------------------------------------------------------- an affine change of scores
SLOPES = np.linspace(0.6, 1.4, 9)
SHIFTS = np.linspace(-3.0, 3.0, 121)


def measure_affine(library: str, rule: str, bound: float) -> Figures:
    """Choose an affine change out of fold, and measure it on test rows."""
    rows = load_split(OWN)
    is_woman, is_woman_test = rows.group == "Female", rows.group_test == "Female"
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    plain = make(library, [])
    p = cross_val_predict(plain, rows.X, rows.y, cv=folds, method="predict_proba")[:, 1]
    slope, shift, held_out = choose(logit(p), rows.y, is_woman, rule, bound)
    margin = logit(plain.fit(rows.X, rows.y).predict_proba(rows.X_test)[:, 1])
    changed = np.where(is_woman_test, slope * margin + shift, margin)
    found = measure_pairs(rows.y_test, changed, rows.group_test)
    return {
        "held_out": held_out,
        "test_gap": found[rule],
        "test_auc": found["test_auc"],
        "slope": slope,
        "shift": shift,
    }


def choose(
    margin: Score, y: Any, is_woman: NDArray[np.bool_], rule: str, bound: float
) -> tuple[float, float, float]:
    """Find slope and shift of the largest AUC under the rule, and the gap that they leave."""
    # Cells are men's negatives and positives, then women's.
    cells = y + 2 * is_woman
    weight = np.bincount(cells, minlength=4).astype(np.float64)
    best: tuple[float, Any] = (-1.0, None)
    for slope, shift in itertools.product(SLOPES, SHIFTS):
        changed = np.where(is_woman, slope * margin + shift, margin)
        table = pair_table(changed, cells, None, 4)
        found = gap_of(table, weight, rule)
        value = pair_rate(table, weight * [0, 1, 0, 1], weight * [1, 0, 1, 0])
        if abs(found) <= bound and value > best[0]:
            best = (value, (float(slope), float(shift), found))
    if best[1] is None:
        raise ValueError(f"No affine change meets {rule} <= {bound} out of fold: widen the grid.")
    return best[1]


def gap_of(table: Any, weight: Any, rule: str) -> float:
    """Compute a gap of women less men from the table of pairs."""

    def rate(first: Any, second: Any) -> float:
        return pair_rate(table, weight * first, weight * second)

    every = np.ones(4)
    if rule == "mean_rank":
        return rate([0, 0, 1, 1], every) - rate([1, 1, 0, 0], every)
    if rule == "cross_auc":
        return rate([0, 0, 0, 1], [1, 0, 0, 0]) - rate([0, 1, 0, 0], [0, 0, 1, 0])
    return rate([0, 1, 0, 1], [0, 0, 1, 0]) - rate([0, 0, 0, 1], [1, 0, 1, 0])


# ------------------------------------------------------------- thresholds, and groups of COMPAS


def measure_threshold(library: str) -> Figures:
    """Fit an AUC rule with and without a bound on false positives."""
    rows = load_split(OWN)
    ranked = gap(cross_auc(), by="sex") <= 0.02
    model = make(library, [ranked, fpr() <= 0.05]).fit(rows.X, rows.y)
    report = model.constraint_report_
    score = model.predict_proba(rows.X_test)[:, 1]
    decided = np.asarray(model.predict(rows.X_test))
    found = measure_pairs(rows.y_test, score, rows.group_test)
    return {
        "held_out_gap": float(report["held_out"].iloc[0]),
        "held_out_fpr": float(report["held_out"].iloc[1]),
        "test_gap": found["cross_auc"],
        "test_fpr": float(decided[rows.y_test == 0].mean()),
        "test_auc": found["test_auc"],
        "shift": float(np.ravel(model.shift_)[0]),
    }


def measure_groups(library: str, rule: str, bound: float, split: int) -> Figures:
    """Fit a rule of the races of COMPAS, and measure the AUC of each race on test rows."""
    X, y, race = load_compas()
    names, sizes = np.unique(race, return_counts=True)
    kept = np.isin(race, names[sizes >= 300])
    X, y, race = X[kept], y[kept], race[kept]
    X = X.assign(race=X["race"].cat.remove_unused_categories())
    parts = train_test_split(X, y, race, test_size=0.3, random_state=split, stratify=race)
    X, X_test, y, y_test, _, race_test = parts
    rules = {"gap": [gap(auc(), by="race") <= bound], "each": [each(auc(), by="race") >= bound]}
    model = make(library, rules.get(rule, []), n_estimators=100, learning_rate=0.05).fit(X, y)
    score = model.predict_proba(X_test)[:, 1]
    of_race = [
        float(roc_auc_score(y_test[race_test == name], score[race_test == name]))
        for name in np.unique(race_test)
    ]
    held_out = model.constraint_report_["held_out"].iloc[0] if rule in rules else np.nan
    return {
        "held_out": float(held_out),
        "test_gap": float(np.ptp(of_race)),
        "test_worst": float(min(of_race)),
        "test_auc": float(roc_auc_score(y_test, score)),
    }


# -------------------------------------------------------------------------------------- CPU time
GROUPS = 8
SHORT, LONG = 5, 25  # Rounds. What is subtracted is what a fit costs once, whatever their number.


def draw_rows(n: int, n_groups: int) -> tuple[pd.DataFrame, Any]:
    """Draw features, of which one is the group, and labels; 0.3 of them are positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 29)).astype(np.float32)
    group = rng.integers(0, n_groups, n)
    noise = rng.normal(size=n) * (1.0 + 0.1 * group)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 + 0.1 * group + noise
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(29)])
    return table.assign(group=group), (score > np.quantile(score, 0.7)).astype(int)


def two_rules() -> list[Any]:
    """Bound two gaps of pair rates between two groups."""
    return [gap(auc(), by="group") <= 0.01, gap(cross_auc(), by="group") <= 0.01]


def hundred_rules() -> list[Any]:
    """Bound differences of the AUCs of eight groups, and of cross AUCs between them."""
    pairs = list(itertools.permutations(({"group": g} for g in range(GROUPS)), 2))
    within = [auc(on=a) - auc(on=b) <= 0.01 for a, b in pairs]
    across = [
        auc(positives=a, negatives=b) - auc(positives=b, negatives=a) <= 0.01 for a, b in pairs
    ]
    return [*within, *across][:100]


CASES = {"two": (two_rules, 2), "hundred": (hundred_rules, GROUPS)}


def time_fit(library: str, rules: list[Any], X: Any, y: Any, rounds: int) -> float:
    """Measure the CPU seconds of a fit."""
    model = make(library, rules, measure_on="train", n_estimators=rounds, max_bin=255)
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def measure_cost(library: str, case: str) -> Figures:
    """Fit with and without rules in turn."""
    rules, n_groups = CASES[case]
    X, y = draw_rows(300_000, n_groups)
    seconds = np.array(
        [[time_fit(library, made, X, y, 40) for made in ([], rules())] for _ in range(3)]
    )
    plain, constrained = np.median(seconds, axis=0)
    ratio = float(np.median(seconds[:, 1] / seconds[:, 0]))
    return {"ratio": ratio, "plain": float(plain), "constrained": float(constrained)}


def measure_round(library: str, rows: int) -> Figures:
    """Measure the CPU seconds of a round under two constraints."""
    X, y = draw_rows(rows, 2)
    short, long = (time_fit(library, two_rules(), X, y, n) for n in (SHORT, LONG))
    return {"seconds": (long - short) / (LONG - SHORT)}


# --------------------------------------------------------------- the density of scores, the square
PROXY_RULES = {
    "cross_auc": RULES["cross_auc"], "background": background_subgroup, "auc": RULES["auc"],
    "mean_rank": RULES["mean_rank"],
}  # fmt: skip
LINEAR_BARS = {"cross_auc": 0.893, "background": 0.895}
# AUC that a prototype reached with the density and, in boosters, with the square.
PROTOTYPE = {
    ("cross_auc", "auto"): 0.9185, ("cross_auc", "square"): 0.9093,
    ("auc", "auto"): 0.9138, ("auc", "square"): 0.8925,
}  # fmt: skip


def measure_rule(y: Any, sex: Any, scores: Any, rule: str) -> tuple[float, float]:
    """AUC, and the difference that a constraint bounds, by exact tables of pairs."""
    constraints = [auc() >= 0.5, PROXY_RULES[rule](0.5)[0]]
    cells, compiled = compile_constraints(
        constraints, Rows(y, np.array([0, 1]), None, {"sex": sex})
    )
    statistics = Lagrangian(y, cells, compiled).at(scores).statistics()
    first, second = compiled.values(compiled.functionals(statistics))
    return float(first), float(second)


def fit_linear(rule: str, bound: float, proxy: str) -> Figures:
    """Fit the linear model on a9a; its gap is that of its training rows."""
    (X, y), (X_test, y_test) = (read_a9a(name) for name in ("a9a", "a9a.t"))
    sex, sex_test = (
        np.where(part[:, [WOMAN]].toarray().ravel() > 0, "Female", "Male") for part in (X, X_test)
    )
    started = time.perf_counter()
    model = ConstrainedLogisticRegression(
        constraints=PROXY_RULES[rule](bound), constraint_solver=ABPP(proxy=proxy), max_iter=300
    )
    model.fit(X, y.astype(int), sensitive_features={"sex": sex})
    seconds = time.perf_counter() - started
    _, on_training = measure_rule(y.astype(int), sex, model.decision_function(X), rule)
    found = measure_rule(y_test.astype(int), sex_test, model.decision_function(X_test), rule)
    return {"gap": on_training, "test_auc": found[0], "test_gap": found[1], "seconds": seconds}


def fit_booster(rule: str, bound: float, proxy: str) -> Figures:
    """Fit XGBoost on Adult; its gap is that of the scores out of fold."""
    rows = load_split(OWN)
    started = time.perf_counter()
    model = make(
        "xgboost", PROXY_RULES[rule](bound), solver=ABPP(proxy=proxy), measure_on=CrossFit(4),
        tree_method="hist", random_state=0,
    )  # fmt: skip
    model.fit(rows.X, rows.y, sensitive_features={"sex": rows.group})
    seconds = time.perf_counter() - started
    scores = model.predict(rows.X_test, output_margin=True).astype(float)
    found = measure_rule(rows.y_test, rows.group_test, scores, rule)
    held_out = float(model.constraint_report_["held_out"].iloc[0])
    return {"gap": held_out, "test_auc": found[0], "test_gap": found[1], "seconds": seconds}


PROXY_LINE = (
    "{rule:10s} <= {bound:<5g} {proxy:6s} gap {gap:7.4f}  test AUC {test_auc:.4f} @ "
    "{test_gap:.4f}  {seconds:5.0f} s  {note}"
)


def show_gain(found: pd.DataFrame) -> str:
    """Write what the density has over the square."""
    reached = found.pivot(index="rule", columns="proxy", values="test_auc")
    gains = reached["auto"] - reached["square"]
    return "\n".join(f"{rule}: the density has {gain:+.4f} AUC (bar: +.005)"
                     for rule, gain in gains.items())  # fmt: skip


# ----------------------------------------------------------------------------------------- fronts
SETS = ("compas", "bank", "a9a")
RATES = {"mean_rank": mean_rank, "cross_auc": cross_auc, "auc": auc}
PENALTIES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
LEARNERS = ("linear", "units", "lagrangian", "affine", "correlation", "xgboost", "lightgbm")
FRONT_BOUNDS = (0.1, *BOUNDS)
KAPPAS = (3.0, 0.6, 0.3, 0.1, 0.03)
FIRST = "a"  # The group whose rates less the other's are the gap.
WOMAN = 71  # Column of women in a9a, from 0.
Rank = Callable[[Score, NDArray[np.str_]], Score]


class Part(NamedTuple):
    """Standardised features, labels of 0 and 1, and groups of rows."""

    X: Score
    y: NDArray[np.int64]
    group: NDArray[np.str_]


@cache
def read_set(name: str) -> tuple[Score, NDArray[np.int64], NDArray[np.bool_]]:
    """Read features, labels, and which rows are in the first group."""
    if name == "compas":
        X, y, race = load_compas()
        return pd.get_dummies(X).to_numpy(np.float64), y, race == "Caucasian"
    if name == "bank":
        frame = read("bank.parquet")
        X = pd.get_dummies(frame.drop(columns="y")).to_numpy(np.float64)
        return X, (frame["y"] == "yes").to_numpy(int), frame["age"].between(25, 60).to_numpy()
    parts = [read_a9a(file) for file in ("a9a", "a9a.t")]
    X = np.concatenate([part.toarray() for part, _ in parts])
    return X, np.concatenate([y for _, y in parts]).astype(int), X[:, WOMAN] == 1.0


def split_set(name: str, seed: int) -> tuple[Part, Part, Part]:
    """Split a set into training, validation and test rows."""
    X, y, is_first = read_set(name)
    X, group = StandardScaler().fit_transform(X), np.where(is_first, FIRST, "b")
    if name == "a9a":
        rest, test = np.split(np.arange(y.size), [32_561])
    else:
        rest, test = train_test_split(np.arange(y.size), test_size=0.2, random_state=seed)
    share = 0.2 if name == "a9a" else 0.25
    train, validation = train_test_split(rest, test_size=share, random_state=seed)
    first, second, third = (Part(X[r], y[r], group[r]) for r in (train, validation, test))
    return first, second, third


def fit(learner: str, metric: str, setting: float, train: Part, validation: Part) -> Rank:
    """Fit a learner, and return what ranks rows of given groups."""
    groups = pd.DataFrame({"group": train.group})
    rule = [gap(RATES[metric](), by="group") <= min(setting, 1.0)]
    if learner in ("lagrangian", "xgboost", "lightgbm"):
        # A rule that never binds leaves the plain fit, which needs no folds.
        binding = rule if setting < 1.0 else []
        model = (
            ConstrainedLogisticRegression(constraints=binding)
            if learner == "lagrangian"
            else make(learner, binding, n_estimators=100, learning_rate=0.05)
        )
        model.fit(train.X, train.y, sensitive_features=groups)
        return lambda X, group: model.predict_proba(X)[:, 1]
    if learner == "correlation":
        w = fit_correlation(train, setting)
        return lambda X, group: X @ w
    if learner == "affine":
        plain = ConstrainedAUCScorer().fit(train.X, train.y)
        margin, is_first = plain.decision_function(validation.X), validation.group == FIRST
        slope, shift, _ = choose(margin / margin.std(), validation.y, is_first, metric, setting)
        shift = shift * margin.std()
        return lambda X, group: np.where(
            group == FIRST, slope * plain.decision_function(X) + shift, plain.decision_function(X)
        )
    scorer = ConstrainedAUCScorer(
        rule, hidden=10 if learner == "units" else 0, slack=max(setting - 1.0, 0.0), n_steps=1000
    )
    scorer.fit(train.X, train.y, sensitive_features=groups)
    return lambda X, group: scorer.decision_function(X)


def fit_correlation(train: Part, penalty: float) -> Score:
    """Fit a linear score to the logistic loss and the absolute correlation with the group."""
    start = np.full(train.X.shape[1] + 1, 1e-3)
    objective = correlation_objective(train, penalty)
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B").x[:-1])


def correlation_objective(train: Part, penalty: float) -> Callable[[Score], tuple[float, Score]]:
    """Make the penalised loss of coefficients and an intercept, with its gradient."""
    X = np.column_stack([train.X, np.ones(train.y.size)])
    sign, centred = 2.0 * train.y - 1.0, (train.group == FIRST) - np.mean(train.group == FIRST)
    centred = centred / centred.std()

    def objective(w: Score) -> tuple[float, Score]:
        score = X @ w
        apart, spread = score - score.mean(), max(score.std(), 1e-9)
        correlation = np.mean(apart * centred) / spread
        size = np.sqrt(correlation**2 + 1e-8)  # Smooth at zero.
        loss = np.mean(np.logaddexp(0.0, -sign * score)) + penalty * size + 1e-4 * w @ w
        of_score = centred / spread - correlation * apart / spread**2
        slope = -sign * expit(-sign * score) + penalty * correlation / size * of_score
        return float(loss), X.T @ slope / sign.size + 2e-4 * w

    return objective


def measure_learner(name: str, metric: str, learner: str, setting: float, seed: int) -> Figures:
    """Fit a learner at one setting, and measure it on validation and test rows."""
    train, validation, test = split_set(name, seed)
    rank = fit(learner, metric, setting, train, validation)
    found = {}
    for part, rows in (("validation", validation), ("test", test)):
        pairs = measure_pairs(rows.y, rank(rows.X, rows.group), rows.group)
        found |= {f"{part}_auc": pairs["test_auc"], f"{part}_gap": abs(pairs[metric])}
    return found


def settings(name: str, learner: str, metric: str) -> Sequence[float]:
    """List what a learner is fitted at on a set; nothing where it cannot change the gap."""
    # Fewer of what is fitted to many rows.
    bounds = FRONT_BOUNDS if name == "compas" else BOUNDS[:2]
    if learner in ("linear", "units"):
        return KAPPAS
    if learner == "affine":
        return () if metric == "auc" else bounds
    if learner == "correlation":
        return PENALTIES if metric == "mean_rank" else ()
    return (1.0, *bounds)


def find_fronts(records: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Choose a fit on validation rows for each bound and seed; means and errors over seeds."""
    for (metric, learner), family in records.groupby(["metric", "learner"], sort=False):
        for bound in FRONT_BOUNDS:
            feasible = family[family["validation_gap"] <= bound]
            if feasible.empty:
                continue
            best = feasible.loc[feasible.groupby("seed")["validation_auc"].idxmax()]
            line = {"metric": metric, "learner": learner, "bound": bound, "seeds": len(best)}
            for figure in ("test_auc", "test_gap"):
                line |= {figure: best[figure].mean(), f"{figure}_error": best[figure].sem()}
            yield line


def show_fronts(records: pd.DataFrame) -> str:
    """Write the test AUC @ test gap at each bound, and draw the fronts."""
    texts = []
    for name, of_set in records.groupby("set", sort=False):
        front = pd.DataFrame(find_fronts(of_set))
        draw(front, str(name))
        texts.append(f"{name}\n{front.round(4).to_string(index=False)}")
    return "\n".join(texts)


def draw(front: pd.DataFrame, name: str) -> None:
    """Draw the fronts of a set where all seeds have a fit, one panel for each metric."""
    import matplotlib.pyplot as plt

    from gbm_constrained.plotting import COLOURS

    colours = dict(zip(LEARNERS, COLOURS, strict=False))
    figure, axes = plt.subplots(1, len(RATES), figsize=(13, 4.2), layout="constrained")
    for ax, metric in zip(axes, RATES, strict=True):
        drawn = front[(front["metric"] == metric) & (front["seeds"] == front["seeds"].max())]
        for learner, points in drawn.groupby("learner", sort=False):
            ax.errorbar(
                points["test_gap"], points["test_auc"], xerr=points["test_gap_error"],
                yerr=points["test_auc_error"], fmt="o-", ms=4, lw=1.2, capsize=2,
                color=colours[learner], label=learner,
            )  # fmt: skip
        ax.set(title=metric, xlabel=f"gap of {metric} on test rows", ylabel="AUC on test rows")
    # Below the panels a legend covers no error bars, and names learners of one panel only.
    by_label = {
        label: line
        for ax in axes
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        by_label.values(), by_label.keys(), loc="outside lower center", ncols=len(by_label),
        frameon=False,
    )  # fmt: skip
    folder = HERE.parent / "docs" / "figures"
    figure.savefig(folder / f"auc_pareto_{name}.png", dpi=130)
    plt.close(figure)


TABLES = {
    "adult": table_of_cells(CELLS, (OWN,)),
    "hidden": table_of_cells(CELLS, (HIDDEN,)),
    "splits": table_of_cells([cell for cell in CELLS if cell[1] in (0.0, 0.01)], ("0", "1", "2")),
    "affine": Table(
        measure_affine,
        {
            "library": LIBRARIES,
            "rule bound": [
                *itertools.product(("cross_auc", "mean_rank"), (0.05, 0.01)),
                ("subgroup", 0.01),
            ],
        },
        "{library:9} {rule:10} {bound:5}  {held_out:+11.4f}  {test_gap:+8.4f}  {test_auc:8.4f}   "
        "{slope:5.2f}  {shift:+5.2f}",
        heading="library   rule       bound  out of fold  test gap  test AUC   slope  shift",
    ),
    "both": table_of_cells([("both", 0.02)], (OWN,)),
    "threshold": Table(
        measure_threshold,
        {"library": LIBRARIES},
        "{library:9}  held_out_gap {held_out_gap:+.4f}  held_out_fpr {held_out_fpr:+.4f}  "
        "test_gap {test_gap:+.4f}  test_fpr {test_fpr:+.4f}  test_auc {test_auc:+.4f}  shift "
        "{shift:+.4f}",
    ),
    "groups": Table(
        measure_groups,
        {
            "library": LIBRARIES,
            "rule bound": (("plain", 0.0), ("gap", 0.05), ("each", 0.7), ("each", 0.72)),
            "split": range(3),
        },
        "{library:9} {rule:6} {bound:5} {held_out:10.4f} {test_gap:10.4f} {test_worst:10.4f} "
        "{test_auc:10.4f}",
        heading="library   rule   bound  out of fold  test gap  test worst  test AUC",
    ),
    "cost": Table(
        measure_cost,
        {"library": LIBRARIES, "rules": CASES},
        "{library:9} {rules:8} {ratio:.2f} plain fits ({constrained:.1f} over {plain:.1f} s)",
    ),
    "growth": Table(
        measure_round,
        {"library": LIBRARIES, "rows": (100_000, 1_000_000)},
        "{library:9} {rows:,} rows: {seconds:.4f} seconds",
        summary=lambda found: found.groupby("library")["seconds"].agg(lambda s: s.max() / s.min()),
    ),
    "linear": Table(
        fit_linear,
        {"rule": PROXY_RULES, "bound": (0.01,), "proxy": ("auto", "square")},
        PROXY_LINE,
        lambda found, rule, bound, proxy: {
            "note": f"bar: gap <= .0105, test AUC >= {LINEAR_BARS[rule]}"
            if rule in LINEAR_BARS and proxy == "auto"
            else ""
        },
    ),
    "square": Table(
        fit_booster,
        {"rule": ("cross_auc", "auc"), "bound": (0.01,), "proxy": ("auto", "square")},
        PROXY_LINE,
        lambda found, rule, bound, proxy: {"note": f"prototype {PROTOTYPE[rule, proxy]}"},
        show_gain,
    ),
    "pareto": Table(
        measure_learner,
        {
            "set metric learner setting": [
                (name, metric, learner, setting)
                for name, learner, metric in itertools.product(SETS, LEARNERS, RATES)
                for setting in settings(name, learner, metric)
            ],
            "seed": range(5),
        },
        summary=show_fronts,
    ),
}


if __name__ == "__main__":
    run_tables(TABLES, "auc", make_parser(__doc__), library=LIBRARIES, set=SETS, seed=at_least(1))
