"""
Several classes, with bounds on some of their errors
====================================================

The COMPAS score has three classes: low, medium and high. At most 40% of the high scores may be
called something else, ``class_error("High") <= 0.4``, and at most 5% of the low scores may be
called high, ``confusion("Low", "High") <= 0.05``. The errors without a bound are the price.
"""

import matplotlib.pyplot as plt
from lightgbm import LGBMClassifier
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.datasets import load_compas

compas = load_compas(target="score_text")
X_train, X_test, y_train, y_test = train_test_split(
    compas.data, compas.target, test_size=0.3, random_state=0
)

# %%
# Train
# -----
# Each constraint has a multiplier in training. Afterwards the biases of the classes are moved to
# where the constraints hold on rows that the trees have not seen. Few rows are such confusions,
# and four folds measure them more closely than two.
parameters = {"n_estimators": 60, "num_leaves": 8, "verbose": -1, "n_jobs": 1}
constraints = [gc.class_error("High") <= 0.4, gc.confusion("Low", "High") <= 0.05]
plain = LGBMClassifier(**parameters).fit(X_train, y_train)
constrained = gc.ConstrainedLGBMClassifier(
    constraints=constraints, measure_on="crossfit", **parameters
)
constrained.fit(X_train, y_train)
columns = ["constraint", "held_out", "low", "high", "verdict", "multiplier"]
print(constrained.constraint_report_[columns].round(3).to_string())

# %%
# Measure
# -------
# Values, intervals and verdicts of both models on test rows.
models = {"plain": plain, "constrained": constrained}
for name, model in models.items():
    report = gc.audit(model, X_test, y_test, constraints)
    print(f"{name}: accuracy {report.accuracy.value:.3f}")
    print(report.frame[["constraint", "value", "low", "high", "verdict"]].round(3).to_string())

# %%
# Confusion matrices
# ------------------
# Rows are the true classes, and each adds up to one.
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ConfusionMatrixDisplay.from_estimator(
        model, X_test, y_test, labels=["Low", "Medium", "High"], normalize="true",
        cmap="Blues", values_format=".2f", colorbar=False, ax=ax,
    )  # fmt: skip
    ax.set_title(name)
figure.savefig("several_classes.png", dpi=150)
