"""Neyman-Pearson classification of seven sorts of beans, four of them with an error bound.

    python examples/dry_bean_neyman_pearson.py

The protocol of the source paper: 15 features (without the last), class names sorted, 80 % of each
class for training; expected errors of 0.01, 0.03, 0.02 and 0.02 for classes 1 to 4 and none for
classes 0, 5 and 6. Trains XGBoost and LightGBM with and without these rules, prints what they cost
and what they are worth on unseen rows, and saves two figures.

The data set is not bundled: it is downloaded, or read from ``--data-home`` or the directory in
the environment variable ``GBM_CONSTRAINED_DATA``.

Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn.model_selection import train_test_split

from gbm_constrained import ConstrainedLGBMClassifier, ConstrainedXGBClassifier, class_error
from gbm_constrained.datasets import load_dry_bean
from gbm_constrained.plotting import plot_history, plot_tradeoff

EXPECTED_ERRORS = {1: 0.01, 2: 0.03, 3: 0.02, 4: 0.02}  # by position of the sorted class names
FACTORS = [2, 1.5, 1, 0.5]  # of the expected errors, for the trade-off curve

# Trees of two levels, chosen by cross-validation on training rows: deeper trees meet the rules on
# the training rows with less effort and violate them more on others.
PARAMS = {"learning_rate": 0.1, "max_depth": 2, "min_child_weight": 1}
PLAIN = {"XGBoost": xgb.XGBClassifier, "LightGBM": lgb.LGBMClassifier}
CONSTRAINED = {"XGBoost": ConstrainedXGBClassifier, "LightGBM": ConstrainedLGBMClassifier}

# The new names, eval_X and eval_y, are unknown to LightGBM 4.6.
warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")


def main() -> None:
    args = parse_arguments()
    try:
        beans = load_dry_bean(data_home=args.data_home)
    except (OSError, ImportError, ValueError) as error:
        sys.exit(str(error))
    names = beans.target_names
    X_train, X_test, y_train, y_test = train_test_split(
        beans.data.iloc[:, :-1],
        beans.target.cat.codes.to_numpy(),
        test_size=0.2,
        stratify=beans.target,
        random_state=args.seed,
    )
    rules = ", ".join(f"{names[k]} {bound:.0%}" for k, bound in EXPECTED_ERRORS.items())
    print(
        f"Dry beans: {len(y_train):,} training rows, {len(y_test):,} test rows, "
        f"{X_train.shape[1]} features, {len(names)} classes.\n"
        f"Rules: errors of at most {rules}.\n"
    )
    shared = {**PARAMS, "n_estimators": args.rounds, "n_jobs": args.jobs}
    params = {"XGBoost": shared, "LightGBM": {**shared, "verbose": -1}}

    models: dict[str, dict[str, Any]] = {}
    for library in PLAIN:
        start = time.perf_counter()
        plain = PLAIN[library](**params[library]).fit(X_train, y_train)
        between = time.perf_counter()
        constrained = CONSTRAINED[library](constraints=scaled_rules(1), **params[library])
        # The test rows are only watched, for the figure: nothing is chosen by them.
        silent = {"verbose": False} if library == "XGBoost" else {}
        constrained.fit(X_train, y_train, eval_set=[(X_test, y_test)], **silent)
        end = time.perf_counter()
        print(f"{library}: plain {between - start:.1f} s, constrained {end - between:.1f} s")
        models[library] = {"plain": plain, "constrained": constrained}

    print_table(models, X_train, X_test, y_train, y_test)
    print_class_errors(models, X_train, X_test, y_train, y_test, names)

    print(
        f"\nTrade-off: training under the expected errors times {', '.join(map(str, FACTORS))} ..."
    )
    points = {}
    for library in PLAIN:
        curve = {"none": models[library]["plain"]}
        for factor in FACTORS:
            model = CONSTRAINED[library](constraints=scaled_rules(factor), **params[library])
            curve[f"{factor:g}"] = model.fit(X_train, y_train)
        points[library] = trade_off_points(curve, X_train, X_test, y_train, y_test)
    plot_histories(args.output / "dry_bean_history.png", models, names)
    plot_trade_offs(args.output / "dry_bean_trade_off.png", points)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-home", help="directory with the data set")
    parser.add_argument("--output", type=Path, default=Path("output"), help="where files go")
    parser.add_argument("--rounds", type=int, default=200, help="boosting rounds")
    parser.add_argument("--seed", type=int, default=0, help="of the split into train and test")
    parser.add_argument("--jobs", type=int, default=1, help="threads of the libraries")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def scaled_rules(factor: float) -> list[Any]:
    """One rule for each class with an expected error."""
    return [class_error(k) <= factor * bound for k, bound in EXPECTED_ERRORS.items()]


def error_of_class(k: int, y: Any, predicted: Any) -> float:
    """Fraction of the rows of class k that are misclassified."""
    return float(np.mean(predicted[y == k] != k))


def violation(y: Any, predicted: Any) -> float:
    """Sum over classes of [error_k - e_k]_+; a class without an expected error is free."""
    return sum(
        max(error_of_class(k, y, predicted) - bound, 0.0) for k, bound in EXPECTED_ERRORS.items()
    )


def print_table(models: Any, X_train: Any, X_test: Any, y_train: Any, y_test: Any) -> None:
    print(f"\n{'per cent':21}{'train':^19} |{'test':^19}")
    header = f"{'accuracy':>9}{'violation':>10}"
    print(f"{'library':9}{'model':12}{header} |{header}")
    for library in models:
        for name, model in models[library].items():
            numbers = []
            for X, y in ((X_train, y_train), (X_test, y_test)):
                predicted = model.predict(X)
                accuracy = float(np.mean(predicted == y))
                numbers.append(f"{100 * accuracy:9.2f}{100 * violation(y, predicted):10.2f}")
            print(f"{library:9}{name:12}{' |'.join(numbers)}")


def print_class_errors(
    models: Any, X_train: Any, X_test: Any, y_train: Any, y_test: Any, names: list[str]
) -> None:
    print("\nError of each class in per cent, plain -> constrained.")
    columns, heads = [], []
    for library in models:
        for rows, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
            plain, constrained = (model.predict(X) for model in models[library].values())
            heads.append(f"{library} {rows}")
            columns.append(
                [
                    f"{100 * error_of_class(k, y, plain):6.2f} -> "
                    f"{100 * error_of_class(k, y, constrained):5.2f}"
                    for k in range(len(names))
                ]
            )
    print(f"{'class':13}{'expected':>9}" + "".join(f"{head:>18}" for head in heads))
    for k, name in enumerate(names):
        expected = f"{100 * EXPECTED_ERRORS[k]:.2f}" if k in EXPECTED_ERRORS else "-"
        print(f"{k} {name:11}{expected:>9}" + "".join(f"{column[k]:>18}" for column in columns))
    print(
        "The rules are measured on the training rows; trees know those better than new ones, so "
        "that rules which\nare met there need not hold on the test rows. Judge a model by the "
        "test columns."
    )


def trade_off_points(
    models: dict[str, Any], X_train: Any, X_test: Any, y_train: Any, y_test: Any
) -> pd.DataFrame:
    """Accuracy and summed error of the constrained classes, on training and on test rows."""
    points = []
    for rows, X, y in (("training", X_train, y_train), ("test", X_test, y_test)):
        for factor, model in models.items():
            predicted = model.predict(X)
            points.append(
                {
                    "rows": f"{rows} rows",
                    "factor": factor,
                    "summed error": sum(error_of_class(k, y, predicted) for k in EXPECTED_ERRORS),
                    "accuracy": float(np.mean(predicted == y)),
                }
            )
    return pd.DataFrame(points)


def plot_histories(path: Path, models: Any, names: list[str]) -> None:
    legend = {
        str(rule): f"error of {names[k]} <= {bound:g}"
        for rule, (k, bound) in zip(scaled_rules(1), EXPECTED_ERRORS.items(), strict=True)
    }
    figure, axes = plt.subplots(
        2, len(models), figsize=(11, 7), sharex=True, sharey="row", layout="constrained"
    )
    for column, library in zip(axes.T, models, strict=True):
        plot_history(
            models[library]["constrained"],
            column,
            violation=True,
            held_out_name="test rows (only watched)",
            names=legend,
        )
        column[0].set_title(library)
    for ax in axes.flat:
        ax.label_outer()
    figure.suptitle("Dry beans: violation of each rule, and its multiplier")
    save(figure, path)


def plot_trade_offs(path: Path, points: dict[str, pd.DataFrame]) -> None:
    figure, axes = plt.subplots(
        1, len(points), figsize=(11, 5), sharex=True, sharey=True, layout="constrained"
    )
    asked = sum(EXPECTED_ERRORS.values())
    for ax, library in zip(axes, points, strict=True):
        ax.axvline(asked, color="0.5", linestyle=":", label="sum of the expected errors")
        plot_tradeoff(
            points[library],
            ax,
            x="summed error",
            y="accuracy",
            bound=None,
            series="rows",
            label="factor",
        )
        ax.set_xlabel("summed error of the constrained classes (fraction)")
        ax.set_ylabel("accuracy (fraction)")
        ax.set_title(library)
        ax.label_outer()
    axes[0].set_xlim(left=0.0)
    figure.suptitle("Dry beans: what the rules cost; each point with the factor on its bounds")
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"Saved {path}")


if __name__ == "__main__":
    main()
