"""The figure of what was asked of models draws the rows of its table."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import assert_line, labels

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
plot_requested = runpy.run_path(str(EXAMPLES / "requested.py"))["plot_requested"]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def requests():
    """Two rules by two libraries, each without a bound and with two."""
    keys = [(rule, library) for rule in ("gap", "churn") for library in ("XGBoost", "LightGBM")]
    return pd.DataFrame(
        [
            {
                "rule": rule,
                "library": library,
                "requested": bound,
                "train": 10.0 * i + j,
                "test": 10.0 * i + j + 0.5,
                "accuracy": 80.0 + j,
            }
            for i, (rule, library) in enumerate(keys)
            for j, bound in enumerate([2.0, None, 5.0])
        ]
    )


def test_requested_draws_a_line_per_rule_and_library():
    left, right = plot_requested(requests(), variant="library")
    diagonal, *lines = left.get_lines()
    assert_line(diagonal, [2, 5], [2, 5])
    on_test, on_train, plain = lines[::3], lines[1::3], lines[2::3]
    for i in range(4):
        # From the loose bound to the tight one, whatever the order of the rows.
        assert_line(on_test[i], [5, 2], [10 * i + 2.5, 10 * i + 0.5])
        assert_line(on_train[i], [5, 2], [10 * i + 2, 10 * i])
        assert_line(plain[i], [5.6], [10 * i + 1.5])
        assert (on_train[i].get_markerfacecolor(), plain[i].get_marker()) == ("none", "x")
    assert [line.get_color() for line in on_test] == ["#0072B2"] * 2 + ["#D55E00"] * 2
    assert [line.get_marker() for line in on_test] == ["o", "s", "o", "s"]
    assert [text.get_text() for text in left.get_xticklabels()] == ["2", "5", "none"]
    joined, crosses = right.get_lines()[::2], right.get_lines()[1::2]
    for i in range(4):
        assert_line(joined[i], 10 * i + np.array([1.5, 2.5, 0.5]), [81, 82, 80])
        assert joined[i].get_markevery() == [1, 2]
        assert_line(crosses[i], [10 * i + 1.5], [81])


@pytest.mark.parametrize("bound", [0.2, 0.0, -0.1])
def test_requested_of_one_bound_has_a_diagonal(bound):
    table = requests()
    points = table[table["requested"].isna() | (table["requested"] == 2)].replace(
        {"requested": {2.0: bound}}
    )
    left, _ = plot_requested(points)
    diagonal, *_ = left.get_lines()
    across, up = diagonal.get_data()
    np.testing.assert_array_equal(across, up)
    assert across.mean() == pytest.approx(bound)
    first, none = left.get_xticks()
    assert first == bound < across[1] < none
    assert none - bound >= 0.01


def test_requested_labels():
    left, right = plot_requested(requests(), variant="library")
    assert labels(right) == [
        "gap", "churn", "XGBoost", "LightGBM", "training rows", "as requested", "no rule"
    ]  # fmt: skip
    assert (left.get_xlabel(), left.get_ylabel()) == ("requested", "test")
    assert (right.get_xlabel(), right.get_ylabel()) == ("test", "accuracy")
    gaps = requests()[:6]
    left, right = plot_requested(gaps, series="library", variant="library", train=None)
    assert labels(right) == ["XGBoost", "LightGBM", "as requested", "no rule"]
    assert len(left.get_lines()) == 5  # the diagonal, and two for each library


def test_requested_draws_into_the_axes_given():
    _, axes = plt.subplots(1, 2)
    ruled = requests().dropna()
    assert list(plot_requested(ruled, axes)) == list(axes)
    assert len(plt.get_fignums()) == 1
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["2", "5"]
    assert "no rule" not in labels(axes[1])


def test_requested_needs_a_bound():
    with pytest.raises(ValueError, match="'requested' holds nothing"):
        plot_requested(requests().assign(requested=np.nan))
