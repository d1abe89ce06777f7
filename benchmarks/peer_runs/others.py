r"""The peers that are libraries of their own, and M2FGB, our reimplementation from its paper.

Each runs in an environment that has its library, so that all libraries are imported where used.

M2FGB (Pereira, Valdrighi and Raimundo, FAccT 2025) is

.. math:: \min_F \max_{\mu \in \Delta} (1 - \lambda) L(F) + \lambda \sum_g \mu_g L_g(F)

L is the mean cross-entropy of all rows. For equal true positive rates, :math:`L_g` is that of the
positive rows of group g. In each round the dual variables go up by the losses of the groups and
are projected to the simplex, and a tree is grown on the gradient at them. The paper has no bound:
weight and dual step are searched, within the limits below.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, ClassVar

import numpy as np

from .methods import Calibrated, Fitted, Method, Rule, Split, merit, plain

# Names of both fairlearn's and error-parity's thresholds by group.
PARITIES = {
    "selection_rate_gap": "demographic_parity",
    "fpr_gap": "false_positive_rate_parity",
    "tpr_gap": "true_positive_rate_parity",
    "equalized_odds": "equalized_odds",
}


class ErrorParity(Calibrated):
    """error-parity's linear programme of thresholds by group, over the plain booster.

    Thresholds are those of the calibration rows; both rates of equalized odds are to be within the
    bound.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from error_parity import RelaxedThresholdOptimizer

        X, y, groups = self.rows
        model = RelaxedThresholdOptimizer(
            predictor=self.scores, constraint=PARITIES[rule.task], tolerance=asked, seed=self.seed
        )
        model.fit(X, y, group=groups, y_scores=self.scores(X))
        return Fitted(lambda X, groups: model(X, group=groups))


class GroupThresholds(Calibrated):
    """fairlearn's ThresholdOptimizer; of equalized odds it takes no tolerance."""

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from fairlearn.postprocessing import ThresholdOptimizer

        if rule.task == "equalized_odds" and asked > 0:
            raise NotImplementedError("no tolerance for equalized odds")
        X, y, groups = self.rows
        model = ThresholdOptimizer(
            estimator=self.model, constraints=PARITIES[rule.task], prefit=True,
            predict_method="predict_proba", **({"tol": asked} if asked > 0 else {}),
        )  # fmt: skip
        model.fit(X, y, sensitive_features=groups)
        return Fitted(
            lambda X, groups: model.predict(X, sensitive_features=groups, random_state=self.seed)
        )


class Reduction(Method):
    """fairlearn's ExponentiatedGradient with its defaults.

    Its bound is one of each group against all rows. Of two groups, the smaller is further from
    all rows, by the gap times the share of the larger: that is the bound asked for.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from fairlearn import reductions

        split = self.split
        larger = np.bincount(split.groups).max() / split.groups.size
        moment = {
            "selection_rate_gap": reductions.DemographicParity,
            "fpr_gap": reductions.FalsePositiveRateParity,
            "tpr_gap": reductions.TruePositiveRateParity,
            "error_rate_gap": reductions.ErrorRateParity,
            "equalized_odds": reductions.EqualizedOdds,
        }[rule.task](difference_bound=asked * larger)
        model = reductions.ExponentiatedGradient(plain(self.booster), moment)
        model.fit(split.X, split.y, sensitive_features=split.groups)
        return Fitted(lambda X, groups: model.predict(X, random_state=self.seed))


class OxonFair(Calibrated):
    """OxonFair's thresholds by group, over the plain booster: accuracy under the rule.

    A bound on a rate is one of all rows.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from oxonfair import FairPredictor
        from oxonfair import group_metrics as gm

        X, y, groups = self.rows
        rate = {
            "selection_rate": gm.pos_pred_rate,
            "fpr": gm.false_pos_rate,
            "fnr": gm.false_neg_rate,
            "tpr": gm.true_pos_rate,
            "error_rate": gm.accuracy,
        }[rule.rates[0]]
        metric = rate.diff if rule.is_gap else rate.overall
        if rule.task == "equalized_odds":
            metric = gm.equalized_odds_max
        fair = FairPredictor(self.model, {"data": X, "target": y, "groups": groups})
        fair.fit(gm.accuracy, metric, asked, greater_is_better_const=False)
        # It wants labels beside the features, which do not enter the decisions.
        return Fitted(
            lambda X, groups: fair.predict(
                {"data": X, "groups": groups, "target": np.zeros(groups.size)}
            )
        )


