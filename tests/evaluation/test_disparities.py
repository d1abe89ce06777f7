"""Base rates, adverse impact ratios and standardised mean differences against closed forms."""

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gbm_constrained as gc
from gbm_constrained.evaluation.disparities import DISPARITY_COLUMNS

SIZES, SELECTED = {"a": 100, "b": 200, "c": 5}, {"a": 30, "b": 120, "c": 5}
GROUP = np.repeat(list(SIZES), list(SIZES.values()))
DECIDED = np.concatenate([np.arange(n) < SELECTED[g] for g, n in SIZES.items()]).astype(int)
Y = np.random.default_rng(0).integers(0, 2, GROUP.size)
X = np.zeros((GROUP.size, 1))
GAP = gc.gap(gc.selection_rate(), by="g") <= 0.1


class Scores(Decides):
    """A model with given probabilities of the second class."""

    classes_ = np.array([0, 1])

    def __init__(self, decisions, probability):
        super().__init__(decisions)
        self.probability = probability

    def predict_proba(self, X):
        return np.column_stack([1.0 - self.probability, self.probability])


class Margins(Decides):
    """A model with given values of decision_function."""

    classes_ = np.array([0, 1])

    def __init__(self, decisions, margin):
        super().__init__(decisions)
        self.margin = margin

    def decision_function(self, X):
        return self.margin


def of_groups(model, constraint=GAP, **given):
    given = {"sensitive_features": {"g": GROUP}, **given}
    return gc.audit(model, X, Y, [constraint], **given).disparities.set_index("group")


@pytest.fixture(scope="module")
def probability():
    return np.random.default_rng(1).beta(2, 3, GROUP.size)


@pytest.mark.filterwarnings(r"ignore:(?s).*GC204:UserWarning")
class TestDisparities:
    def test_ratios_and_gaps_are_those_of_the_rates(self):
        """The five rows of c, all selected, are too few to be the reference."""
        found = of_groups(Decides(DECIDED))
        assert (found["reference"] == "g=b").all()
        assert found["rows"].tolist() == [100, 200, 5]
        np.testing.assert_allclose(found["selection_rate"], [0.3, 0.6, 1.0])
        np.testing.assert_allclose(found["air"], [0.5, 1.0, 1.0 / 0.6])
        np.testing.assert_allclose(found["gap"], [-0.3, 0.0, 0.4])
        assert found["smd"].isna().all()
        assert found.loc["g=b", ["air_low", "air_high"]].isna().all()

    def test_intervals_are_those_of_the_quotient(self):
        found = of_groups(Decides(DECIDED), level=0.9)
        rates = [gc.selection_rate(on={"g": g}) for g in ("a", "b")]
        bounds = [rates[0] / rates[1] >= 0.0, rates[0] >= 0.0]
        frame = gc.audit(
            Decides(DECIDED), X, Y, bounds, sensitive_features={"g": GROUP}, level=0.9
        ).frame
        ends = found.loc["g=a", ["air_low", "air_high", "low", "high"]].astype(float)
        np.testing.assert_allclose(ends, frame[["low", "high"]].to_numpy().ravel())
        assert ends["air_low"] < 0.5 < ends["air_high"]

    def test_the_reference_of_the_constraint_is_kept(self):
        found = of_groups(Decides(DECIDED), gc.gap(gc.fpr(), by="g", reference="a") <= 0.1)
        assert (found["reference"] == "g=a").all()
        np.testing.assert_allclose(found.loc[["g=b", "g=c"], "air"], [2.0, 1.0 / 0.3])

    def test_nobody_selected_has_no_ratio(self):
        found = of_groups(Decides(np.zeros(GROUP.size)))
        assert found["air"].isna().all()
        assert (found["gap"] == 0.0).all()

    def test_standardised_difference_is_cohens_d(self, probability):
        a, b = (probability[g == GROUP] for g in "ab")
        pooled = (99 * a.var(ddof=1) + 199 * b.var(ddof=1)) / 298
        expected = (a.mean() - b.mean()) / np.sqrt(pooled)
        found = of_groups(Scores(DECIDED, probability))
        assert found.loc["g=a", "smd"] == pytest.approx(expected, rel=1e-12)
        assert found.loc["g=b", "smd"] == 0.0
        # Scores of the other class are the mirror image, and so are margins with two signs.
        first = of_groups(Scores(DECIDED, probability), positive=0)
        assert (first["reference"] == "g=a").all()
        assert first.loc["g=b", "smd"] == pytest.approx(expected, rel=1e-12)
        for label, model in (
            (1, Margins(DECIDED, probability)),
            (0, Scores(DECIDED, probability)),
        ):
            again = of_groups(
                model, gc.gap(gc.fpr(), by="g", reference="b") <= 0.1, positive=label
            )
            sign = 1.0 if label else -1.0
            assert again.loc["g=a", "smd"] == pytest.approx(sign * expected, rel=1e-12)

    def test_equal_scores_have_no_standardised_difference(self):
        assert of_groups(Scores(DECIDED, np.full(GROUP.size, 0.5)))["smd"].isna().all()

    def test_equal_weights_change_nothing_and_weights_count(self, probability):
        model = Scores(DECIDED, probability)
        plain = of_groups(model)
        pd.testing.assert_frame_equal(
            of_groups(model, sample_weight=np.full(GROUP.size, 2.0)), plain
        )
        weight = np.where((GROUP == "a") & (DECIDED == 1), 3.0, 1.0)  # 90 of 160
        found = of_groups(model, sample_weight=weight)
        assert found.loc["g=a", "air"] == pytest.approx(90 / 160 / 0.6)
        mean = np.average(probability[GROUP == "a"], weights=weight[GROUP == "a"])
        assert np.sign(found.loc["g=a", "smd"]) == np.sign(mean - probability[GROUP == "b"].mean())

    def test_scores_of_another_shape_are_refused(self):
        model = Scores(DECIDED, np.zeros(3))
        with pytest.raises(ValueError, match=r"Scores.predict_proba returned an array of shape"):
            of_groups(model)

    def test_one_grouping_for_each_of_the_columns(self):
        sex = np.where(np.arange(GROUP.size) % 2, "f", "m")
        bounds = [GAP, gc.gap(gc.fpr(), by="g") <= 0.1, gc.each(gc.fpr(), by=["g", "s"]) <= 0.9]
        found = gc.audit(Decides(DECIDED), X, Y, bounds, sensitive_features={"g": GROUP, "s": sex})
        assert found.disparities["group"].tolist()[:3] == ["g=a", "g=b", "g=c"]
        assert found.base_rates["group"].tolist() == ["all rows", *found.disparities["group"]]
        assert found.disparities["group"].is_unique
        assert "air_low" in str(found)


