"""
Replacing a deployed model
==========================

A plain model, trained on older rows, is deployed. Its successor learns from newer rows and has to
find as many positives, ``recall() >= r``, while few decisions change, ``churn(to=deployed) <= c``.
The deployed model has not seen the newer rows, so that both constraints mean there what they mean
later on.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.metrics import accuracy_score, recall_score
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult

adult = load_adult()
X_train, X_test, y_train, y_test = train_test_split(
    adult.data, adult.target, test_size=0.3, random_state=0
)
half = len(X_train) // 2
X_old, y_old, X_new, y_new = X_train[:half], y_train[:half], X_train[half:], y_train[half:]

# %%
# Train
# -----
# The successors keep the recall that the deployed model has on the newer rows. Each of them may
# change another share of the decisions.
parameters = {"n_estimators": 60, "verbose": -1, "n_jobs": 1}
deployed = LGBMClassifier(**parameters).fit(X_old, y_old)
least = recall_score(y_new, deployed.predict(X_new))
models = {"deployed": deployed, "plain": LGBMClassifier(**parameters).fit(X_new, y_new)}
for bound in (0.04, 0.02):
    constraints = [gc.recall() >= least, gc.churn(to=deployed) <= bound]
    model = gc.ConstrainedLGBMClassifier(constraints=constraints, **parameters)
    models[f"churn <= {bound:g}"] = model.fit(X_new, y_new)
    print(model.constraint_report_[["constraint", "held_out", "low", "high", "verdict"]].round(3))

# %%
# Measure
# -------
# A win is a row that was wrong and is right now, a loss the reverse. Their sum is the churn.
records = []
before = deployed.predict(X_test)
for name, model in models.items():
    predicted = model.predict(X_test)
    records.append(
        {
            "model": name,
            "churn": np.mean(predicted != before),
            "wins": np.mean((predicted == y_test) & (before != y_test)),
            "losses": np.mean((predicted != y_test) & (before == y_test)),
            "recall": recall_score(y_test, predicted),
            "accuracy": accuracy_score(y_test, predicted),
        }
    )
table = pd.DataFrame(records).set_index("model")
print(table.round(4))

# %%
# What changed
# ------------
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
table.drop(index="deployed")[["wins", "losses"]].plot.barh(ax=ax, color=["tab:blue", "tab:red"])
ax.invert_yaxis()
ax.set(xlabel="share of the test rows", ylabel="", title="Decisions that changed")
figure.savefig("churn_and_recall.png", dpi=150)
