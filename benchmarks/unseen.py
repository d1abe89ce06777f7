"""Rules on rows that the model has not seen: what is asked, what test rows say, what it costs.

Nothing here looks at test rows before the figures are printed.

    python benchmarks/unseen.py [gaps ceilings tpr credit neyman_pearson beans digits thresholds
        intervals cost small_cost] [--library xgboost] [--splits 5] [--jobs 2] [--bounds 0.01]
        [--factors 1.0 1.28] [--delta 0.05] [--output FOLDER]

Each fit is a row of a CSV of its part, and is not repeated while its row is there.
Dry Bean and all of Credit are looked for as the loaders do (GBM_CONSTRAINED_DATA).
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import rates
from arguments import at_least
from peer_runs.data import DATA, encoded
from rates import LIBRARIES, RATES, adult, gap_of, make
from result_file import Measurements, Part, add_parts, column
from scale import drawn_rows
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from gbm_constrained import (
    CrossFit,
    HighProbability,
    audit,
    class_error,
    fnr,
    fpr,
    gap,
    precision,
    recall,
    selection_rate,
    tpr,
)
from gbm_constrained.data.rows import Rows
from gbm_constrained.datasets import load_credit, load_dry_bean
from gbm_constrained.decision.search import ShiftSearch
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.binomial import newcombe_difference
from gbm_constrained.statistics.order_statistics import umbrella_threshold

RESULTS = Path(__file__).parent / "results" / "unseen"
BEAN_LEVELS = {1: 0.01, 2: 0.03, 3: 0.02, 4: 0.02}
BEAN_FACTORS = (1.0, 1.2, 1.25, 1.28, 1.3, 1.4)


def fit_gap(
    library: str, rate: str, learning_rate: float, bound: float, seed: int
) -> dict[str, float]:
    """Fit a gap between the sexes on Adult, cross-fitted."""
    X, X_test, y, y_test, sex, sex_test = adult(seed)
    rules = [gap(RATES[rate](), by="sex") <= bound]
    clf = make(library, rules, learning_rate=learning_rate, measure_on="crossfit")
    test = clf.fit(X, y, sensitive_features=sex).predict(X_test)
    return {
        "test_accuracy": np.mean(test == y_test),
        "test_gap": gap_of(rate, y_test, test, sex_test),
        "held_out_gap": clf.constraint_report_["held_out"][0],
    }


def gaps(results: Measurements, library: str, splits: int, bounds: Sequence[float]) -> None:
    """Gaps between the sexes on Adult, cross-fitted, at two learning rates."""
    for case in itertools.product((library,), RATES, (0.1, 0.3), bounds):
        found = [results.once(partial(fit_gap, *case, i), *case, i) for i in range(splits)]
        _, rate, learning_rate, bound = case
        gap_found = column(found, "test_gap")
        print(
            f"{library:9s} {rate:15s} <= {bound} learning rate {learning_rate}: test accuracy "
            f"{column(found, 'test_accuracy').mean():.4f}, gap {gap_found.mean():.4f} "
            f"{gap_found.round(4)}; out of fold {column(found, 'held_out_gap').mean():.4f}",
            flush=True,
        )


def fit_plain(library: str, seed: int) -> dict[str, float]:
    """Fit the plain library on Adult: errors of the sexes on test rows."""
    X, X_test, y, y_test, _, sex_test = adult(seed)
    wrong = make(library, []).fit(X, y).predict(X_test) != y_test
    women = np.asarray(sex_test) == "Female"
    return {
        "error": np.mean(wrong),
        "error_of_women": np.mean(wrong[women]),
        "error_of_men": np.mean(wrong[~women]),
        "women": np.mean(women),
    }


def ceilings(results: Measurements, library: str, splits: int) -> None:
    """Accuracy under a gap of error rates, men being decided no better than without a rule."""
    found = [results.once(partial(fit_plain, library, i), library, i) for i in range(splits)]
    men, women = (column(found, name) for name in ("error_of_men", "women"))
    shown = ", ".join(f"{(1 - men + g * women).mean():.4f} at {g}" for g in (0.01, 0.02))
    print(
        f"{library:9s} plain: test accuracy {1 - column(found, 'error').mean():.4f}, error of men "
        f"{men.mean():.4f} and of women {column(found, 'error_of_women').mean():.4f}; with the "
        f"men's as it is, accuracy under a gap {shown}; standard error "
        f"{men.std(ddof=1) / splits**0.5:.4f}",
        flush=True,
    )


def fit_tpr(library: str, seed: int) -> dict[str, float]:
    """Fit a gap of true positive rates: the difference on test rows, and its 95 % interval."""
    X, X_test, y, y_test, sex, sex_test = adult(seed)
    clf = make(library, [gap(tpr(), by="sex") <= 0.02], measure_on="crossfit")
    test = clf.fit(X, y, sensitive_features=sex).predict(X_test)
    women, men = ((np.asarray(sex_test) == s) & (y_test == 1) for s in ("Female", "Male"))
    low, high = newcombe_difference(
        test[women].sum(), women.sum(), test[men].sum(), men.sum(), 0.95
    )
    difference = test[women].mean() - test[men].mean()
    return {"difference": difference, "low": float(low), "high": float(high)}


def true_positive_rates(results: Measurements, library: str, splits: int) -> None:
    """Share of splits in which the test gap is within the bound and its sampling interval."""
    found = [results.once(partial(fit_tpr, library, i), library, i) for i in range(splits)]
    # The interval of the difference reaches the bound.
    inside = (column(found, "low") <= 0.02) & (column(found, "high") >= -0.02)
    print(
        f"{library:9s} gap(tpr) <= 0.02: mean test gap "
        f"{np.abs(column(found, 'difference')).mean():.4f}; within the bound and its 95% interval "
        f"in {inside.mean():.2f} of {splits} splits",
        flush=True,
    )


# Chosen by false alarms out of fold on training parts of a few splits: of the plain library
# for XGBoost, under the rule for LightGBM. 394 frauds are soon known by heart, and each that
# a fold is without is missed.
CREDIT_TREES: dict[str, dict[str, Any]] = {
    "xgboost": {"max_depth": 3, "scale_pos_weight": 100, "reg_lambda": 30.0},
    "lightgbm": {
        "max_depth": 3, "scale_pos_weight": 30, "reg_lambda": 100.0, "subsample_freq": 1,
        "min_child_samples": 300, "extra_trees": True,
    },
}  # fmt: skip


def fit_credit(library: str, bound: float, seed: int) -> dict[str, float]:
    """Fit a miss rate on all of Credit."""
    data = load_credit(full=True, download=False)
    y = data.target.to_numpy()
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, y, test_size=0.2, stratify=y, random_state=seed
    )
    start = time.perf_counter()
    clf = make(
        library, [fnr() <= bound], n_estimators=200, learning_rate=0.05, iterate="best",
        subsample=0.5, colsample_bytree=0.5, measure_on=CrossFit(10),
        **CREDIT_TREES[library],
    )  # fmt: skip
    clf.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    test = clf.predict(X_test)
    return {
        "miss_rate": np.mean(test[y_test == 1] == 0),
        "false_alarms": np.mean(test[y_test == 0] == 1),
        "test_accuracy": np.mean(test == y_test),
        "seconds": seconds,
    }


def credit(results: Measurements, library: str, splits: int, bounds: Sequence[float]) -> None:
    """Miss rates on all of Credit: violation and accuracy on test rows."""
    for bound in bounds:
        found = [
            results.once(partial(fit_credit, library, bound, i), library, bound, i)
            for i in range(splits)
        ]
        miss, accuracy = column(found, "miss_rate"), column(found, "test_accuracy")
        print(
            f"{library:9s} fnr <= {bound}: violation of 0.05 "
            f"{np.maximum(miss - 0.05, 0.0).mean():.4f}, accuracy "
            f"{accuracy.mean():.4f} ({accuracy.std(ddof=1) / splits**0.5:.4f}); miss rates "
            f"{miss.round(3)}, false "
            f"alarms {column(found, 'false_alarms').round(3)}; "
            f"{column(found, 'seconds').mean():.0f} s a fit",
            flush=True,
        )


def fit_neyman_pearson(library: str, bound: float, delta: float, seed: int) -> dict[str, float]:
    """Certify a false positive rate on Adult; and by the umbrella over the plain booster."""
    X, X_test, y, y_test, *_ = adult(seed)
    clf = make(
        library, [fpr() <= bound], measure_on="auto", guarantee=HighProbability(delta=delta),
        iterate="best",
    )  # fmt: skip
    test = clf.fit(X, y).predict(X_test)
    # nproc: the umbrella has half of the negatives, the booster all the rest.
    negatives = np.random.default_rng(seed).permutation(np.flatnonzero(y == 0))
    fresh = negatives[: negatives.size // 2]
    rest = np.setdiff1d(np.arange(y.size), fresh)
    plain = make(library, []).fit(X.iloc[rest], y[rest])
    scores = [plain.predict_proba(part)[:, 1] for part in (X.iloc[fresh], X_test)]
    umbrella = scores[1] > umbrella_threshold(scores[0], bound, delta)
    return {
        "test_fpr": np.mean(test[y_test == 0]),
        "test_fnr": 1.0 - np.mean(test[y_test == 1]),
        "umbrella_fpr": np.mean(umbrella[y_test == 0]),
        "umbrella_fnr": 1.0 - np.mean(umbrella[y_test == 1]),
    }


def neyman_pearson(results: Measurements, library: str, splits: int, delta: float) -> None:
    """Certified false positive rates on Adult, beside the umbrella over the plain booster."""
    for bound in (0.05, 0.02, 0.01):
        case = (library, bound, delta)
        found = [
            results.once(partial(fit_neyman_pearson, *case, i), *case, i) for i in range(splits)
        ]
        ours, theirs = (
            (
                column(found, f"{whose}_fpr").mean(),
                column(found, f"{whose}_fnr").mean(),
                (column(found, f"{whose}_fpr") > bound).mean(),
            )
            for whose in ("test", "umbrella")
        )
        print(
            f"{library:9s} fpr <= {bound}, delta {delta:g}: test fpr {ours[0]:.4f}, fnr "
            f"{ours[1]:.4f}, above the bound in {ours[2]:.2f} of {splits} splits; umbrella "
            f"{theirs[0]:.4f}, {theirs[1]:.4f}, {theirs[2]:.2f}",
            flush=True,
        )


def fit_beans(library: str, factor: float, seed: int) -> dict[str, float]:
    """Fit four class errors on Dry Bean."""
    data = load_dry_bean(download=False)
    y = np.unique(data.target.to_numpy(), return_inverse=True)[1]
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, y, test_size=0.2, random_state=seed
    )
    rules = [class_error(k) <= factor * level for k, level in BEAN_LEVELS.items()]
    # Chosen by the cross-entropy of cross-validation within one training part.
    tree = {"n_estimators": 150, "max_depth": 3, "colsample_bytree": 0.5}
    test = make(library, rules, measure_on="auto", **tree).fit(X_train, y_train).predict(X_test)
    errors = {k: np.mean(test[y_test == k] != k) for k in BEAN_LEVELS}
    return {
        "test_accuracy": np.mean(test == y_test),
        "violation": sum(max(errors[k] - level, 0.0) for k, level in BEAN_LEVELS.items()),
    }


def beans(results: Measurements, library: str, splits: int, factors: Sequence[float]) -> None:
    """Four class errors on Dry Bean: accuracy and summed violation on test rows.

    All four cannot be met, so that frontiers are compared: bounds are asked for as they are and
    somewhat wider, and violations are always those of the bounds themselves.
    """
    for factor in factors:
        found = [
            results.once(partial(fit_beans, library, factor, i), library, factor, i)
            for i in range(splits)
        ]
        print(
            f"{library:9s} asked for {factor} of the bounds: accuracy "
            f"{column(found, 'test_accuracy').mean():.4f}, summed violation "
            f"{column(found, 'violation').mean():.4f} over {splits} splits",
            flush=True,
        )


# Of one digit against the others, or of two among all ten.
DIGIT_RULES: dict[str, Any] = {
    **{f"fnr of {k} <= 0.02": fnr() <= 0.02 for k in (1, 3, 8)},
    "recall(8) >= 0.99, precision(1) >= 0.97": [
        recall(label=8) >= 0.99, precision(label=1) >= 0.97
    ],
    "fpr(3) <= 0.001, recall(5) >= 0.98": [fpr(label=3) <= 0.001, recall(label=5) >= 0.98],
}  # fmt: skip


def fit_digits(library: str, rule: str, seed: int) -> dict[str, float]:
    """Fit strict rules on handwritten digits, and the plain library, its scores moved after it.

    By what makes the fewest errors among the thresholds, or the biases of classes, under which the
    rules hold out of fold.
    """
    X, y = load_digits(return_X_y=True)
    y = (y == int(rule.split()[2])).astype(int) if rule.startswith("fnr") else y
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=seed
    )
    rules = np.atleast_1d(DIGIT_RULES[rule]).tolist()
    parameters = {"n_estimators": 80, "learning_rate": {"xgboost": 0.3, "lightgbm": 0.1}[library]}
    clf = make(library, rules, measure_on="crossfit", **parameters).fit(X_train, y_train)
    plain = make(library, [], **parameters)
    out_of_fold = cross_val_predict(
        plain, X_train, y_train, cv=StratifiedKFold(4), method="predict_proba"
    )
    compiled = compile_constraints(rules, Rows(y_train, np.unique(y_train)))
    shift = ShiftSearch(scores_of(out_of_fold), *compiled).find().value
    scores = scores_of(plain.fit(X_train, y_train).predict_proba(X_test)) + shift
    beside = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
    found = {"unseen_accuracy": clf.unseen_accuracy_.value}
    for whose, decided in (("test", clf.predict(X_test)), ("plain", beside)):
        model = SimpleNamespace(predict=lambda _, decided=decided: decided)
        frame = audit(model, X_test, y_test, rules).frame
        sign = np.where(frame["sense"] == "<=", 1.0, -1.0)
        found[f"{whose}_accuracy"] = np.mean(decided == y_test)
        found[f"{whose}_violation"] = np.maximum(sign * (frame["value"] - frame["bound"]), 0).sum()
    return found


def scores_of(probabilities: Any) -> Any:
    """Logarithms of probabilities, of two classes their difference."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs


