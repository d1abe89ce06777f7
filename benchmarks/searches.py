"""Searches over bounds and depths: what test rows say of the model that each score picks.

Adult, COMPAS and Bank, LightGBM with 40 rounds. A search by three folds of 3,000 training rows
chooses among four bounds and three depths, one of the bounds being the constraint that is asked
for, and the model is refitted on all 3,000. "scorer" picks by ``constraint_scorer``, "accuracy" by
accuracy alone, and "as asked" the depth by accuracy under the bound that is asked for. A pick
holds where the constraint is met on all other rows, or missed by two standard errors at most.

    python benchmarks/searches.py [--data adult] [--splits 10] [--output FOLDER]

Each search is a row of a CSV, and is not repeated while its row is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from data_sets import load
from result_file import Figures, Table, at_least, make_parser, run_tables
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split

from gbm_constrained import ConstrainedLGBMClassifier, audit, constraint_scorer
from gbm_constrained.reporting.scoring import violations_in_errors

# The constraint, and bounds of it: two tighter ones, the one that is asked for, and a loose one.
ASKED = {
    "adult": ("gap(selection_rate, by=sex) <= {}", (0.02, 0.05, 0.1, 0.3)),
    "compas": ("gap(fpr, by=black) <= {}", (0.02, 0.05, 0.1, 0.3)),
    "bank": ("fnr <= {}", (0.2, 0.3, 0.4, 0.6)),
}
DEPTHS = (2, 4, 8)
N_TRAINING = 3000


def search(data: str, split: int) -> Figures:
    """Search by both scores at once, and measure what each picks on the rows left out."""
    table, (text, bounds) = load(data), ASKED[data]
    train, test = train_test_split(
        np.arange(table.y.size), train_size=N_TRAINING, stratify=table.y, random_state=split
    )
    given = {"sensitive_features": table.groups.iloc[train]}
    constraints, asked = [text.format(bound) for bound in bounds], text.format(bounds[2])
    model = ConstrainedLGBMClassifier(n_estimators=40, n_jobs=1, verbose=-1)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = constraint_scorer(asked, "accuracy").set_score_request(sensitive_features=True)
        found = GridSearchCV(
            model.set_fit_request(sensitive_features=True),
            {"constraints": constraints, "max_depth": DEPTHS},
            scoring={"scorer": scorer, "accuracy": "accuracy"},
            cv=StratifiedKFold(3, shuffle=True, random_state=split),
            refit=False,
        ).fit(table.X[train], table.y[train], **given)
    results = found.cv_results_
    is_asked = np.array([chosen["constraints"] == asked for chosen in results["params"]])
    accuracy = results["mean_test_accuracy"]
    scores = {
        "scorer": results["mean_test_scorer"],
        "accuracy": accuracy,
        "as_asked": np.where(is_asked, accuracy, -np.inf),
    }
    figures: dict[str, Any] = {}
    for name, score in scores.items():
        chosen = results["params"][int(np.argmax(score))]
        fitted = model.set_params(**chosen).fit(table.X[train], table.y[train], **given)
        groups = table.groups.iloc[test]
        rows = audit(fitted, table.X[test], table.y[test], asked, sensitive_features=groups).frame
        figures[f"{name}_bound"] = bounds[constraints.index(chosen["constraints"])]
        figures[f"{name}_depth"] = chosen["max_depth"]
        figures[f"{name}_value"] = rows["value"][0]
        figures[f"{name}_holds"] = float(violations_in_errors(rows)[0] <= 2.0)
        figures[f"{name}_accuracy"] = fitted.score(table.X[test], table.y[test])
    return figures


TABLES = {
    "searches": Table(
        search,
        {"data": ASKED, "split": range(10)},
        "{data:6s} holds: scorer {scorer_holds:.2f}, accuracy {accuracy_holds:.2f}, as asked "
        "{as_asked_holds:.2f}; accuracy: {scorer_accuracy:.4f} {accuracy_accuracy:.4f} "
        "{as_asked_accuracy:.4f}; bound: {scorer_bound:.3f} {accuracy_bound:.3f}",
    )
}


if __name__ == "__main__":
    run_tables(TABLES, "searches", make_parser(__doc__), data=ASKED, split=at_least(1))
