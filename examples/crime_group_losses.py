"""
Losses of groups in a regression
================================

Huber's loss is robust: rows far from their prediction pull no harder than others. Where crime is
frequent, a model that is trained by it predicts too little, and its mean squared error is largest
in communities with a high share of Black residents. ``each(mean_loss("squared"), by="black")``
bounds this error in each group, while the objective stays Huber's.
"""

import matplotlib.pyplot as plt
import pandas as pd
from lightgbm import LGBMRegressor
from sklearn.model_selection import train_test_split

from gbm_constrained import ConstrainedLGBMRegressor, each, mean_loss
from gbm_constrained.datasets import load_communities_crime

crime = load_communities_crime()
X, X_test, y, y_test, groups, groups_test = train_test_split(
    crime.data, crime.target, crime.sensitive_features, test_size=0.4, random_state=0
)

# %%
# Train
# -----
# Groups are known to ``fit`` alone. Scale and shift of the scores are chosen on held-out rows, and
# are part of the model. The table is small, and four folds measure it more closely than two.
parameters = {
    "objective": "huber", "alpha": 0.1, "n_estimators": 100, "learning_rate": 0.05,
    "num_leaves": 7, "n_jobs": 1, "verbose": -1,
}  # fmt: skip
bound = 0.03
constraints = [each(mean_loss("squared"), by="black") <= bound]
plain = LGBMRegressor(**parameters).fit(X, y)
constrained = ConstrainedLGBMRegressor(
    constraints=constraints, measure_on="crossfit", **parameters
)
constrained.fit(X, y, sensitive_features=groups)
columns = ["constraint", "held_out", "low", "high", "verdict"]
print(constrained.constraint_report_[columns].round(4).to_string(index=False))
print(constrained.adjustment_.round(3).to_dict())


# %%
# Measure
# -------
# Mean squared error of each group on test rows, with its standard error.
def measure(model):
    error = (y_test - model.predict(X_test)) ** 2
    of_groups = error.groupby(groups_test["black"]).agg(["mean", "sem"])
    of_groups.loc["all"] = error.mean(), error.sem()
    return of_groups


models = {"plain": plain, "constrained": constrained}
table = pd.concat({name: measure(model) for name, model in models.items()}, axis=1)
print(table.round(4).to_string())

# %%
# Losses before and after
# -----------------------
# Bars have 95% intervals.
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for i, name in enumerate(models):
    at = [x + 0.4 * i - 0.2 for x in range(len(table))]
    ax.bar(at, table[name, "mean"], 0.36, yerr=1.96 * table[name, "sem"], capsize=3, label=name)
ax.axhline(bound, color="black", linestyle="--", linewidth=1, label="bound of each group")
ax.set(xticks=range(len(table)), ylabel="mean squared error, test rows")
ax.set_xticklabels(["high share of\nBlack residents", "low share", "all communities"])
ax.legend(frameon=False)
figure.savefig("crime_group_losses.png", dpi=150)
