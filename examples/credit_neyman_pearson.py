"""Card frauds: a bound on the miss rate
=====================================

Neyman-Pearson classification: miss at most 5 % of the frauds::

    python examples/credit_neyman_pearson.py            # the bundled sample, 40,492 rows
    python examples/credit_neyman_pearson.py --full     # all 284,807 rows

Trains XGBoost and LightGBM with and without the rule ``fnr() <= 0.05``, prints what the rule costs
and what it is worth on rows that the trees have not seen, asks for a guarantee besides, and saves
two figures, and two models that the plain libraries read.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import (
    CONSTRAINED,
    PLAIN,
    QUIET,
    interval,
    load,
    make_parser,
    print_notes,
    save,
    save_models,
    started,
)
from scipy.stats import binomtest
from sklearn.metrics import roc_curve
from sklearn.model_selection import cross_val_predict, train_test_split

from gbm_constrained import fnr
from gbm_constrained.datasets import load_credit
from gbm_constrained.plotting import (
    ConstraintHistoryDisplay,
    MultipliersDisplay,
    TradeoffDisplay,
    plot_threshold_curve,
)

# %%
# The rule
# --------
# Miss at most this fraction of the frauds. Two other bounds make the trade-off curve.
MISS_RATE = 0.05  # the rule: the fraction of frauds that may be missed
BOUNDS = [0.1, 0.05, 0.02]  # of the trade-off curve

# There are about 400 frauds to learn from: small trees and a low learning rate, chosen by
# cross-validation on training rows.
PARAMS = {"learning_rate": 0.05, "max_depth": 3, "min_child_weight": 10}

THRESHOLD, CONSTRAINT, GUARANTEE = "plain, other threshold", "constrained", "with a guarantee"


# %%
# Training and measuring
# ----------------------
# The plain model, the plain model with another threshold, the constrained models, and one with a
# guarantee.
def main() -> None:
    args = parse_arguments()
    credit = load(load_credit, full=args.full, data_home=args.data_home)
    X, X_test, y, y_test = train_test_split(
        credit.data, credit.target, test_size=0.2, stratify=credit.target, random_state=args.seed
    )
    print(
        f"Credit card transactions: {len(y):,} training rows with {y.sum()} frauds, "
        f"{len(y_test):,} test rows with {y_test.sum()}.\n"
        f"Rule: miss at most {MISS_RATE:.0%} of the frauds, fnr() <= {MISS_RATE}.\n"
    )
    constrained, guaranteed, scores, records = {}, {}, {}, []
    for library in args.libraries:
        params = {**PARAMS, **QUIET[library], "n_estimators": args.rounds, "n_jobs": args.jobs}
        start = time.perf_counter()
        plain = PLAIN[library](**params).fit(X, y)
        plain_seconds, start = time.perf_counter() - start, time.perf_counter()
        models = {
            bound: CONSTRAINED[library](constraints=[fnr() <= bound], **params).fit(X, y)
            for bound in BOUNDS
        }
        seconds = (time.perf_counter() - start) / len(BOUNDS)
        print(f"{library}: plain {plain_seconds:.1f} s, constrained {seconds:.1f} s")
        constrained[library] = models[MISS_RATE]
        # That the rule holds with a probability of 95 %, and not of about one half.
        guaranteed[library] = CONSTRAINED[library](
            constraints=[fnr() <= MISS_RATE], guarantee="high_probability", **params
        ).fit(X, y)

        # The competitor costs next to nothing: another threshold on the plain model's score. It
        # is set on scores of rows that the trees have not seen, as our models' own is.
        folds = cross_val_predict(PLAIN[library](**params), X, y, cv=4, method="predict_proba")
        unseen, score = folds[:, 1], plain.predict_proba(X_test)[:, 1]
        scores[library] = score
        on_test = {("plain", None): score > 0.5}
        on_test |= {(THRESHOLD, b): score >= threshold_for(y, unseen, b) for b in BOUNDS}
        on_test |= {(CONSTRAINT, b): model.predict(X_test) for b, model in models.items()}
        on_test[GUARANTEE, MISS_RATE] = guaranteed[library].predict(X_test)
        reports = {(CONSTRAINT, b): model.constraint_report_ for b, model in models.items()}
        reports[GUARANTEE, MISS_RATE] = guaranteed[library].constraint_report_
        for (name, bound), predicted in on_test.items():
            record = {"library": library, "model": name, "bound": bound}
            record |= unseen_misses(reports.get((name, bound)))
            records.append(record | measures(y_test, predicted))
    table = pd.DataFrame(records)
    print_table(table)
    print_what_it_is_worth(table, guaranteed)
    print_notes(constrained)
    save_models(args.output, constrained, X_test)
    plot_histories(args.output / "credit_history.png", constrained)
    plot_trade_offs(args.output / "credit_trade_off.png", table, scores, y_test)


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=None, jobs=1)
    parser.add_argument("--full", action="store_true", help="all 284,807 rows, not the sample")
    parser.add_argument("--seed", type=int, default=0, help="of the split into train and test")
    args = parser.parse_args()
    # The rarer the frauds, the more rounds the multiplier takes to find its level.
    if args.rounds is None:
        args.rounds = 700 if args.full else 300
    return started(args)


def threshold_for(y: Any, score: Any, miss_rate: float) -> float:
    """Highest threshold that misses no more than that: the fewest false alarms."""
    _, hits, thresholds = roc_curve(y, score, drop_intermediate=False)
    return float(thresholds[np.argmax(1.0 - hits <= miss_rate + 1e-12)])


def unseen_misses(report: pd.DataFrame | None) -> dict[str, Any]:
    """Miss rate that a fit reports of rows it has held back, in per cent."""
    if report is None:
        return {"unseen": np.nan, "unseen interval": ""}
    row = report.iloc[0]
    return {
        "unseen": 100 * row["held_out"],
        "unseen interval": interval(row["low"], row["high"], 1),
    }


def measures(y: Any, predicted: Any) -> dict[str, Any]:
    """Misses with their interval, false alarms and accuracy, on test rows."""
    frauds, missed = int(np.sum(y == 1)), int(np.sum((y == 1) & (predicted == 0)))
    low, high = binomtest(missed, frauds).proportion_ci()
    return {
        "missed": 100 * missed / frauds,
        "missed interval": interval(low, high, 1),
        "false alarms": 100 * float(np.mean(predicted[y == 0])),
        "accuracy": 100 * float(np.mean(predicted == y)),
        "miss rate": missed / frauds,
        "miss rate_low": low,
        "miss rate_high": high,
        "false alarm rate": float(np.mean(predicted[y == 0])),
    }


def print_table(table: pd.DataFrame) -> None:
    shown = table[table["bound"].isin([np.nan, MISS_RATE])]
    print(f"\n{'per cent':34}{'unseen training rows':^21} |{'test rows':^43}")
    print(
        f"{'library':9}{'model':25}{'missed':>7} {'95% interval':13} |"
        f"{'missed':>7} {'95% interval':13}{'false alarms':>13}{'accuracy':>9}"
    )
    for _, row in shown.iterrows():
        unseen = "-" if np.isnan(row["unseen"]) else f"{row['unseen']:.1f}"
        print(
            f"{row['library']:9}{row['model']:25}{unseen:>7} {row['unseen interval']:13} |"
            f"{row['missed']:7.1f} {row['missed interval']:13}"
            f"{row['false alarms']:13.2f}{row['accuracy']:9.2f}"
        )


def print_what_it_is_worth(table: pd.DataFrame, guaranteed: dict[str, Any]) -> None:
    print(
        "\nThe rule is measured, and the threshold set, on scores of trees that had not seen the "
        "rows. So it holds on new\nrows up to sampling error, which for so few frauds is large: "
        "see the intervals. One rule about one class is a\nmatter of the threshold: another one "
        "on the plain model does much the same.\n\n"
        "guarantee='high_probability' asks it to hold with probability 0.95, not about one half:"
    )
    costs = table.set_index(["library", "model", "bound"])["false alarms"]
    for library, model in guaranteed.items():
        sure, usual = (costs[library, name, MISS_RATE] for name in (GUARANTEE, CONSTRAINT))
        found = "fragile" if model.feasibility_.is_fragile else model.feasibility_.status
        print(f"  {library}: {sure:.1f}% false alarms instead of {usual:.1f}%; rules {found}")
    print(
        "The fifth of the frauds that is set aside for it certifies 5% only if not one of them is "
        "missed: a threshold below\nthe strangest of them, and ruinous. It takes more frauds, or "
        "a looser bound."
    )


# %%
# The figures
# -----------
def plot_histories(path: Path, constrained: dict[str, Any]) -> None:
    figure, axes = plt.subplots(
        2, len(constrained), figsize=(10, 6), sharex=True, sharey="row", layout="constrained"
    )
    for column, (library, model) in zip(axes.T, constrained.items(), strict=True):
        ConstraintHistoryDisplay.from_estimator(model, ax=column[0], held_out_name="out of fold")
        MultipliersDisplay.from_estimator(model, ax=column[1], legend=False)
        column[0].set_title(library)
    for ax in axes.flat:
        ax.label_outer()
    figure.suptitle(
        "Card frauds: the multiplier follows the miss rate out of fold; at the end the threshold "
        "is moved"
    )
    save(figure, path)


def plot_trade_offs(path: Path, table: pd.DataFrame, scores: Any, y_test: Any) -> None:
    figure, axes = plt.subplots(
        1, len(scores), figsize=(11, 5.5), sharex=True, sharey=True, layout="constrained"
    )
    ruled = table.dropna(subset=["bound"])
    for ax, (library, score) in zip(axes, scores.items(), strict=True):
        plot_threshold_curve(y_test, score, ax, label="plain, every threshold")
        plain = table[(table["library"] == library) & (table["model"] == "plain")].iloc[0]
        TradeoffDisplay(ruled[ruled["library"] == library]).plot(
            ax,
            x="miss rate",
            y="false alarm rate",
            bound=None,
            series="model",
            label="bound",
            plain=(plain["miss rate"], plain["false alarm rate"]),
        )
        ax.set_yscale("log")
        ax.set_xlabel("miss rate on test rows (fraction of frauds)")
        ax.set_ylabel("false alarm rate on test rows (fraction of genuine rows)")
        ax.set_title(library)
        ax.label_outer()
    lowest = table["false alarm rate"].where(lambda rate: rate > 0).min()
    axes[0].set_xlim(-0.02, table["miss rate"].max() + 0.1)
    axes[0].set_ylim(0.3 * (lowest if lowest > 0 else 1e-4), 1.5)
    figure.suptitle(
        "Card frauds: false alarms against misses; each point with its bound, and the 95% interval"
    )
    save(figure, path)


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