class LinearPost(Method):
    """LinearPost's linear programme over P(group, label | features) of the same booster.

    It is solved on the calibration rows, which the booster has not seen. Probabilities are those
    of the booster: made isotonic on these rows, as its authors try, too, they were no better on
    training rows of ACSIncome, and none of a group with few rows. Its noise of a ten-thousandth
    stays, which draws decisions at ties.
    """

    criteria: ClassVar = {
        "selection_rate_gap": "sp", "tpr_gap": "eopp", "equalized_odds": "eo",
        "class_shares_gap": "sp", "class_recalls_gap": "eopp",
    }  # fmt: skip

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        super().__init__(split, booster, seed)
        self.n_groups, self.n_classes = split.groups.max() + 1, split.y.max() + 1
        X, y, groups = split.part(~split.calibration)
        self.model = plain(booster).fit(X, self.target(y, groups))
        X, _, groups = split.part(split.calibration)
        self.given = self.probabilities(X, groups)

    def target(self, y: Any, groups: Any) -> Any:
        """Return the classes that the booster learns: a group with a label."""
        return self.n_classes * groups + y

    def probabilities(self, X: Any, groups: Any) -> Any:
        """Return P(group, label | features), an array of rows, groups and labels."""
        found = np.zeros((X.shape[0], self.n_classes * self.n_groups))
        found[:, self.model.classes_] = self.model.predict_proba(X)
        return found.reshape(-1, self.n_groups, self.n_classes)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from postprocess import PostProcessor

        model = PostProcessor(
            self.n_classes,
            self.n_groups,
            criterion=self.criteria[rule.task],
            alpha=asked,
            seed=self.seed,
        ).fit(p_ay_x=self.given, solver="HIGHS")
        return Fitted(lambda X, groups: model.predict(p_ay_x=self.probabilities(X, groups)))


class LinearPostOfGroups(LinearPost):
    """LinearPost that knows the group: the booster learns the label alone."""

    def target(self, y: Any, groups: Any) -> Any:
        return y

    def probabilities(self, X: Any, groups: Any) -> Any:
        found = np.zeros((X.shape[0], self.n_groups, self.n_classes))
        found[np.arange(X.shape[0]), groups] = self.model.predict_proba(X)
        return found


class MMMFair(Method):
    """mmm-fair's gradient boosting, with a penalty on the squared gap of mean scores.

    The same trees from scikit-learn's histograms; what is asked is the rate of the penalty. A rate
    of 1 makes the penalty's gradients as large as those of the loss, on average.
    """

    def fit(self, rule: Rule, asked: float) -> Fitted:
        from mmm_fair import MMM_Fair_GradientBoostedClassifier

        split, booster = self.split, self.booster
        names = {
            "selection_rate_gap": "DP", "fpr_gap": "FPR", "tpr_gap": "TPR", "equalized_odds": "EO",
        }  # fmt: skip
        model = MMM_Fair_GradientBoostedClassifier(
            constraint=names[rule.task], alpha=asked, saIndex=split.groups[:, None],
            store_iter_metrics=False, max_iter=booster["n_estimators"],
            learning_rate=booster["learning_rate"], max_depth=booster["max_depth"],
            max_leaf_nodes=booster["num_leaves"], early_stopping=False, random_state=0,
        )  # fmt: skip
        model.fit(split.X, split.y)
        return Fitted(lambda X, groups: model.predict(X))


class FairGBM(Method):
    """FairGBM, its multiplier learning rate tuned on validation rows as its authors urge.

    For each bound: one fit for each step without the validation rows, and one with all rows. Of
    the steps that meet the bound on the validation rows the most accurate is taken, else the one
    that is nearest to it.
    """

    # Gaps diverge from about 0.5 on, and bounds on one rate are hardly felt below 0.1.
    steps_of_gaps: tuple[float, ...] = (0.005, 0.02, 0.05, 0.1, 0.3)
    steps_of_levels = (0.05, 0.1, 0.3, 1.0, 3.0)

    def fit(self, rule: Rule, asked: float) -> Fitted:
        split = self.split
        X, y, groups = split.part(split.calibration)
        found = []
        for step in self.steps_of_gaps if rule.is_gap else self.steps_of_levels:
            decisions = self._fitted(rule, asked, step, ~split.calibration).predict(X)
            found.append((merit(rule, asked, y, decisions, groups), step))
        (_, _, at), step = min(found)
        model = self._fitted(rule, asked, step, slice(None))
        return Fitted(lambda X, groups: model.predict(X), at)

    def _fitted(self, rule: Rule, asked: float, step: float, rows: Any) -> Any:
        from fairgbm import FairGBMClassifier

        X, y, groups = self.split.part(rows)
        if rule.is_gap:
            # A gap of true positive rates is one of false negative rates.
            names = {"fpr": "FPR", "tpr": "FNR"}
            options: dict[str, Any] = {
                "constraint_type": ",".join(names[rate] for rate in rule.rates),
                "constraint_fpr_tolerance": asked,
                "constraint_fnr_tolerance": asked,
            }
        else:
            rate = rule.rates[0]
            options = {
                "constraint_type": "none",
                "global_constraint_type": rate.upper(),
                f"global_target_{rate}": asked,
            }
        model = FairGBMClassifier(
            multiplier_learning_rate=step, n_jobs=1, random_state=0, verbose=-1,
            **options, **self.booster,
        )  # fmt: skip
        return model.fit(X, y, constraint_group=groups)


