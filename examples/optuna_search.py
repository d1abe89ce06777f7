"""A search with optuna
====================

Search parameters of a constrained classifier::

    python examples/optuna_search.py --trials 20

The rule is part of the model, so that every trial obeys it and the study has one objective: the
accuracy on rows that the trees have not seen, which each fit reports of itself. Trials whose rule
does not hold there are told to the study as constraints, which its sampler avoids.

The data are the bundled copy of Adult; the rule, false alarm rates of women and men within
2 points. Needs optuna.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import optuna
from sklearn.metrics import accuracy_score

from gbm_constrained import ConstrainedLGBMClassifier, fpr, gap
from gbm_constrained.cli.main import at_least
from gbm_constrained.datasets import load_adult

# What optuna 5 has in its place is unknown to optuna 4.
warnings.filterwarnings("ignore", message="`constraints_func` has been deprecated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=at_least(1), default=15)
    parser.add_argument(
        "--rounds", type=at_least(20), default=100, help="boosting rounds at most, 20 or more"
    )
    parser.add_argument(
        "--rows", type=at_least(100), default=8000, help="training rows, 100 or more"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="threads of each fit")
    arguments = parser.parse_args()

    data = load_adult(download=False)
    train = np.flatnonzero(data.split == "train")
    chosen = np.random.default_rng(arguments.seed).permutation(train)[: arguments.rows]
    X, y = data.data.iloc[chosen], data.target.iloc[chosen]
    sex = data.sensitive_features.iloc[chosen]
    rule = gap(fpr(), by="sex") <= 0.02

    def classifier(parameters: dict[str, float]) -> ConstrainedLGBMClassifier:
        return ConstrainedLGBMClassifier(
            constraints=[rule],
            random_state=arguments.seed,
            n_jobs=arguments.jobs,
            verbose=-1,
            **parameters,
        )

    def objective(trial: optuna.Trial) -> float:
        parameters = {
            "n_estimators": trial.suggest_int("n_estimators", 20, arguments.rounds),
            "learning_rate": trial.suggest_float("learning_rate", 0.05, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 63, log=True),
            "min_child_samples": trial.suggest_int("min_child_samples", 5, 100, log=True),
        }
        model = classifier(parameters).fit(X, y, sensitive_features=sex)
        report = model.constraint_report_.iloc[0]
        trial.set_user_attr("violation", float(report["held_out"] - report["bound"]))
        return float(model.unseen_accuracy_.value)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        seed=arguments.seed, constraints_func=lambda trial: [trial.user_attrs["violation"]]
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=arguments.trials)

    held = [trial for trial in study.trials if trial.user_attrs["violation"] <= 0.0]
    print(f"{len(held)} of {len(study.trials)} trials meet {rule} on unseen rows")
    if held:
        best = max(held, key=lambda trial: trial.value)
        print(f"best of them: {best.params}")
    else:
        best = min(study.trials, key=lambda trial: trial.user_attrs["violation"])
        print(f"the nearest to it: {best.params}")
    model = classifier(best.params).fit(X, y, sensitive_features=sex)
    decisions = model.predict(data.data[data.split == "test"])
    labels = data.target[data.split == "test"].to_numpy()
    women = (data.sensitive_features["sex"][data.split == "test"] == "Female").to_numpy()
    negative = labels == model.classes_[0]
    alarms = decisions == model.classes_[1]
    rates = [alarms[negative & group].mean() for group in (women, ~women)]
    print(f"test accuracy {accuracy_score(labels, decisions):.4f}")
    print(f"test false alarms of women {rates[0]:.4f}, of men {rates[1]:.4f}")


# %%
# What it prints
# --------------
if __name__ == "__main__":
    main()
