"""Rates reached on the training rows, and accuracy given up against the best threshold.

Adult with its original split, 300 rounds, defaults otherwise, `fpr() <= 0.03` and `fnr() <= 0.20`;
Dry Bean (80/20) with four class errors at once, default parameters. The baseline on Adult is the
unconstrained model with the threshold on its *test* scores at which it has the same test rate:
the most that any threshold could do.

    GBM_CONSTRAINED_DATA=... python benchmarks/training.py [--library lightgbm]
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from libraries import LIBRARIES, make
from result_file import make_parser
from sklearn.model_selection import train_test_split

from gbm_constrained import class_error, fnr, fpr
from gbm_constrained.datasets import load_adult, load_dry_bean

DRY_BEAN_RULES = {1: 0.01, 2: 0.03, 3: 0.02, 4: 0.02}


def model_of(library, constraints, **options):
    return make(library, constraints, n_jobs=2, measure_on="train", **options)


def accuracy_at_same_rate(score, y, label, rate):
    """Accuracy of the threshold at which class `label` has error `rate`."""
    ordered = np.sort(score[y == label])
    allowed = int(np.floor(rate * ordered.size + 1e-9))
    # Errors of the negative class lie above the threshold, those of the positive one at or below.
    threshold = ordered[-1 - allowed] if label == 0 else np.nextafter(ordered[allowed], -np.inf)
    return np.mean((score > threshold) == y)


def adult(library):
    """Yield (rule, bound, train rate, test rate, test accuracy, accuracy of the threshold)."""
    data = load_adult()
    train = (data.split == "train").to_numpy()
    X, y = data.data[train], data.target[train].to_numpy()
    X_test, y_test = data.data[~train], data.target[~train].to_numpy()
    score = model_of(library, [], n_estimators=300).fit(X, y).predict_proba(X_test)[:, 1]
    for rule, label in ((fpr() <= 0.03, 0), (fnr() <= 0.20, 1)):
        clf = model_of(library, [rule], n_estimators=300).fit(X, y)
        decisions = clf.predict(X_test)
        rate = np.mean(decisions[y_test == label] != label)
        train_rate = np.mean(clf.predict(X)[y == label] != label)
        best = accuracy_at_same_rate(score, y_test, label, rate)
        yield str(rule), rule.bound, train_rate, rate, np.mean(decisions == y_test), best


def dry_bean(library):
    """Class errors of classes 1 to 4 on training and test rows, and test accuracy."""
    data = load_dry_bean()
    y = pd.Categorical(data.target).codes.astype(int)
    X = data.data.iloc[:, :-1]
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
    rules = [class_error(k) <= e for k, e in DRY_BEAN_RULES.items()]
    clf = model_of(library, rules).fit(X, y)
    errors = [
        [np.mean(decisions[truth == k] != k) for k in DRY_BEAN_RULES]
        for decisions, truth in ((clf.predict(X), y), (clf.predict(X_test), y_test))
    ]
    return *errors, clf.score(X_test, y_test)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--library", choices=LIBRARIES)
    args = parser.parse_args()
    libraries = (args.library,) if args.library else LIBRARIES
    for name in libraries:
        for rule, bound, train, test, accuracy, best in adult(name):
            print(
                f"Adult {name:9s} {rule:12s} train {train:.4f} (off {train - bound:+.4f}), test "
                f"{test:.4f}; test accuracy {accuracy:.4f}, best threshold {best:.4f}, given up "
                f"{100 * (best - accuracy):+.2f} points"
            )
    for name in libraries:
        train, test, accuracy = dry_bean(name)
        print(
            f"Dry Bean {name:9s} bounds {list(DRY_BEAN_RULES.values())} train "
            f"{np.round(train, 4).tolist()} test {np.round(test, 4).tolist()} accuracy "
            f"{accuracy:.4f}"
        )


if __name__ == "__main__":
    main()
