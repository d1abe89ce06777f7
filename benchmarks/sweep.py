"""Rules drawn at random on several tables: what each fit loses to the best group thresholds.

A draw is a table, a split with up to 8,000 training rows, and one to three rules out of
``fpr``, ``fnr``, ``selection_rate`` and gaps of ``fpr``, ``tpr``, ``selection_rate`` and
``error_rate``, each bounded by 0.3 to 0.9 of what the plain booster has out of fold. Each setting
of rounds and learning rate is fitted with both libraries, all else being default.

The reference of a fit is a linear programme: of all mixtures of thresholds, one for each group, on
the test scores of a plain LightGBM of the same setting, the one of smallest test error that meets
the rules on the test rows. It knows the groups and the test labels, which no fit does. Draws for
which not even that is feasible are left out.

    python benchmarks/sweep.py [--draws 200] [--first 0] [--settings 20/0.1 50/0.1 30/0.3 100/0.1]
        [--library xgboost] [--data adult bank] [--tables] [--output FILE]

Each fit is a row of a CSV, and is not repeated while its row is there. ``--tables`` prints what
the rows say, without fitting. Tables other than Adult and COMPAS are looked for in the folder
that GBM_CONSTRAINED_DATA names.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from arguments import at_least
from peer_runs.booster import plain
from peer_runs.data import DATA, encoded
from peer_runs.rules import counts
from result_file import ResultFile
from scipy import sparse
from scipy.optimize import linprog
from sklearn.model_selection import cross_val_predict, train_test_split

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    error_rate,
    fnr,
    fpr,
    gap,
    selection_rate,
    tpr,
)

RESULTS = Path(__file__).parent / "results" / "sweep.csv"
RATES = {f.__name__: f for f in (fpr, fnr, selection_rate, tpr, error_rate)}
RULES = (
    ("fpr", False), ("fnr", False), ("selection_rate", False),
    ("fpr", True), ("tpr", True), ("selection_rate", True), ("error_rate", True),
)  # fmt: skip
TABLES = tuple(name for name, data in DATA.items() if data.has_groups)
LIBRARIES = ("lightgbm", "xgboost")
SETTINGS = ("20/0.1", "50/0.1", "30/0.3", "100/0.1")  # rounds and learning rate
TRAINING_ROWS, TEST_ROWS = 8000, 20000
SHARES = (0.3, 0.9)  # of the plain booster's value, between which bounds are drawn
THRESHOLDS = 300  # of each group in the reference
MANY = 1000  # test rows, of which the reference, which knows their labels, is not mostly chance
NAMES = ("draw", "table", "library", "rounds", "learning_rate")
FIGURES = (
    "rules", "test_rows", "accuracy", "reference", "plain_accuracy", "violation", "multipliers",
    "shift", "status", "satisfied", "warnings", "seconds",
)  # fmt: skip


class Rule(NamedTuple):
    """A rate, whether its gap between groups is meant, and the bound."""

    rate: str
    is_gap: bool
    bound: float

    def __str__(self) -> str:
        return f"{f'gap({self.rate})' if self.is_gap else self.rate} <= {self.bound:.3g}"

    @property
    def constraint(self) -> Any:
        rate = RATES[self.rate]()
        return (gap(rate, by="group") if self.is_gap else rate) <= self.bound

    def value(self, y: Any, decisions: Any, groups: Any) -> float:
        """Measure what the rule bounds."""
        events, rows = counts(self.rate, y, decisions, groups if self.is_gap else None)
        rates = events[rows > 0] / rows[rows > 0]
        return float(np.ptp(rates) if self.is_gap else rates[0])


class Draw(NamedTuple):
    """A table's split, and the rules."""

    name: str
    X: Any
    y: Any
    groups: Any
    X_test: Any
    y_test: Any
    groups_test: Any
    rules: tuple[Rule, ...]


@cache
def load(name: str) -> tuple[Any, Any, Any]:
    features, target, second = DATA[name].load()
    assert second is not None
    return encoded(features), target.to_numpy().astype(int), second.to_numpy().astype(int)