def test_without_groups_there_are_none():
    found = gc.audit(Decides(DECIDED), X, Y, gc.fpr() <= 0.5)
    assert found.disparities.empty
    assert tuple(found.disparities) == DISPARITY_COLUMNS
    assert "smd" not in str(found)
    assert found.base_rates["group"].tolist() == ["all rows"]


def test_of_several_classes_the_positive_one_is_selected():
    y = np.resize(["x", "y", "z"], 300)
    decided, group = np.roll(y, 1), np.repeat(["a", "b"], [90, 210])
    decided[:45] = "z"
    bound, given = gc.gap(gc.accuracy(), by="g") <= 1.0, {"sensitive_features": {"g": group}}
    assert gc.audit(Decides(decided), np.ones((300, 1)), y, bound, **given).disparities.empty
    found = gc.audit(Decides(decided), np.ones((300, 1)), y, bound, positive="z", **given)
    assert found.disparities["selection_rate"].tolist() == [60 / 90, 70 / 210]
    assert found.disparities["air"].tolist() == [1.0, 0.5]
    assert list(found.base_rates) == ["group", "rows", "share[x]", "share[y]", "share[z]"]


def test_base_rates_are_weighted_shares_of_the_classes():
    y, group = np.repeat([0, 1, 0, 1], [30, 10, 20, 40]), np.repeat(["a", "b"], [40, 60])
    weight = np.where(y == 1, 2.0, 1.0)
    given = {"sensitive_features": {"g": group}, "sample_weight": weight}
    bound = gc.gap(gc.error_rate(), by="g") <= 0.5
    found = gc.audit(Decides(y), np.ones((100, 1)), y, bound, **given).base_rates
    assert found["rows"].tolist() == [100, 40, 60]
    np.testing.assert_allclose(found["share[1]"], [100 / 150, 20 / 50, 80 / 100])
    np.testing.assert_allclose(found["share[0]"] + found["share[1]"], 1.0)


def test_regressors_have_means_of_targets():
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=(100, 1)), np.repeat(["a", "b"], 50)
    y = x[:, 0] + 3.0 * (group == "b")
    bound = gc.gap(gc.mean_prediction(), by="g") <= 1.0
    found = gc.audit(LinearRegression().fit(x, y), x, y, bound, sensitive_features={"g": group})
    np.testing.assert_allclose(found.base_rates["mean"], [y.mean(), y[:50].mean(), y[50:].mean()])
    np.testing.assert_allclose(found.base_rates["std"], [y.std(), y[:50].std(), y[50:].std()])
    assert found.disparities.empty


def test_provenance_splits_the_parameters_of_the_model_inside():
    x, y = np.random.default_rng(0).normal(size=(50, 2)), np.resize([0, 1], 50)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=2.5)).fit(x, y)
    found = gc.audit(model, x, y, gc.fpr() <= 0.5).provenance
    assert found["parameters"] == {"C": "2.5"}
    assert found["defaults"]["max_iter"] == "100"
    assert found["versions"]["gbm_constrained"] == gc.__version__
    assert set(found["versions"]) >= {"Python", "scikit-learn"}
    assert found["file"] is None
    assert gc.audit(Decides(y), x, y, gc.fpr() <= 0.5).provenance["parameters"] == {}


def test_provenance_names_the_parent_library():
    x, y = np.random.default_rng(0).normal(size=(50, 2)), np.resize([0, 1], 50)
    model = gc.ConstrainedLGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1).fit(x, y)
    found = gc.audit(model, x, y, gc.fpr() <= 0.5).provenance
    assert "lightgbm" in found["versions"]
    assert "xgboost" not in found["versions"]
    assert found["parameters"] == {"n_estimators": "2", "n_jobs": "1", "verbose": "-1"}
    assert "learning_rate" in found["defaults"]
