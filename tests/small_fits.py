"""Small constrained fits that several test modules share."""

from __future__ import annotations

from helpers import CLASSIFIERS
from scipy import stats

import gbm_constrained as gc

ROUNDS = 13
OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1},
}


# Which no ensemble here meets without a shift.
DEMANDING = {"binary": [gc.fnr() <= 0.05], "several": [gc.class_error(2) <= 0.05]}
GUARANTEES = {"expected": gc.Expected, "high_probability": gc.HighProbability}


def make(library, rules, **options):
    options = {"n_estimators": ROUNDS, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def decided(scores):
    return scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)


def clopper_pearson(k, n, level=0.95):
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    return low, stats.beta.ppf(1 - tail, k + 1, n - k) if k < n else 1.0


def certified(library, rules, table, kind="binary", **options):
    given = {k: options.pop(k) for k in ("sample_weight", "groups", "sensitive_features")
             if k in options}  # fmt: skip
    asked = options.get("guarantee", "high_probability")
    if isinstance(asked, str):
        options["guarantee"] = GUARANTEES[asked](fraction=0.35)
    return make(library, rules, **options).fit(table[0], table[1][kind], **given)