def draw(number: int, tables: Sequence[str]) -> Draw:
    rng = np.random.default_rng([2026, number])
    name = tables[rng.integers(len(tables))]
    X, y, groups = load(name)
    n = min(TRAINING_ROWS, int(0.6 * y.size))
    train, test = train_test_split(
        np.arange(y.size), train_size=n, stratify=2 * y + groups, random_state=number
    )
    test = test[:TEST_ROWS]
    X, X_test, y, y_test = X[train], X[test], y[train], y[test]
    groups, groups_test = groups[train], groups[test]
    chosen = rng.choice(len(RULES), size=rng.integers(1, 4), replace=False)
    model = plain({"n_estimators": 100, "learning_rate": 0.1, **DATA[name].tree})
    decisions = cross_val_predict(model, X, y, cv=3)
    rules = []
    for i in chosen:
        rule = Rule(*RULES[i], 0.0)
        value = rule.value(y, decisions, groups)
        rules.append(rule._replace(bound=float(f"{rng.uniform(*SHARES) * value:.3g}")))
    return Draw(name, X, y, groups, X_test, y_test, groups_test, tuple(rules))


def reference(rules: Sequence[Rule], scores: Any, y: Any, groups: Any) -> float:
    """Accuracy of the best mixture of group thresholds that meets the rules; NaN if none does.

    A mixture gives each threshold of each group a probability; error and rates are linear in them.
    """
    rows, equal = {rate: [] for rate in (*RATES,)}, []
    sizes = {rate: [] for rate in RATES}
    for g in (0, 1):
        inside = groups == g
        at = np.unique(np.quantile(scores[inside], np.linspace(0, 1, THRESHOLDS), method="lower"))
        at = np.append(at, np.inf)
        decisions = scores[inside][:, None] >= at
        positive = (y[inside] == 1)[:, None]
        found = {
            "fpr": (decisions & ~positive, (~positive).sum()),
            "fnr": (~decisions & positive, positive.sum()),
            "selection_rate": (decisions, inside.sum()),
            "tpr": (decisions & positive, positive.sum()),
            "error_rate": (decisions != positive, inside.sum()),
        }
        for rate, (events, size) in found.items():
            rows[rate].append(events.sum(axis=0).astype(float))
            sizes[rate].append(float(size))
        equal.append(np.ones((1, at.size)))
    A, b = [], []
    for rule in rules:
        events, size = rows[rule.rate], sizes[rule.rate]
        if rule.is_gap:
            difference = np.concatenate([events[0] / size[0], -events[1] / size[1]])
            A += [difference, -difference]
            b += [rule.bound, rule.bound]
        else:
            A.append(np.concatenate(events) / sum(size))
            b.append(rule.bound)
    found = linprog(
        np.concatenate(rows["error_rate"]) / y.size,
        A_ub=np.array(A),
        b_ub=b,
        A_eq=sparse.block_diag(equal),
        b_eq=[1.0, 1.0],
        method="highs",
    )
    return float(1.0 - found.fun) if found.status == 0 else np.nan


def estimator(library: str, rules: Any, tree: dict[str, int], **parameters: Any) -> Any:
    """Classifier of a library with rules, of one thread."""
    if library == "lightgbm":
        return ConstrainedLGBMClassifier(
            constraints=rules, verbose=-1, n_jobs=1, random_state=0, **tree, **parameters
        )
    tree = {"max_depth": tree["max_depth"]}
    return ConstrainedXGBClassifier(
        constraints=rules, verbosity=0, n_jobs=1, random_state=0, **tree, **parameters
    )


def fit(case: Draw, library: str, rounds: int, learning_rate: float) -> dict[str, Any]:
    """Fit the rules of a draw, and measure test rows."""
    tree = DATA[case.name].tree
    parameters = {"n_estimators": rounds, "learning_rate": learning_rate}
    clf = estimator(library, [rule.constraint for rule in case.rules], tree, **parameters)
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(case.X, case.y, sensitive_features={"group": case.groups})
    seconds = time.process_time() - began
    decisions = np.asarray(clf.predict(case.X_test))
    other = estimator(library, [], tree, **parameters).fit(case.X, case.y).predict(case.X_test)
    violations = [
        rule.value(case.y_test, decisions, case.groups_test) - rule.bound for rule in case.rules
    ]
    kinds = sorted({w.category.__name__.removesuffix("Warning") for w in caught})
    satisfied = clf.constraint_report_["satisfied"]
    return {
        "accuracy": np.mean(decisions == case.y_test),
        "plain_accuracy": np.mean(other == case.y_test),
        "violation": max(violations),
        "multipliers": " ".join(f"{m:.3g}" for m in clf.multipliers_),
        "shift": f"{clf.shift_[0]:.4g}",
        "status": clf.feasibility_.status,
        "satisfied": " ".join(map(str, satisfied)),
        "warnings": " ".join(kinds),
        "seconds": f"{seconds:.3g}",
    }


