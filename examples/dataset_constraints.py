"""
Three data sets in one fit
==========================

A linear model is deployed. Its successor learns from newer rows, and has to find four points more
of their positives. Few decisions may change on recent rows, which have no labels yet. Egregious
errors are those on people with large capital gains who earn more: at most 2% of these may be
missed, in a data set of their own.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.metrics import accuracy_score, recall_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gbm_constrained as gc
from gbm_constrained.datasets import load_adult
from gbm_constrained.plotting import CertificateDisplay

adult = load_adult()
prepare = make_column_transformer(
    (OneHotEncoder(), make_column_selector(dtype_include="category")),
    (StandardScaler(), make_column_selector(dtype_include="number")),
)
X, y = prepare.fit_transform(adult.data).tocsr(), adult.target.to_numpy()
rows = np.random.default_rng(0).permutation(len(y))
old, new, recent, seen, test = np.split(rows, [2000, 6000, 10_000, 24_000])
is_egregious = (adult.data["capital-gain"] >= 7000).to_numpy() & (y == 1)
egregious = seen[is_egregious[seen]]

# %%
# Train
# -----
# The certificate has the ramp objective of each step, and the largest violation by ramp rates,
# which is never above zero. The report is about decisions by the sign of the score, whose rates
# are near the ramp rates and not the same.
hinge = {"loss": "hinge", "max_iter": 100_000, "random_state": 0}
deployed = gc.ConstrainedLinearSVC(**hinge).fit(X[old], y[old])
models = {"deployed": deployed, "plain": gc.ConstrainedLinearSVC(**hinge).fit(X[new], y[new])}
least = recall_score(y[new], deployed.predict(X[new])) + 0.04
for bound in (0.02, 0.04):
    constraints = [
        gc.churn(to=deployed, on=gc.dataset("recent")) <= bound,
        gc.recall() >= least,
        gc.error_rate(on=gc.dataset("egregious")) <= 0.02,
    ]
    model = gc.ConstrainedLinearSVC(constraints=constraints, n_iterations=5)
    data = {"recent": X[recent], "egregious": (X[egregious], y[egregious])}
    models[f"churn <= {bound:g}"] = model.fit(X[new], y[new], datasets=data)
print(model.constraint_report_[["constraint", "train", "verdict"]].round(3))
print(model.certificate_[["objective", "violation", "lower", "upper", "n_cuts"]].round(5))

# %%
# Measure
# -------
records = []
for name, fitted in models.items():
    predicted = fitted.predict(X[test])
    churn = np.mean(predicted != deployed.predict(X[test]))
    accuracy, recall = (score(y[test], predicted) for score in (accuracy_score, recall_score))
    missed = 1 - recall_score(y[test], predicted, sample_weight=is_egregious[test])
    records.append((name, churn, accuracy, recall, missed))
columns = ["model", "churn", "accuracy", "recall", "egregious errors"]
table = pd.DataFrame(records, columns=columns).set_index("model")
print(table.round(4))

# %%
# Certificate and trade-off
# -------------------------
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4), layout="constrained")
CertificateDisplay.from_estimator(model, ax=left)
for name, row in table.iterrows():
    right.plot(row["churn"], row["recall"], "o", label=name)
right.set(xlabel="churn on test rows", ylabel="recall on test rows")
right.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
figure.savefig("dataset_constraints.png", dpi=150)
