"""
A search over parameters
========================

The constraint is part of the model, so that every candidate of a search is trained under it. Each
fit reports its own accuracy, and the value of the constraint, on rows that the trees have not
seen. A search therefore needs no folds of its own. The best candidate is the most accurate one of
those that meet the constraint. ``GridSearchCV`` and optuna take the classifiers as well.
"""

import matplotlib.pyplot as plt
import pandas as pd
from scipy.stats import loguniform, randint
from sklearn.model_selection import ParameterSampler

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult

adult = load_adult()
train = adult.data[adult.split == "train"].sample(8000, random_state=0).index
test = adult.data.index[adult.split == "test"]
X, y, groups = adult.data.drop(columns="sex"), adult.target, adult.sensitive_features

# %%
# Search
# ------
constraint = gc.gap(gc.fpr(), by="sex") <= 0.02
space = {
    "n_estimators": randint(20, 80),
    "learning_rate": loguniform(0.05, 0.3),
    "num_leaves": randint(4, 32),
}
records, models = [], []
for parameters in ParameterSampler(space, n_iter=8, random_state=0):
    model = gc.ConstrainedLGBMClassifier(
        constraints=[constraint], random_state=0, n_jobs=1, verbose=-1, **parameters
    )
    model.fit(X.loc[train], y[train], sensitive_features=groups.loc[train])
    report = model.constraint_report_.loc[0]
    models.append(model)
    records.append(
        parameters
        | {"gap": report["held_out"], "is_met": report["satisfied"]}
        | {"accuracy": model.unseen_accuracy_.value}
    )
table = pd.DataFrame(records).sort_values(["is_met", "accuracy"], ascending=False)
print(table.round(3).to_string())

# %%
# Measure the best
# ----------------
# The best of several candidates looks better than it is. Test rows have chosen
# nothing, and measure what it is.
best = models[table.index[0]]
print(gc.audit(best, X.loc[test], y[test], constraint, sensitive_features=groups.loc[test]))

# %%
# The candidates
# --------------
figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
points = ax.scatter(table["gap"], table["accuracy"], c=table["num_leaves"])
ax.axvline(0.02, color="grey", linestyle=":", label="bound")
ring = {"facecolors": "none", "edgecolors": "black", "label": "best"}
ax.scatter(*table[["gap", "accuracy"]].iloc[0], s=150, **ring)
ax.set(xlabel="gap of false positive rates, out of fold", ylabel="accuracy, out of fold")
figure.colorbar(points, label="leaves")
figure.legend(loc="outside lower center", ncols=2)
figure.savefig("parameter_search.png", dpi=150)