class FairGBMOfManyGroups(FairGBM):
    """FairGBM with smaller steps: from about 0.001 on they diverge, where bounds are small."""

    steps_of_gaps = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


# Weight and step of M2FGB; the plain booster first.
SETTINGS = (
    (0.0, 0.01),
    *product((0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97), (0.01, 0.1)),
)


def project_to_simplex(point: Any) -> Any:
    """Find the nearest point whose coordinates are at least zero and sum to one."""
    descending = np.sort(point)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, point.size + 1)
    return np.maximum(point - excess[descending > excess][-1], 0.0)


class MinMaxObjective:
    """Gradient and Hessian of the Lagrangian, whose dual variables move in each round.

    Parameters
    ----------
    y, groups : ndarray of int
        Labels 0 and 1, and groups from 0 on.
    weight : float
        That of the largest loss of a group, from 0 to 1.
    step : float
        The dual step.
    """

    def __init__(self, y: Any, groups: Any, weight: float, step: float) -> None:
        self._weight, self._step = weight, step
        size = np.bincount(groups[y == 1], minlength=groups.max() + 1)
        # A row of this matrix averages the losses of the positive rows of a group.
        self._of_row = np.where(y == 1, groups, -1)
        self._size = np.maximum(size, 1)
        self.dual = project_to_simplex(np.where(size > 0, 1.0 / size.size, -1.0))

    def __call__(self, y: Any, score: Any) -> tuple[Any, Any]:
        from scipy.special import expit

        loss = np.logaddexp(0.0, np.where(y == 1, -score, score))
        inside = self._of_row >= 0
        sums = np.bincount(self._of_row[inside], loss[inside], self._size.size)
        self.dual = project_to_simplex(self.dual + self._step * sums / self._size)
        of_group = np.where(inside, (self.dual / self._size)[self._of_row], 0.0)
        of_rows = 1.0 - self._weight + self._weight * y.size * of_group
        p = expit(score)
        return of_rows * (p - y), of_rows * np.maximum(p * (1.0 - p), 1e-16)


class M2FGB(Method):
    """For each bound: the best setting on the validation rows, trained again on all rows.

    Of the settings that meet the bound there the one of fewest errors is taken, else the one that
    is nearest to it. They are trained without the validation rows once for all bounds.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        super().__init__(split, booster, seed)
        X, _, _ = split.part(split.calibration)
        self.found = [decide_by(split, booster, s, ~split.calibration)(X) for s in SETTINGS]

    def fit(self, rule: Rule, asked: float) -> Fitted:
        _, y, groups = self.split.part(self.split.calibration)
        (_, _, at), setting = min(
            (merit(rule, asked, y, decisions, groups), setting)
            for setting, decisions in zip(SETTINGS, self.found, strict=True)
        )
        decide = decide_by(self.split, self.booster, setting)
        return Fitted(lambda X, groups: decide(X), at)


class EachSetting(Method):
    """M2FGB in each of its settings, whose position is what is asked; no rows are kept."""

    def fit(self, rule: Rule, asked: float) -> Fitted:
        decide = decide_by(self.split, self.booster, SETTINGS[int(asked)])
        return Fitted(lambda X, groups: decide(X))


def decide_by(
    split: Split, booster: dict[str, Any], setting: tuple[float, float], rows: Any = slice(None)
) -> Callable[[Any], Any]:
    """Train on some of the rows, and return the decisions of that model."""
    from lightgbm import LGBMRegressor

    X, y, groups = split.part(rows)
    start = float(np.log(np.mean(y) / np.mean(1 - y)))  # LightGBM's own start
    model = LGBMRegressor(
        objective=MinMaxObjective(y, groups, *setting), n_jobs=1, random_state=0, verbose=-1,
        **booster,
    )  # fmt: skip
    model.fit(X, y, init_score=np.full(y.size, start))
    return lambda X: (model.predict(X) + start > 0.0).astype(int)