def digits(results: Measurements, library: str, splits: int) -> None:
    """Strict rules where the plain library is hardly ever wrong."""
    for rule in DIGIT_RULES:
        found = [results.once(partial(fit_digits, library, rule, i), library, rule, i)
                 for i in range(splits)]  # fmt: skip
        mean = {name: column(found, name).mean() for name in found[0]}
        print(
            f"{library:9s} {rule}: accuracy {mean['test_accuracy']:.4f} (out of fold "
            f"{mean['unseen_accuracy']:.4f}), violation {mean['test_violation']:.4f}; plain "
            f"{mean['plain_accuracy']:.4f}, {mean['plain_violation']:.4f}",
            flush=True,
        )


SOLVERS = ("abpp", "threshold", "auto")
# At rate 0.1; the second leaves much to be learnt.
GROWN: dict[str, dict[str, Any]] = {
    "100 rounds": {"n_estimators": 100},
    "30 of depth 3": {"n_estimators": 30, "max_depth": 3},
}
THRESHOLD_RULES: dict[str, Any] = {"fnr <= 0.1": fnr() <= 0.1, "fpr <= 0.02": fpr() <= 0.02}


def fit_threshold(library: str, table: str, grown: str, rule: str, seed: int) -> dict[str, float]:
    """Fit a rule with multipliers, by the threshold alone, and as `auto` takes it.

    Within the training part of a split: what is learnt here may decide defaults.
    """
    features, target, _ = DATA[table].load()
    X, y = encoded(features), np.asarray(target, dtype=int)
    X, _, y, _ = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    X, X_other, y, y_other = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=100 + seed
    )
    rate, found = rule.split()[0], {}
    for solver in SOLVERS:
        clf = make(library, [THRESHOLD_RULES[rule]], measure_on="crossfit", solver=solver,
                   **GROWN[grown])  # fmt: skip
        start = time.perf_counter()
        decided = clf.fit(X, y).predict(X_other)
        found[f"{solver}_seconds"] = time.perf_counter() - start
        asked = y_other == (1 if rate == "fnr" else 0)
        found[f"{solver}_unseen_accuracy"] = clf.unseen_accuracy_.value
        found[f"{solver}_accuracy"] = np.mean(decided == y_other)
        found[f"{solver}_rate"] = np.mean(decided[asked] != y_other[asked])
    return found