def run(results: ResultFile, numbers: Iterator[int], args: argparse.Namespace) -> None:
    done = {tuple(row[name] for name in NAMES) for row in results.rows()}
    for number in numbers:
        case = None
        for rounds, rate in (text.split("/") for text in args.settings):
            bound = np.nan
            for library in (args.library,) if args.library else LIBRARIES:
                if any(key[0] == str(number) and key[2:] == (library, rounds, rate)
                       for key in done):  # fmt: skip
                    continue
                case = case or draw(number, args.data)
                if np.isnan(bound):
                    model = plain(
                        {
                            "n_estimators": int(rounds),
                            "learning_rate": float(rate),
                            **DATA[case.name].tree,
                        }
                    ).fit(case.X, case.y)
                    scores = model.predict(case.X_test, raw_score=True)
                    bound = reference(case.rules, scores, case.y_test, case.groups_test)
                row = {
                    "draw": number, "table": case.name, "library": library, "rounds": rounds,
                    "learning_rate": rate, "rules": "; ".join(map(str, case.rules)),
                    "test_rows": case.y_test.size, "reference": bound,
                }  # fmt: skip
                if not np.isnan(bound):
                    row |= fit(case, library, int(rounds), float(rate))
                results.append(row)


def setting(text: str) -> str:
    """Check rounds and a learning rate, as in ``20/0.1``."""
    rounds, _, rate = text.partition("/")
    if not (rounds.isdigit() and int(rounds) and 0.0 < float(rate or "nan") <= 1.0):
        raise argparse.ArgumentTypeError(f"{text!r} is not rounds/learning_rate, such as 20/0.1")
    return text


def tables(rows: Sequence[dict[str, str]]) -> None:
    """Print what the rows say, by setting, by number of rules, and by rule."""
    frame = pd.DataFrame(rows)
    frame = frame[frame["accuracy"] != ""].copy()
    numbers = ["accuracy", "reference", "plain_accuracy", "violation", "seconds"]
    frame[numbers] = frame[numbers].astype(float)
    frame["loss"] = frame["reference"] - frame["accuracy"]
    frame["n_rules"] = frame["rules"].str.count(";") + 1
    frame["warned"] = frame["warnings"] != ""
    frame["costly"] = frame["warnings"].str.contains("Costly")
    missed = frame["satisfied"].str.contains("False")
    frame["contradicts"] = missed & (frame["status"] == "met")
    frame["contradicts"] |= ~missed & frame["status"].str.startswith("missed")

    def told(part: pd.DataFrame) -> pd.Series:
        nothing_lost = part["loss"] <= 0.01
        return pd.Series(
            {
                "fits": len(part),
                "mean": part["loss"].mean(),
                "> 5": (part["loss"] > 0.05).mean(),
                "> 10": (part["loss"] > 0.1).mean(),
                "> 5 unwarned": ((part["loss"] > 0.05) & ~part["warned"]).mean(),
                "> 10 unwarned": ((part["loss"] > 0.1) & ~part["warned"]).mean(),
                "costly, none lost": (part["costly"] & nothing_lost).mean(),
                "violation": part["violation"].clip(lower=0.0).mean(),
                "contradicts": part["contradicts"].mean(),
                "seconds": part["seconds"].mean(),
            }
        )

    for by in (["rounds", "learning_rate", "library"], ["n_rules"], ["table"]):
        print(frame.groupby(by)[frame.columns].apply(told).round(4).to_string(), end="\n\n")
    for rate, is_gap in RULES:
        name = f"gap({rate})" if is_gap else rate
        inside = frame["rules"].apply(
            lambda text, name=name: any(r.split(" <= ")[0] == name for r in text.split("; "))
        )
        print(f"{name:22s} > 5: {(frame.loc[inside, 'loss'] > 0.05).mean():.3f}")
    many = frame[frame["test_rows"].astype(int) >= MANY]
    print(f"\ntables of {MANY} test rows and more: {told(many).round(4).to_dict()}")
    print(f"all: {told(frame).round(4).to_dict()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=at_least(1), default=200)
    parser.add_argument("--first", type=at_least(0), default=0, help="number of the first draw")
    parser.add_argument(
        "--settings", nargs="+", type=setting, default=SETTINGS, help="rounds/learning_rate"
    )
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--data", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--tables", action="store_true", help="print, without fitting")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = ResultFile(args.output, [*NAMES, *FIGURES])
    if not args.tables:
        run(results, iter(range(args.first, args.first + args.draws)), args)
    tables(results.rows())


if __name__ == "__main__":
    main()
