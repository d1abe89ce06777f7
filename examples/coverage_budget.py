"""
A budget on rows without labels
===============================

Select at most 15% of the persons of today, of whom no label is known, and be right about nine
in ten of those selected among the training rows: ``selection_rate(on=dataset("today")) <= 0.15``
and ``precision() >= 0.9``. Rows of a named data set take part in the constraint and not in the
objective.
"""

import matplotlib.pyplot as plt
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.metrics import precision_score, recall_score
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult

adult = load_adult()
X_train, X_rest, y_train, y_rest = train_test_split(
    adult.data, adult.target, test_size=0.4, random_state=0
)
X_today, X_test, _, y_test = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)

# %%
# Train
# -----
# The budget alone asks for no more than a threshold. The precision is a second constraint, and
# asks for fewer persons. Both are measured on rows that the trees have not seen.
parameters = {"n_estimators": 30, "verbose": -1, "n_jobs": 1}
budget = gc.selection_rate(on=gc.dataset("today")) <= 0.15
models = {"plain": LGBMClassifier(**parameters).fit(X_train, y_train)}
for name, constraints in {
    "budget": [budget],
    "budget and precision": [budget, gc.precision() >= 0.9],
}.items():
    model = gc.ConstrainedLGBMClassifier(constraints=constraints, **parameters)
    models[name] = model.fit(X_train, y_train, datasets={"today": X_today})
    print(model.constraint_report_[["constraint", "held_out", "low", "high", "verdict"]].round(3))

# %%
# Measure
# -------
# Test rows come from where the rows of today come from, and their labels are known.
table = pd.DataFrame(
    {
        name: {
            "selected today": model.predict(X_today).mean(),
            "selected of test rows": model.predict(X_test).mean(),
            "precision": precision_score(y_test, model.predict(X_test)),
            "recall": recall_score(y_test, model.predict(X_test)),
            "accuracy": model.score(X_test, y_test),
        }
        for name, model in models.items()
    }
).T
print(table.round(3).to_string())

# %%
# Selected, and rightly selected
# ------------------------------
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
ax.barh(table.index, table["selected of test rows"], color="tab:orange", label="selected")
right = table["selected of test rows"] * table["precision"]
ax.barh(table.index, right, color="tab:blue", label="selected, and positive")
ax.axvline(0.15, color="black", linestyle=":", label="budget")
ax.set(xlabel="share of the test rows", title="Persons selected under a budget of 15%")
ax.invert_yaxis()
figure.legend(loc="outside lower center", ncols=3)
figure.savefig("coverage_budget.png", dpi=150)