def thresholds(results: Measurements, library: str, splits: int) -> None:
    """Multipliers beside a threshold alone, for one rate of one class."""
    for case in itertools.product(
        ("adult", "bank", "default", "compas", "german"), GROWN, THRESHOLD_RULES
    ):
        found = [
            results.once(partial(fit_threshold, library, *case, i), library, *case, i)
            for i in range(splits)
        ]
        shown = "; ".join(
            f"{solver} {column(found, f'{solver}_accuracy').mean():.4f} at "
            f"{column(found, f'{solver}_rate').mean():.4f} (out of fold "
            f"{column(found, f'{solver}_unseen_accuracy').mean():.4f}, "
            f"{column(found, f'{solver}_seconds').mean():.1f} s)"
            for solver in SOLVERS
        )
        print(f"{library:9s} {', '.join(case)}: {shown}", flush=True)


SMALL_RULES: dict[str, Any] = {
    "gap of fpr": [gap(fpr(), by="sex") <= 0.02],
    "gap of selection rates": [gap(selection_rate(), by="sex") <= 0.03],
    "fnr": [fnr() <= 0.1],
    "fpr": [fpr() <= 0.02],
}
WAYS: dict[str, dict[str, Any]] = {
    "train": {"measure_on": "train"},
    "holdout": {"measure_on": "holdout"},
    "crossfit": {"measure_on": "crossfit"},
    "certified": {"measure_on": "crossfit", "guarantee": "high_probability"},
}


