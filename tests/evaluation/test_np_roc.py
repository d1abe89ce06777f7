"""The Neyman-Pearson band holds what it promises."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve
from sklearn.svm import LinearSVC

import gbm_constrained as gc
from gbm_constrained.statistics.order_statistics import minimum_rows, umbrella_threshold

DELTA = 0.1


def sample(rng, n=300, m=200):
    y = np.repeat([0, 1], [n, m])
    return rng.normal(size=n + m) + y, y


def test_thresholds_are_the_umbrella_s():
    scores, y = sample(np.random.default_rng(0))
    band = gc.np_roc_band(scores, y, DELTA, alpha=[0.02, 0.05, 0.2])
    expected = [umbrella_threshold(scores[y == 0], a, DELTA) for a in (0.02, 0.05, 0.2)]
    np.testing.assert_array_equal(band["threshold"], expected)
    below = np.searchsorted(np.sort(scores[y == 0]), expected)
    for a, k in zip(band["alpha"], below, strict=True):
        # v(k + 1) <= delta < v(k), where k scores are below the threshold
        assert stats.binom.sf(k, 300, 1 - a) <= DELTA < stats.binom.sf(k - 1, 300, 1 - a)


def test_every_order_statistic_serves_from_where_its_tail_is_delta_on():
    scores, y = sample(np.random.default_rng(1), n=40)
    band = gc.np_roc_band(scores, y, DELTA)
    assert len(band) == 41
    assert band["alpha"].is_monotonic_increasing
    k = np.arange(40, 0, -1)
    tails = stats.binom.sf(k - 1, 40, 1 - band["alpha"].to_numpy()[1:])
    np.testing.assert_allclose(tails, DELTA, rtol=1e-8)


def test_rates_are_those_of_the_thresholds():
    scores, y = sample(np.random.default_rng(2))
    scores = np.round(scores, 1)  # ties: at the threshold is below it
    for row in gc.np_roc_band(scores, y).itertuples():
        assert row.fpr == pytest.approx(np.mean(scores[y == 0] > row.threshold))
        assert row.fnr == pytest.approx(np.mean(scores[y == 1] <= row.threshold))
        assert row.fnr_lower <= row.fnr <= row.fnr_upper


def test_a_bound_beyond_the_rows_is_met_by_rejecting_nothing():
    scores, y = sample(np.random.default_rng(3), n=20)
    least = minimum_rows(0.05, 0.05)
    band = gc.np_roc_band(scores, y, 0.05, alpha=[0.05])
    assert least > 20
    assert np.isposinf(band["threshold"][0])
    assert band.iloc[0, 2:].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_a_bound_of_one_is_met_by_accepting_everything():
    band = gc.np_roc_band(*sample(np.random.default_rng(3), n=20), alpha=[1.0])
    assert band.iloc[0].tolist() == [1.0, -np.inf, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("decimals", [None, 1], ids=["continuous", "ties"])
def test_coverage(decimals):
    """Over 600 samples, each statement fails about as often as delta allows, and no more."""
    rng = np.random.default_rng(4)
    alpha = np.array([0.05, 0.2])
    too_many, outside = np.zeros(2), np.zeros(2)
    repeats = 600
    for _ in range(repeats):
        scores, y = sample(rng)
        shift = 0.0
        if decimals is not None:
            scores, shift = np.round(scores, decimals), 0.05  # true rates of rounded scores
        band = gc.np_roc_band(scores, y, DELTA, alpha=alpha)
        threshold = band["threshold"].to_numpy() + shift
        too_many += stats.norm.sf(threshold) > alpha
        missed = stats.norm.cdf(threshold - 1.0)
        outside += (missed < band["fnr_lower"]) | (missed > band["fnr_upper"])
    slack = 3 * np.sqrt(DELTA * (1 - DELTA) / repeats)
    assert (too_many / repeats <= DELTA + slack).all()
    assert (outside / repeats <= DELTA + slack).all()
    if decimals is None:  # it is not met by being useless
        assert (too_many / repeats >= DELTA / 3).all()
        assert (outside / repeats >= DELTA / 3).all()


@pytest.mark.parametrize(
    ("scores", "y", "options", "match"),
    [
        ([0.1, 0.2], [0, 1, 1], {}, "scores and y must be one-dimensional and equally long"),
        ([[0.1], [0.2]], [0, 1], {}, "got shapes"),
        ([0.1, np.nan], [0, 1], {}, "scores must be finite, got nan in row 1"),
        ([0.1, 0.2], [0, 0], {}, "y must hold two classes"),
        ([0.1, 0.2, 0.3], [0, 1, 2], {}, "give y == k"),
        ([0.1, 0.2], [0, np.nan], {}, "y has 1 missing values"),
        ([0.1, 0.2, 0.3], ["a", None, "b"], {}, "y has 1 missing values"),
        ([0.1, 0.2, 0.3], np.arange(3), {}, r"got \[0, 1, 2\]: with several classes, give"),
        ([0.1] * 25, range(25), {}, r"18, 19 and 5 more\]: with several classes, give"),
        ([0.1, 0.2], [0, 1], {"delta": 0.0}, "delta must lie strictly between 0 and 1, got 0.0"),
        ([0.1, 0.2], [0, 1], {"delta": "x"}, "delta must lie strictly between 0 and 1, got 'x'"),
        ([0.1, 0.2], [0, 1], {"alpha": [1.5]}, "alpha must hold type I errors"),
        ([0.1, 0.2], [0, 1], {"alpha": [[0.1]]}, "alpha must hold type I errors"),
    ],
)
def test_errors(scores, y, options, match):
    with pytest.raises(ValueError, match=match):
        gc.np_roc_band(scores, y, **options)


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def test_plot_shows_the_band_and_the_empirical_curve(plt, binary):
    from gbm_constrained.plotting import plot_np_roc

    X, y = binary
    model = LogisticRegression().fit(X[:500], y[:500])
    ax = plot_np_roc(model, X[500:], y[500:], delta=0.1)
    scores = model.decision_function(X[500:])
    band = gc.np_roc_band(scores, y[500:], 0.1)
    low, high, empirical = ax.get_lines()
    np.testing.assert_array_equal(low.get_xdata()[:-1], band["alpha"])
    np.testing.assert_allclose(low.get_ydata()[:-1], 1 - band["fnr_upper"])
    np.testing.assert_allclose(high.get_ydata()[:-1], 1 - band["fnr_lower"])
    fpr, tpr, _ = roc_curve(y[500:], scores, drop_intermediate=False)
    np.testing.assert_array_equal(empirical.get_xdata(), fpr)
    np.testing.assert_array_equal(empirical.get_ydata(), tpr)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["LogisticRegression, band at 0.9", "LogisticRegression, empirical"]
    same = plot_np_roc(scores, None, y[500:], ax=ax, label="again")
    assert same is ax
    assert ax.get_lines()[3].get_color() != low.get_color()


def test_plot_of_models_without_scores_says_so(plt, binary):
    from gbm_constrained.plotting import plot_np_roc

    class Decides:
        def predict(self, X):
            return np.zeros(len(X))

    X, y = binary
    with pytest.raises(TypeError, match="neither decision_function nor predict_proba"):
        plot_np_roc(Decides(), X, y)
    model = LinearSVC().fit(X[:300], y[:300])
    assert plot_np_roc(model, X[300:], y[300:]).get_xlabel()
