"""What the tests of figures share (drawing)."""

import io
import xml.etree.ElementTree as ET

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gbm_constrained as gc


def fitted(data, constraints, held_out=True, **options):
    X, y, X_held, y_held = data
    model = gc.ConstrainedXGBClassifier(
        constraints=constraints,
        n_estimators=12,
        max_depth=2,
        n_jobs=1,
        random_state=0,
        **{"measure_on": "train", **options},
    )
    return model.fit(X, y, eval_set=[(X_held, y_held)] if held_out else None, verbose=False)


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def assert_line(line, x, y):
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), y)


def curve():
    return pd.DataFrame(
        {
            "bound": [0.2, 0.1],
            "value": [0.15, 0.12],
            "value_low": [0.12, 0.1],
            "value_high": [0.19, 0.13],
            "accuracy": [0.9, 0.88],
            "accuracy_low": [0.89, 0.87],
            "accuracy_high": [0.92, 0.89],
        }
    )


class Fixed:
    """A model of which the decisions are known."""

    constraints: tuple = ()

    def __init__(self, decisions, constraints=()):
        self.decisions, self.constraints = decisions, constraints

    def predict(self, X):
        return self.decisions


def written(ax):
    """Texts of a figure as its readers see them: one element each, of what is no mathematics."""
    file = io.BytesIO()
    with plt.rc_context({"svg.fonttype": "none"}):
        ax.figure.savefig(file, format="svg")
    return [element.text for element in ET.fromstring(file.getvalue()).iter() if element.text]