INTERVAL_TABLES = (("adult", 6000), ("adult", 20_000), *((t, 6000) for t in ("default", "bank")))
INTERVAL_RULES: dict[str, Any] = {
    **{f"gap of {name}": gap(rate(), by="group") <= 0.03 for name, rate in RATES.items()},
    "fpr": fpr() <= 0.05,
    "tpr": tpr() >= 0.7,
}


def fit_interval(library: str, table: str, n: int, rule: str, seed: int) -> dict[str, float]:
    """Fit a rule on some rows: its interval out of fold, and what the others say of the model."""
    features, target, second = DATA[table].load()
    assert second is not None
    X, y, group = encoded(features), np.asarray(target, dtype=int), np.asarray(second, dtype=int)
    parts = train_test_split(X, y, group, train_size=n, random_state=seed)
    X, X_other, y, y_other, group, group_other = parts
    rules = [INTERVAL_RULES[rule]]
    clf = make(library, rules, n_estimators=60, measure_on="crossfit")
    clf.fit(X, y, sensitive_features={"group": group})
    of_others = audit(clf, X_other, y_other, rules, sensitive_features={"group": group_other})
    report, other = clf.constraint_report_.iloc[0], of_others.frame["value"].iloc[0]
    rates, true = clf.group_report_, of_others.groups["rate"].to_numpy()
    inside = (rates["low"] <= true) & (true <= rates["high"])
    return {
        "value": report["held_out"],
        "low": report["low"],
        "high": report["high"],
        "other_rows": other,
        "rates_inside": np.mean(inside) if len(rates) else np.nan,
        "width_of_rates": np.mean(rates["high"] - rates["low"]) if len(rates) else np.nan,
    }


