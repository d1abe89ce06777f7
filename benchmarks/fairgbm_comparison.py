"""FairGBM beside ours on Adult: gap of false positive rates by sex, same splits and rounds.

Needs ``fairgbm`` and ``scikit-learn<1.8`` (FairGBM fails with later ones), so an environment of
its own. FairGBM runs with six multiplier learning rates; ours has no step size and runs with
several bounds. Each line is the mean over three 70/30 splits. FairGBM's lines tell the accuracy of
ours at the same test gap, between neighbouring bounds.

    python benchmarks/fairgbm_comparison.py
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from fairgbm import FairGBMClassifier
from rates import SEEDS, adult, gap_of, make

from gbm_constrained import fpr, gap

STEPS = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3)
BOUNDS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.04)


def coded(X: Any) -> Any:
    """Categories as codes, which FairGBM needs."""
    return X.apply(lambda c: c.cat.codes if c.dtype == "category" else c).to_numpy(dtype=float)


def main() -> None:
    warnings.simplefilter("ignore")
    ours: dict[str, list[tuple[float, float]]] = {"xgboost": [], "lightgbm": []}
    splits = [adult(seed) for seed in SEEDS]
    for library, points in ours.items():
        for bound in BOUNDS:
            found = []
            for X, X_test, y, y_test, sex, sex_test in splits:
                clf = make(library, [gap(fpr(), by="sex") <= bound])
                clf.fit(X, y, sensitive_features=sex)
                test = clf.predict(X_test)
                found.append((gap_of("fpr", y_test, test, sex_test), np.mean(test == y_test)))
            points.append(tuple(np.mean(found, axis=0)))
            print(f"{library:9s} bound {bound:5.3f}: test gap {points[-1][0]:.4f}, accuracy "
                  f"{points[-1][1]:.4f}", flush=True)  # fmt: skip
    for step in STEPS:
        found = []
        for X, X_test, y, y_test, sex, sex_test in splits:
            clf = FairGBMClassifier(
                constraint_type="FPR", constraint_fpr_tolerance=0.01, n_estimators=300,
                learning_rate=0.1, multiplier_learning_rate=step, n_jobs=1, random_state=0,
                verbose=-1,
            )  # fmt: skip
            clf.fit(coded(X), y, constraint_group=(np.asarray(sex) == "Male").astype(int))
            test = clf.predict(coded(X_test))
            found.append((gap_of("fpr", y_test, test, sex_test), np.mean(test == y_test)))
        at, accuracy = np.mean(found, axis=0)
        same = {
            library: np.interp(at, *np.array(sorted(points)).T) for library, points in ours.items()
        }
        print(
            f"FairGBM, multiplier learning rate {step:5.3f}: test gap {at:.4f}, accuracy "
            f"{accuracy:.4f}; ours there: XGBoost {same['xgboost']:.4f}, LightGBM "
            f"{same['lightgbm']:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
