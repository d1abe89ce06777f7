"""What a gap split over the features costs, in plain fits.

Simulated rows with two groups; processor time on one thread, the median of some runs, over that of
the plain fit in the same run.

    python benchmarks/explanations.py [--rows 20000] [--columns 30] [--trees 100] [--runs 5]
    python benchmarks/explanations.py --quick   # 4,000 rows, 20 trees, one run
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from result_file import at_least, make_parser
from sklearn.datasets import make_classification
from xgboost import XGBClassifier

import gbm_constrained as gbc

RATES = {"selection rate": gbc.selection_rate(), "tpr": gbc.tpr(), "error rate": gbc.error_rate()}


def seconds_of(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(library: str, args: Any) -> None:
    rng = np.random.default_rng(0)
    shape = {"n_samples": args.rows, "n_features": args.columns, "n_informative": 10}
    X, y = make_classification(**shape, flip_y=0.1, random_state=0)
    sex = {"sex": (X[:, 0] + rng.normal(size=args.rows) > 0).astype(int)}
    model = {
        "LightGBM": LGBMClassifier(n_estimators=args.trees, n_jobs=1, verbose=-1),
        "XGBoost": XGBClassifier(n_estimators=args.trees, n_jobs=1),
    }[library]
    for tree_shap in (False, True):
        ratios: dict[str, list[float]] = {name: [] for name in RATES}
        for _ in range(1 if tree_shap else args.runs):
            plain = seconds_of(lambda: model.fit(X, y))
            for name, rate in RATES.items():
                given = (model, X, gbc.gap(rate, by="sex"), y)
                options = {"sensitive_features": sex, "tree_shap": tree_shap}
                split = seconds_of(partial(gbc.explain_gap, *given, **options))
                ratios[name].append(split / plain)
        found = ", ".join(f"{name} {np.median(values):.2f}" for name, values in ratios.items())
        print(f"{library}, {'TreeSHAP' if tree_shap else 'paths of rows'}: {found}")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=at_least(100), default=20_000)
    parser.add_argument("--columns", type=at_least(12), default=30)
    parser.add_argument("--trees", type=at_least(1), default=100)
    parser.add_argument("--runs", type=at_least(1), default=5)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.trees, args.runs = 4_000, 20, 1
    for library in ("LightGBM", "XGBoost"):
        measure(library, args)


if __name__ == "__main__":
    main()