def intervals(results: Measurements, library: str, splits: int) -> None:
    """Shares of intervals out of fold that hold what the model returned does on other rows."""
    for table, n in INTERVAL_TABLES:
        for rule, constraint in INTERVAL_RULES.items():
            case = library, table, n, rule
            found = [
                results.once(partial(fit_interval, *case, i), *case, i) for i in range(splits)
            ]
            low, high, other = (column(found, name) for name in ("low", "high", "other_rows"))
            worse = other > high if constraint.sense == "<=" else other < low
            print(
                f"{library:9s} {table} {n:,}, {rule}: on other rows the model is inside "
                f"{np.mean((low <= other) & (other <= high)):.2f} of {splits} intervals, worse "
                f"than {worse.mean():.2f}, mean width {(high - low).mean():.3f}; rates of groups "
                f"inside {column(found, 'rates_inside').mean():.2f}, "
                f"{column(found, 'width_of_rates').mean():.3f}",
                flush=True,
            )


def cost_tables() -> Iterator[tuple[str, Any, Any, float, int]]:
    """Give what costs are measured on: name, features, labels, bound and rounds."""
    census, _, income, *_ = adult(0)
    yield "Adult", census, income, 0.03, 300
    yield "300,000 x 30", *drawn_rows(300_000, 30)[:2], 0.05, 100


def fit_ways(library: str, X: Any, y: Any, bound: float, rounds: int) -> dict[str, float]:
    """Seconds of the plain library, and of each way beside it."""
    seconds = {}
    for way, options in {"plain": {}, **WAYS}.items():
        rules = [] if way == "plain" else [fpr() <= bound]
        start = time.perf_counter()
        make(library, rules, n_estimators=rounds, **options).fit(X, y)
        seconds[way] = time.perf_counter() - start
    return seconds


def cost(results: Measurements, library: str, splits: int) -> None:
    """Seconds of each way of measuring, over one unconstrained fit of the same library."""
    for name, *table in cost_tables():
        measure = partial(fit_ways, library, *table)
        found = [results.once(measure, library, name, i) for i in range(splits)]
        plain = column(found, "plain")
        shown = ", ".join(f"{way} {np.median(column(found, way) / plain):.2f}" for way in WAYS)
        print(f"{library:9s} {name}: median of {splits}, over a plain fit: {shown}", flush=True)


def fit_small(library: str, rows: int, rounds: int, repetition: int) -> dict[str, float]:
    """CPU seconds of the plain library on part of Adult, and of the default under each rule."""
    X, _, y, _, sex, _ = adult(repetition)
    X, y, sex = X[:rows], y[:rows], sex[:rows]
    seconds = {}
    for name, rules in {"plain": [], **SMALL_RULES}.items():
        clf = make(library, rules, n_estimators=rounds, measure_on="auto", n_jobs=1)
        given = {"sensitive_features": sex} if rules else {}
        start = time.process_time()
        clf.fit(X, y, **given)
        seconds[name] = time.process_time() - start
    return seconds


def small_cost(results: Measurements, library: str, splits: int) -> None:
    """CPU time of the default on small data, one thread, over one unconstrained fit."""
    for rows, rounds in ((5000, 60), (20000, 100)):
        measure = partial(fit_small, library, rows, rounds)
        found = [
            results.once(partial(measure, i), library, rows, rounds, i) for i in range(splits)
        ]
        plain = column(found, "plain")
        shown = ", ".join(f"{n} {np.median(column(found, n) / plain):.2f}" for n in SMALL_RULES)
        print(f"{library:9s} {rows} rows, {rounds} rounds, over a plain fit: {shown}", flush=True)


PARTS: dict[str, tuple[Part, int]] = {
    "gaps": (
        Part(
            gaps,
            ("library", "rate", "learning_rate", "bound", "split"),
            ("test_accuracy", "test_gap", "held_out_gap"),
        ),
        5,
    ),
    "ceilings": (
        Part(
            ceilings,
            ("library", "split"),
            ("error", "error_of_women", "error_of_men", "women"),
        ),
        20,
    ),
    "tpr": (Part(true_positive_rates, ("library", "split"), ("difference", "low", "high")), 20),
    "credit": (
        Part(
            credit,
            ("library", "bound", "split"),
            ("miss_rate", "false_alarms", "test_accuracy", "seconds"),
        ),
        5,
    ),
    "neyman_pearson": (
        Part(
            neyman_pearson,
            ("library", "bound", "delta", "split"),
            ("test_fpr", "test_fnr", "umbrella_fpr", "umbrella_fnr"),
        ),
        20,
    ),
    "beans": (
        Part(beans, ("library", "factor", "split"), ("test_accuracy", "violation")),
        20,
    ),
    "digits": (
        Part(
            digits,
            ("library", "rule", "split"),
            (
                "unseen_accuracy",
                "test_accuracy",
                "test_violation",
                "plain_accuracy",
                "plain_violation",
            ),
        ),
        5,
    ),
    "thresholds": (
        Part(
            thresholds,
            ("library", "table", "grown", "rule", "split"),
            tuple(
                f"{solver}_{name}"
                for solver in SOLVERS
                for name in ("unseen_accuracy", "accuracy", "rate", "seconds")
            ),
        ),
        6,
    ),
    "intervals": (
        Part(
            intervals,
            ("library", "table", "rows", "rule", "split"),
            ("value", "low", "high", "other_rows", "rates_inside", "width_of_rates"),
        ),
        10,
    ),
    "cost": (Part(cost, ("library", "table", "repetition"), ("plain", *WAYS)), 5),
    "small_cost": (
        Part(
            small_cost,
            ("library", "rows", "rounds", "repetition"),
            ("plain", *SMALL_RULES),
        ),
        5,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_parts(parser, "parts", PARTS)
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--splits", type=at_least(1))
    parser.add_argument("--jobs", type=int, default=2, help="threads of each fit")
    parser.add_argument(
        "--bounds",
        type=at_least(0.0, 1.0),
        nargs="+",
        help="of the gaps on Adult, or of misses on Credit",
    )
    parser.add_argument(
        "--factors",
        type=at_least(0.0),
        nargs="+",
        default=BEAN_FACTORS,
        help="of the bounds on Dry Bean",
    )
    parser.add_argument(
        "--delta",
        type=at_least(0.0, 1.0),
        default=0.05,
        help="of the certified false positive rates",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the CSVs")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rates.THREADS = args.jobs
    options = {
        "gaps": {"bounds": args.bounds or [0.01]},
        "credit": {"bounds": args.bounds or [0.05, 0.08, 0.10]},
        "beans": {"factors": args.factors},
        "neyman_pearson": {"delta": args.delta},
    }
    for name in args.parts:
        part, splits = PARTS[name]
        results = Measurements(args.output / f"{name}.csv", part.names, part.figures)
        for library in (args.library,) if args.library else LIBRARIES:
            part.run(results, library, args.splits or splits, **options.get(name, {}))


if __name__ == "__main__":
    main()
