"""A fit whose objective is a metric of the confusion matrix.

Where decisions need the probability of label and group, each part has two boosters: one of the
labels and one of the joint cells.

Boosters may be grown in stages. In each of them the library goes on with other weights of the
rows. No formula says how weights that move change the scores, so that factors and scale, by which
scores become probabilities of the rows as they are, are those of largest likelihood on the
held-out rows.

- ``"plug_in"``: boosters are grown once, and rules of decision are found on their probabilities.
- ``"refit"``: boosters are grown anew, with weights of classes (or of classes and groups) that are
  the costs of the plug-in optimum, and rules are found on their probabilities.
- ``"in_training"``: the boosters of the folds are grown once and in step. After each stage of
  training the weights of classes (or of classes and groups) move towards the costs of the optimum
  on the held-out probabilities so far. The model of all rows is grown with the same weights.
- ``"auto"``: the plug-in oracle, unless another is better on held-out rows by more than one
  standard error of the paired difference. The other is the one in training, or the refit where a
  model cannot be grown in stages. All its boosters are grown, for one fold has too few rows of
  rare classes to tell.

Where a linear objective counts amounts, rows of the boosters count for theirs with any oracle.

The boosters are the library's own. What is found is a decision rule on their probabilities
(Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints"):

1. Boosters of the folds score the rows that they have not seen.
2. A reduction finds the mixture of rules that optimises the metric there, under the constraints.
3. The library trains on all rows, and the rules decide by its scores.

Constraints and metrics that look at groups need the probability of each pair of label and group.
That of the label is from the boosters of the label. That of the group, given the label, is from
boosters of the pairs, so that prediction needs no groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold, folds_of
from gbm_constrained.decision.choose import match_positive_rate, rows_to_match
from gbm_constrained.decision.rules import (
    OTHER_DATA,
    CellScores,
    CostRule,
    calibrate_scores,
    mixture_shares,
    probabilities_of,
)
from gbm_constrained.evaluation.verdicts import TRAINING_ROWS
from gbm_constrained.fit.callbacks import SearchNotifier, SearchWatch
from gbm_constrained.fit.checkpoint import CheckpointFile
from gbm_constrained.fit.metric_problem import (
    HeldOutProblem,
    MetricProblem,
    check_folds,
    check_objective,
    costs_of_weights,
    spread_margin,
)
from gbm_constrained.fit.metric_search import (
    BoosterSet,
    ConstrainedBoosters,
    Decisions,
    MetricSearch,
    optimise_weights,
    search_weights,
)
from gbm_constrained.fit.native_models import (
    FitPart,
    Merger,
    NativeGrowth,
    NativeModel,
    PartRows,
    multiply_weight,
)
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import HOLDOUT_FRACTION, LibrarySettings, has_many_rows
from gbm_constrained.metrics.base import Metric
from gbm_constrained.metrics.callables import check_convexity
from gbm_constrained.problem.compiler import JointCells, compile_constraints
from gbm_constrained.reductions.mixtures import FEASIBLE, RuleMixture
from gbm_constrained.reductions.plug_in import mean_costs, move_weights, weigh_cells
from gbm_constrained.solvers.base import OracleName


class LinkedScores(NamedTuple):
    """Scores by the boosters of all folds, of one kind, and how they become probabilities.

    Parameters
    ----------
    margin : ndarray
        Scores of the held-out rows, in order.
    factors : ndarray
        Factor of each class or joint cell by which scores become probabilities.
    scale : float
        Factor by which scores become log-odds.
    models : list of NativeModel
        The boosters, where they are to be merged; empty otherwise.
    stages : tuple of int, default=()
        Rounds of each stage; empty where boosters are grown in one go.
    """

    margin: Array
    factors: Float
    scale: float
    models: list[NativeModel]
    stages: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class HeldOutBoosters:
    """Boosters of the folds, which can be grown anew at other weights of the joint cells.

    Weights have the shape (n_joint_cells,), or (n_stages, n_joint_cells) where they move. None
    stands for ones. Where a linear objective counts amounts, rows have those as weights as well.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints on all rows.
    growth : NativeGrowth
        Trains the library's own models on some of the rows.
    folds : sequence of Fold
        Rows that each booster is trained on, and that it scores. These are all rows, both times,
        where the model that is trained on them scores them.
    source : str
        Name of the held-out rows in reports.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    """

    problem: MetricProblem
    growth: NativeGrowth
    folds: Sequence[Fold]
    source: str
    are_log_odds: bool = True
    _grown: dict[tuple[bool, bytes], LinkedScores] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def is_joint(self) -> bool:
        """Whether there are boosters of the joint cells beside those of the labels."""
        return not self.problem.joint.are_labels

    @property
    def rows(self) -> Codes:
        """Positions of the held-out rows, in order."""
        return np.sort(np.concatenate([fold.held for fold in self.folds]))

    @property
    def parts(self) -> list[Codes]:
        """Positions in `rows` of those of each booster; empty for a single one."""
        rows = self.rows
        folds = self.folds if len(self.folds) > 1 else ()
        return [np.searchsorted(rows, fold.held) for fold in folds]

    @property
    def work(self) -> float:
        """Work of a round of the boosters of all folds."""
        members = itertools.product(self._kinds, self.folds)
        return sum(self._part(fold, None, is_joint=kind).work for kind, fold in members)

    @property
    def _kinds(self) -> tuple[bool, ...]:
        """Whether boosters learn the joint cells, for each kind of boosters."""
        return (False, True) if self.is_joint else (False,)

    def plan(self) -> None:
        """Say how much work all boosters are, with the library's own on all rows."""
        own = [] if self._merges else self._kinds
        of_all = sum(self._part(None, None, is_joint=kind).work for kind in own)
        self.growth.planned = self.work + of_all

    def stages_of_all(self, weights: Float | None, *, is_joint: bool) -> list[PartRows]:
        """List the stages in which the model of all rows is trained."""
        if weights is None or weights.ndim == 1:
            return [self._part(None, weights, is_joint=is_joint)]
        stages = self._grown[is_joint, weights.tobytes()].stages
        before = np.cumsum([0, *stages[:-1]]).tolist()
        return [
            replace(self._part(None, one, is_joint=is_joint), n_before=n, rounds=rounds)
            for one, n, rounds in zip(weights, before, stages, strict=True)
        ]

    def grow(self, weights: Float | None = None) -> Float:
        """Grow the boosters of all folds.

        Parameters
        ----------
        weights : ndarray, default=None
            Weights of the joint cells in the boosters' objective.

        Returns
        -------
        ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells, as the rows are and not as weighted.
        """
        return self._probabilities([self.boosters(weights, is_joint=k) for k in self._kinds])

    def link(self, weights: Float | None = None) -> tuple[Float, float, CellScores | None]:
        """Say how scores that decide become probabilities: factors, scale and combination.

        Without joint cells there is nothing to combine. Combined scores are log-probabilities.
        """
        grown = [self.boosters(weights, is_joint=k) for k in self._kinds]
        if not self.is_joint:
            return grown[0].factors, grown[0].scale, None
        return np.ones(len(self.problem.joint)), 1.0, self._combination(grown)

    def row_factor(self, weights: Float | None, *, is_joint: bool = False) -> Float | None:
        """Factor of each row's weight in the boosters of the labels, or of the joint cells."""
        joint, amounts = self.problem.joint, self.problem.relative_amounts
        if weights is None:
            return amounts
        of_cells = weights if is_joint else self._of_labels(weights)[joint.labels]
        return np.asarray(multiply_weight(of_cells[joint.codes], amounts))

    def grow_in_step(
        self, n_stages: int, move: Callable[[Float, Float], Float]
    ) -> tuple[Float, Float]:
        """Grow the boosters of all folds in step, with weights that move after each stage.

        Parameters
        ----------
        n_stages : int
            Number of stages; the first one has weights of one.
        move : callable
            Given the weights of the joint cells in a stage, and the held-out probabilities after
            it, finds the weights of the next stage.

        Returns
        -------
        weights : ndarray of shape (n_stages, n_joint_cells)
            Weights of the joint cells in each stage. There are no more stages than rounds, and
            fewer where a time limit leaves no rounds for them.
        probabilities : ndarray of shape (n_held_out, n_joint_cells)
            Probabilities of the joint cells after the last stage, as of :meth:`grow`.
        """
        growth, path, done = self.growth, [np.ones(len(self.problem.joint))], 0
        stages: list[int] = []
        models: dict[bool, Sequence[NativeModel | None]]
        models = {kind: [None] * len(self.folds) for kind in self._kinds}
        while True:
            rounds = -(-(growth.n_rounds - done) // (n_stages - len(stages)))
            margins = {}
            for kind in self._kinds:
                parts = [
                    replace(
                        self._part(fold, path[-1], is_joint=kind),
                        start=model,
                        n_before=done,
                        rounds=rounds,
                    )
                    for fold, model in zip(self.folds, models[kind], strict=True)
                ]
                is_kept = self._merges or done + rounds < growth.n_rounds
                margins[kind], models[kind] = self._score(parts, is_kept=is_kept)
            growth.settle(rounds)
            stages.append(min(rounds, growth.n_rounds - done))
            done += stages[-1]
            weights = np.array(path)
            grown = [
                self._grown_with(margin, models[kind], weights, tuple(stages), is_joint=kind)
                for kind, margin in margins.items()
            ]
            probabilities = self._probabilities(grown)
            if done == growth.n_rounds:
                break
            path.append(move(path[-1], probabilities))
        for kind, of_kind in zip(self._kinds, grown, strict=True):
            self._grown[kind, weights.tobytes()] = of_kind
        return weights, probabilities

    def boosters(self, weights: Float | None = None, *, is_joint: bool) -> LinkedScores:
        """Grow the boosters of all folds, once for given weights.

        Parameters
        ----------
        weights : ndarray, default=None
            Weights of the joint cells in the boosters' objective. Those that move are of a path
            along which :meth:`grow_in_step` has grown the boosters.
        is_joint : bool
            Whether the boosters learn labels and groups together, or labels alone.
        """
        key = is_joint, b"" if weights is None else weights.tobytes()
        if key not in self._grown:
            parts = [self._part(fold, weights, is_joint=is_joint) for fold in self.folds]
            margin, models = self._score(parts, is_kept=self._merges)
            self._grown[key] = self._grown_with(margin, models, weights, is_joint=is_joint)
        return self._grown[key]

    def _grown_with(
        self,
        margin: Array,
        models: Sequence[NativeModel | None],
        weights: Float | None,
        stages: tuple[int, ...] = (),
        *,
        is_joint: bool,
    ) -> LinkedScores:
        """Link the scores of boosters to probabilities."""
        link = self._link(margin, weights, is_joint=is_joint)
        merged = [model for model in models if model is not None] if self._merges else []
        return LinkedScores(margin, *link, merged, stages)

    def _probabilities(self, grown: Sequence[LinkedScores]) -> Float:
        """Compute the probabilities of the joint cells by the boosters of each kind."""
        if len(grown) == 1:
            return probabilities_of(grown[0].margin, grown[0].factors, grown[0].scale)
        margin = self._combination(grown).combine(*(one.margin for one in grown))
        return probabilities_of(margin, np.ones(len(self.problem.joint)))

    def _combination(self, grown: Sequence[LinkedScores]) -> CellScores:
        """Say how the boosters of labels and of joint cells are combined."""
        labels, cells = grown
        return CellScores(
            np.where(self.problem.in_objective, self.problem.joint.labels, OTHER_DATA),
            labels.factors, labels.scale, cells.factors, cells.scale,
        )  # fmt: skip

    @property
    def _merges(self) -> bool:
        """Whether boosters of the folds are merged into the model that decides."""
        return self.problem.options.ensemble is not None

    def _score(
        self, parts: Sequence[PartRows], *, is_kept: bool
    ) -> tuple[Array, list[NativeModel | None]]:
        """Score the held-out rows in order, each by a model that has not seen it.

        Raises
        ------
        ValueError
            If a booster that is to be merged has not seen all joint cells.
        """
        margins, models = [], []
        for fold, part in zip(self.folds, parts, strict=True):
            if part.is_joint:
                known = np.unique(self.problem.joint.codes[part.rows])
                if self._merges and known.size < len(self.problem.joint):
                    raise ValueError(
                        f"Reduction(ensemble={self.problem.options.ensemble!r}) merges boosters "
                        f"that know the same groups of each class, and one of the folds holds all "
                        f"rows of a group of a class: use Reduction(ensemble=None), or a "
                        f"min_group_size that merges small groups."
                    )
            margin, model = self.growth.score(part, fold.held, is_kept=is_kept)
            if part.is_joint:
                margin = spread_margin(margin, known, len(self.problem.joint))
            margins.append(margin)
            models.append(model)
        order = np.argsort(np.concatenate([fold.held for fold in self.folds]))
        return np.concatenate(margins)[order], models

    def _part(self, fold: Fold | None, weights: Float | None, *, is_joint: bool) -> PartRows:
        """Take the rows that a model is trained on, those of a fold or all.

        The objective of the labels leaves out the rows of further data sets.
        """
        data, joint = self.problem.data, self.problem.joint
        rows = np.arange(len(data.rows)) if fold is None else fold.training
        if not is_joint:
            rows = rows[rows < data.y.size]
        target = None
        if is_joint:  # A small cell may have no rows outside of one fold.
            target = np.zeros(len(joint.codes), dtype=np.intp)
            target[rows] = np.unique(joint.codes[rows], return_inverse=True)[1]
        factor = self.row_factor(weights, is_joint=is_joint)
        return PartRows(data.combined, rows, target, factor)

    def _link(
        self, margin: Array, weights: Float | None, *, is_joint: bool
    ) -> tuple[Float, float]:
        """Find the factors and the scale by which scores become probabilities."""
        problem, rows = self.problem, self.rows
        codes, n = problem.joint.codes, len(problem.joint)
        own = np.ones(n)
        if not is_joint:
            codes, own = problem.joint.labels[codes], problem.factors
            is_own = rows < problem.data.y.size
            margin, rows, n = margin[is_own], rows[is_own], own.size
        if (weights is not None and weights.ndim > 1) or not self.are_log_odds:
            weight = multiply_weight(problem.data.rows.weight, problem.relative_amounts)
            weight = None if weight is None else weight[rows]
            return calibrate_scores(margin, codes[rows], n, weight)
        if weights is None:
            return own, 1.0
        return np.asarray(own * (weights if is_joint else self._of_labels(weights))), 1.0

    def _of_labels(self, weights: Float) -> Float:
        """Average weights of joint cells over the training rows of each label."""
        if not self.is_joint:
            return weights
        problem, joint = self.problem, self.problem.joint
        mass = np.bincount(joint.codes, problem.data.rows.weight, len(joint))
        mass = mass * problem.in_objective
        k = problem.factors.size
        total, of_label = (np.bincount(joint.labels, m, k) for m in (mass * weights, mass))
        return np.divide(total, of_label, out=np.ones(k), where=of_label > 0.0)


MAX_ROWS_OF_AUTO = 20_000
"""Rows beyond which "auto" tries no other oracle: boosters are then well calibrated, and grown at
a high price. Of rows that count for amounts, few may hold most of the value."""


def choose_oracle(
    oracle: OracleName, metric: Metric | None, library: LibrarySettings
) -> OracleName:
    """Check that boosters can be grown at weights, which "auto" does not ask for otherwise.

    Parameters
    ----------
    oracle : {"auto", "plug_in", "refit", "in_training"}
        The constructor's parameter.
    metric : Metric or None
        The objective; without one the library's own objective stands for the error rate.
    library : LibrarySettings
        What the library says of its fit.

    Raises
    ------
    ValueError
        If the oracle needs weights, or stages, that the fit has not.
    """
    if metric is None or (oracle == "auto" and not library.takes_weights):
        return "plug_in"
    if oracle in ("refit", "in_training") and not library.takes_weights:
        raise ValueError(
            f"Reduction(oracle={oracle!r}) grows boosters with weights of rows, and the function "
            f"that was given as objective takes none: give it a parameter for sample weights, or "
            f"use Reduction(oracle='plug_in')."
        )
    if oracle == "in_training" and library.without_stages is not None:
        raise ValueError(
            f"Reduction(oracle='in_training') grows a model in stages, in which its rows have "
            f"other weights, and {library.without_stages} does not allow it: use "
            f"Reduction(oracle='refit') or 'plug_in'."
        )
    return oracle


@dataclass(frozen=True, eq=False)
class OracleResult:
    """Decisions that were found with one oracle.

    Parameters
    ----------
    oracle : {"plug_in", "refit", "in_training"}
        Name of the oracle.
    search : MetricSearch
        The search for rules on the probabilities of its boosters.
    weights : ndarray of shape (n_joint_cells,) or (n_stages, n_joint_cells), or None
        Weight of each joint cell in the objective of the boosters; None stands for ones.
    exact, solution : RuleMixture
        The optimum of the distribution that the probabilities describe, and that by counts.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The best of them.
    """

    oracle: OracleName
    search: MetricSearch
    weights: Float | None
    exact: RuleMixture
    solution: RuleMixture
    candidates: list[Decisions]
    chosen: Decisions


def search_decisions(
    oracle: OracleName, search: MetricSearch, weights: Float | None = None
) -> OracleResult:
    """Find rules on the probabilities of boosters, and choose between them and simple rules."""
    exact, rules = search.solve_by_probabilities()
    # What a user's function was said to be is tested on the points that were found.
    at = search.held.problem.loss.at
    check_convexity(search.held.problem.metric, np.asarray(exact.pool)[:, at])
    simple = search.baselines()
    # Each search knows the rules without one, so that what it finds is no worse on its rows.
    rules += [costs for decisions in simple for costs in decisions.costs]
    simple.append(search.by_probabilities(exact))
    # Constraints may be met by weights of the classes, which are one rule.
    is_single = search.deterministic is not False and search.solver == "auto"
    weighs_classes = is_single and search.has_baselines and search.held.problem.joint.are_labels
    if weighs_classes and search.held.problem.constraints and search.binds(rules):
        known = [search.as_single(one, is_forced=True) for one in search.assess(simple)[0]]
        candidates, steps = optimise_weights(search, known)
        candidates = [replace(candidate, oracle=oracle) for candidate in candidates]
        chosen = candidates[search.choose(candidates)]
        least = min(candidates, key=lambda one: one.violation)
        if least.violation > FEASIBLE:
            solution = replace(search.solution_of(least), status="infeasible")
        else:
            best = next(one for one in candidates if one.name == "optimised")
            whole = search.of_rules("optimised", best.costs, best.probability)
            solution = search.solution_of(search.assess([whole])[0][0])
        solution = replace(solution, history=tuple(steps))
        return OracleResult(oracle, search, weights, exact, solution, candidates, chosen)
    solution = search.solve(rules)
    candidates, _ = search.assess([*simple, search.optimum("optimised", solution, rules)])
    if search.is_bound(solution):
        room = solution.violation + candidates[-1].errors
        relaxed = search.solve(rules, room=room)
        candidates += search.assess([search.optimum("relaxed", relaxed, rules, room)])[0]
    candidates = [replace(candidate, oracle=oracle) for candidate in candidates]
    if search.deterministic:
        candidates = [search.as_single(one, is_forced=True) for one in candidates]
    chosen = candidates[search.choose(candidates)]
    if search.deterministic is None:
        chosen = search.as_single(chosen, is_forced=False)
    return OracleResult(oracle, search, weights, exact, solution, candidates, chosen)


def search_oracles(
    oracle: OracleName,
    search: MetricSearch,
    boosters: HeldOutBoosters,
    *,
    has_stages: bool,
    has_time: Callable[[], bool] = lambda: True,
) -> list[OracleResult]:
    """Find decisions with one oracle, or with the best of several.

    Parameters
    ----------
    oracle : {"auto", "plug_in", "refit", "in_training"}
        Name of the oracle.
    search : MetricSearch
        A search on the held-out rows, whose probabilities are replaced by those of boosters.
    boosters : HeldOutBoosters
        Grows boosters at given weights.
    has_stages : bool
        Whether boosters can be grown in stages.
    has_time : callable, default=True
        Whether there is time for boosters of all folds at other weights.

    Returns
    -------
    list of OracleResult
        What was tried, the one to return first.
    """

    def search_on(probabilities: Float, **changes: Any) -> MetricSearch:
        changes["oracle"] = replace(search.oracle, probabilities=probabilities)
        return replace(search, **changes)

    def grow_in_training() -> OracleResult:
        """Grow boosters whose weights follow the costs of the optimum."""

        def move(weights: Float, probabilities: Float) -> Float:
            # Nobody watches: what would end this search would end the one for decisions. Weights
            # need costs to a few digits, which so many calls give. The weights of the last stage
            # are 15/16 costs.
            of_stage = search_on(probabilities, max_calls=20, watch=None)
            found, _ = of_stage.solve_by_probabilities()
            return move_weights(weights, mean_costs(found), search.oracle.mass, 0.75)

        # More stages find no better decisions, and each takes time to begin.
        weights, probabilities = boosters.grow_in_step(3, move)
        return search_decisions("in_training", search_on(probabilities), weights)

    def refit(plug_in: OracleResult) -> OracleResult:
        """Grow boosters at the costs of the plug-in optimum."""
        weights = weigh_cells(mean_costs(plug_in.exact), search.oracle.mass)
        return search_decisions("refit", search_on(boosters.grow(weights)), weights)

    if oracle == "in_training":
        return [grow_in_training()]
    plug_in = search_decisions("plug_in", search_on(boosters.grow()))
    problem = search.held.problem
    has_many = len(problem.data.rows) > MAX_ROWS_OF_AUTO and problem.relative_amounts is None
    if oracle == "plug_in" or (oracle == "auto" and has_many) or not has_time():
        return [plug_in]
    if oracle == "refit":
        return [refit(plug_in), plug_in]
    other = grow_in_training() if has_stages else refit(plug_in)
    # The other must be better by more than one standard error.
    (base, better), replicates = plug_in.search.assess([plug_in.chosen, other.chosen])
    gain = -problem.loss.sign * (replicates[1] - replicates[0])
    is_feasible = better.violation <= max(base.violation, FEASIBLE)
    is_better = is_feasible and gain.mean() > gain.std()
    return [other, plug_in] if is_better else [plug_in, other]


@dataclass(frozen=True, eq=False)
class MetricResult:
    """The decision rules of a metric, and how they were found.

    Parameters
    ----------
    held : HeldOutProblem
        The metric and the constraints on the held-out rows.
    source : str
        Name of these rows in reports.
    candidates : list of Decisions
        Rules without a search, and the optimised ones.
    chosen : Decisions
        The rules that are returned.
    mixed_value : float
        The metric of the mixture that was found, before one rule took its place.
    solution : RuleMixture
        What the reduction found.
    bound : float
        Best value of the metric for the distribution that the probabilities describe.
    cell_model : bytes or None
        Booster of the joint cells; None where the label's own booster decides alone.
    label_model : NativeModel or None
        Booster of the labels that is merged, or grown in stages; None where the library trains on
        all rows by itself.
    factors : ndarray of shape (n_joint_cells,)
        Factor of each joint cell in the objective of the booster that decides; ones where two
        boosters do.
    scale : float, default=1
        Factor by which scores become log-odds.
    exact : RuleMixture, default=None
        What the reduction found for the distribution that the probabilities describe.
    row_factor : ndarray of shape (n_samples,), default=None
        Factor of the weight of each training row in the library's model of the labels; ones by
        default.
    cell_scores : CellScores, default=None
        How scores of the labels and of the joint cells are combined, where there are both.
    decided : ndarray of shape (n_rows,), intp, default=None
        Decisions about the held-out rows of the one rule that is returned; None of several.
    search : MetricSearch, default=None
        The search on the scores that decide.
    least : ndarray of shape (n_rows, n_classes), default=None
        Probability of each decision about the held-out rows that violates the constraints least,
        where no decisions were found that meet them.
    booster_set : BoosterSet, default=None
        Fold boosters that the library's model is grown as, where they are those of a fit without
        a metric.
    """

    held: HeldOutProblem
    source: str
    candidates: list[Decisions]
    chosen: Decisions
    mixed_value: float
    solution: RuleMixture
    bound: float
    cell_model: bytes | None
    label_model: NativeModel | None
    factors: Float
    scale: float = 1.0
    exact: RuleMixture | None = None
    row_factor: Float | None = None
    cell_scores: CellScores | None = None
    decided: Codes | None = None
    search: MetricSearch | None = None
    least: Float | None = None
    booster_set: BoosterSet | None = None

    @property
    def rules(self) -> tuple[CostRule, ...]:
        """The rules that are returned."""
        return tuple(
            CostRule(costs, self.factors, scale=self.scale) for costs in self.chosen.costs
        )

    def shares(self, margin: Array) -> Float:
        """Probability of each decision, given scores of the booster that decides."""
        decisions = [rule.decide(lambda _: margin) for rule in self.rules]
        return mixture_shares(decisions, self.chosen.probability, self.chosen.costs.shape[2])

    def with_chosen(self, chosen: Decisions) -> MetricResult:
        """Return other decisions by the same scores."""
        decided = None
        if len(chosen.costs) == 1 and self.search is not None:
            decided = self.search.oracle.decide(chosen.costs[0])
        return replace(self, chosen=chosen, decided=decided)

    def transfer(self, boosters: ConstrainedBoosters, margin: Array) -> MetricResult:
        """Let the model of all rows decide as many rows as the fold boosters do, by each rule.

        Parameters
        ----------
        boosters : ConstrainedBoosters
            The boosters of the folds, and the model.
        margin : ndarray
            Scores of the training rows by the model.
        """
        assert self.booster_set is not None
        of_set, log_factors = self.booster_set, np.log(self.factors)
        problem, of_folds = boosters.fit.problem, of_set.grown[0]
        matched = rows_to_match(problem.compiled, problem.cells)

        def moved(decisions: Decisions) -> Decisions:
            if decisions.oracle != of_set.oracle or self.factors.size > 2:
                return decisions
            shift = CostRule(decisions.costs[0], self.factors, scale=self.scale).as_shift()
            if shift is None:
                return decisions
            if matched is not None and not of_folds.compared and shift.any():
                scores = of_folds.scores(of_set.rounds)
                shift = np.asarray(
                    match_positive_rate(scores, shift, margin, matched, problem.cells)
                )
            weights = np.exp(self.scale * np.append(0.0, shift) + log_factors)
            return replace(decisions, costs=costs_of_weights(weights)[None])

        candidates = [moved(one) for one in self.candidates]
        return replace(self, candidates=candidates, chosen=moved(self.chosen))


class MetricFit:
    """A fit whose objective is a metric of the confusion matrix.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    metric : Metric or None
        The objective; by default the error rate, which the library's own objective stands for.
    arguments : FitArguments
        The rows that the user gave.
    library : LibrarySettings
        What the library says of its fit.
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.
    notifier : SearchNotifier, default=None
        Callbacks and time limit.

    Attributes
    ----------
    checkpoint : CheckpointFile or None
        File that finished boosters are saved to, once there is one.
    """

    checkpoint: CheckpointFile | None = None

    def __init__(
        self,
        options: SolverOptions,
        metric: Metric | None,
        arguments: FitArguments,
        library: LibrarySettings,
        *,
        are_log_odds: bool = True,
        notifier: SearchNotifier | None = None,
    ) -> None:
        self.notifier = SearchNotifier([], library.n_rounds, 1) if notifier is None else notifier
        self.problem = MetricProblem.of(options, metric, arguments, library)
        self.options = self.problem.options
        check_objective(self.problem)
        self.are_log_odds = are_log_odds
        self.has_own_objective = metric is None
        self.oracle = choose_oracle(self.options.oracle, metric, library)
        self.library = library

    @property
    def may_have_multipliers(self) -> bool:
        """Whether the boosters are those of a fit without a metric, under its multipliers.

        Under comparisons of three groups and more there may be too few rows of each joint cell for
        its probability. Metrics that look at groups, amounts or further data sets, and mixtures of
        decisions, need that probability in any case. Boosters that may end before their rounds
        take no multipliers.
        """
        problem, options = self.problem, self.options
        is_asked = options.oracle in ("plug_in", "auto") and options.solver == "auto"
        is_divided = options.ensemble is None and options.measure_on != "train"
        is_one_rule = options.deterministic is not False
        if not (problem.compiled.mixing is not None and is_asked and is_divided and is_one_rule):
            return False
        if self.has_own_objective or self.library.without_stages is not None:
            return False
        has_others = len(problem.data.rows) > problem.data.y.size
        if has_others or problem.convex_bounds or problem.joint.are_labels:
            return False
        # The metric must look at labels and decisions alone, and count rows.
        rates = problem.metric.constraints
        if any(one.amounts or one.data_sets or one.n_rows_held for one in rates):
            return False
        cells, _ = compile_constraints(rates, problem.data.rows, warning=None)
        return JointCells.of(cells).are_labels

    def run(
        self,
        fit_part: FitPart,
        merger: Merger | None = None,
        constrained: ConstrainedBoosters | None = None,
    ) -> MetricResult:
        """Find the decision rules.

        Parameters
        ----------
        fit_part : callable
            Trains the library's own model on some of the rows.
        merger : Merger, default=None
            Merges the boosters of the folds, which ``ensemble="folds"`` returns.
        constrained : ConstrainedBoosters, default=None
            Boosters of a fit without a metric, where these are taken.
        """
        if constrained is not None:
            return self._search_sets(constrained)
        problem, options = self.problem, self.options
        growth = NativeGrowth(fit_part, merger, self.notifier, self.checkpoint)
        folds, source = self._folds()
        boosters = HeldOutBoosters(problem, growth, folds, source, are_log_odds=self.are_log_odds)
        boosters.plan()
        held = self._hold_out(boosters.rows, boosters.source)
        if self.has_own_objective:
            own = self._keep_decisions(boosters, held, merger)
            if own is not None:
                return own
        is_single = options.deterministic
        if self.has_own_objective and is_single is None:
            is_single = True  # Constraints alone have never made decisions random.
        search = MetricSearch(
            held, held.oracle(np.empty((0, len(problem.joint)))), options.solver, boosters.parts,
            has_baselines=not self.has_own_objective, deterministic=is_single,
            watch=self._watch(held, boosters.source, lambda: growth.reserved),
            max_calls=options.reduction.max_calls, settings=options.reduction.settings,
        )  # fmt: skip
        found = search_oracles(
            self.oracle, search, boosters, has_stages=self.library.without_stages is None,
            has_time=lambda: not search.is_over and growth.has_time_for(boosters.work),
        )  # fmt: skip
        best, weights = found[0], found[0].weights
        cell_model = None  # A checkpoint keeps it, which is therefore made first.
        if boosters.is_joint and options.ensemble is None:
            cell_model = growth.write(boosters.stages_of_all(weights, is_joint=True))
        elif boosters.is_joint:
            assert merger is not None
            models = boosters.boosters(weights, is_joint=True).models
            cell_model = merger.merge(models).to_bytes()
        label_model = self._label_model(boosters, weights, merger)
        row_factor = boosters.row_factor(weights) if label_model is None else None
        if row_factor is not None:
            row_factor = row_factor[: problem.data.y.size]
        factors, scale, cell_scores = boosters.link(weights)
        chosen = best.chosen
        mixed_value = chosen.value if np.isnan(chosen.mixed_value) else chosen.mixed_value
        least = None
        if all(one.status == "infeasible" for one in (best.solution, best.exact)):
            rules, probability = np.array(best.solution.rules), best.solution.probability
            least = best.search.of_rules("least", rules, probability).shares
        result = MetricResult(
            held, boosters.source, [*best.candidates, *(one.chosen for one in found[1:])],
            chosen, mixed_value, best.solution,
            problem.loss.to_metric(best.exact.bound), cell_model, label_model,
            factors, scale, best.exact, row_factor, cell_scores,
            search=best.search, least=least,
        )  # fmt: skip
        return result.with_chosen(chosen)

    def _search_sets(self, constrained: ConstrainedBoosters) -> MetricResult:
        """Find decisions on the scores of each set of boosters of a fit without a metric."""
        folds, source = self._folds()
        sets = constrained.grow(folds, source)
        held = self._hold_out(np.sort(np.concatenate([fold.held for fold in folds])), source)
        of_folds = folds if len(folds) > 1 else ()
        parts = [np.searchsorted(held.rows, fold.held) for fold in of_folds]
        watch = self._watch(held, source, lambda: 0.0)
        found = [search_weights(one, held, parts, watch) for one in sets]
        candidates = [candidate for _, of_set, _, _ in found for candidate in of_set]
        chosen = candidates[found[0][0].choose(candidates)]
        at = [one.oracle for one in sets].index(chosen.oracle)
        search, _, steps, (factors, scale) = found[at]
        result = MetricResult(
            held, source, candidates, chosen, chosen.value,
            replace(search.solution_of(chosen), history=tuple(steps)), np.nan, None, None,
            factors, scale, search=search, booster_set=sets[at],
        )  # fmt: skip
        return result.with_chosen(chosen)

    def _hold_out(self, rows: Codes, source: str) -> HeldOutProblem:
        """Bind the metric and the constraints to the rows that boosters hold out."""
        given = self.problem.data.given_folds
        held = self.problem.on(rows, None if given is None else given.recency)
        held.check(source)
        return held

    def keep_promise(self, result: MetricResult, margin: Array) -> MetricResult:
        """Choose again by what the model of all rows does, if that is worse than was promised.

        Trees are at their best on their training rows. Decisions whose metric is there outside of
        the interval out of fold, on the bad side, are others than those of the boosters of the
        folds: few distinct rows, for instance, have their scores on another side of a threshold.
        So are decisions that violate a constraint there by more than out of fold, beyond two
        standard errors. What they reach on the training rows then takes the place of the promise,
        also in reports.

        Parameters
        ----------
        result : MetricResult
            The decision rules.
        margin : ndarray
            Scores of the training rows by the model that decides.
        """
        problem, chosen = self.problem, result.chosen
        if result.search is None:
            return result
        everyone, sign = problem.on(np.arange(len(problem.data.rows))), problem.loss.sign

        def reached(decisions: Decisions) -> Decisions:
            shares = result.with_chosen(decisions).shares(margin)
            counts = problem.joint.count_shares(shares, problem.data.rows.weight)
            u = everyone.functionals(counts[None])[0]
            value, violations = problem.metric.function(u[problem.loss.at]), everyone.violations(u)
            worst = decisions.low if sign < 0.0 else decisions.high
            if sign * (value - worst) > 0.0:
                decisions = replace(decisions, value=value)
            promised = decisions.violations
            if promised.shape == violations.shape:
                is_broken = violations > np.maximum(promised, 0.0) + 2.0 * decisions.errors
                if (is_broken & (violations > FEASIBLE)).any():
                    violations = np.where(is_broken, violations, promised)
                    decisions = replace(decisions, violations=violations)
            return decisions

        if reached(chosen) is chosen:
            return result
        same = [one for one in result.candidates if one.oracle == chosen.oracle]
        same = [reached(chosen if one.name == chosen.name else one) for one in same]
        best = same[result.search.choose(same)]
        low, high = np.fmin(best.low, best.value), np.fmax(best.high, best.value)
        return result.with_chosen(replace(best, low=float(low), high=float(high)))

    def _watch(
        self, held: HeldOutProblem, source: str, reserved: Callable[[], float]
    ) -> SearchWatch | None:
        """Watch the search, if somebody is to be notified or time is limited."""
        notifier, problem = self.notifier, self.problem
        if not notifier.callbacks and notifier.limit.seconds is None:
            return None
        cells, compiled = compile_constraints(self.options.constraints, problem.data.rows)
        own = compiled.on(cells.take(held.rows, held.factor))
        return SearchWatch(notifier, source, own, problem.loss.to_metric, reserved)

    def _keep_decisions(
        self, boosters: HeldOutBoosters, held: HeldOutProblem, merger: Merger | None
    ) -> MetricResult | None:
        """Keep the decisions of the library's own boosters if they satisfy the constraints."""
        problem = self.problem
        margin = boosters.boosters(is_joint=False).margin
        k = problem.factors.size
        costs = ((1.0 - np.eye(k)) * problem.factors[:, None])[None]
        decisions = CostRule(costs[0], problem.factors).decide(lambda _: margin)
        shares = mixture_shares([decisions], np.ones(1), k)
        counts = problem.joint.count_shares(shares, held.weight, held.rows)
        u = held.functionals(counts[None])[0]
        if held.violations(u).max(initial=0.0) > FEASIBLE:
            return None
        search = MetricSearch(held, held.oracle(np.empty((0, len(problem.joint)))))
        (kept,), _ = search.assess([Decisions("argmax", costs, np.ones(1), shares)])
        value = problem.loss.value(u / problem.units)
        solution = RuleMixture(
            (costs[0],), np.ones(1), u, value, -np.inf, 0.0, "optimal", (), u[None]
        )
        return MetricResult(
            held, boosters.source, [kept], kept, kept.value, solution,
            np.nan, None, self._label_model(boosters, None, merger), problem.factors,
            decided=decisions,
        )  # fmt: skip

    def _label_model(
        self, boosters: HeldOutBoosters, weights: Float | None, merger: Merger | None
    ) -> NativeModel | None:
        """Make the booster of the labels, if the library does not train it by itself."""
        if self.options.ensemble is None:
            is_moved = weights is not None and weights.ndim > 1
            stages = boosters.stages_of_all(weights, is_joint=False) if is_moved else []
            return boosters.growth.train(stages) if is_moved else None
        assert merger is not None
        return merger.merge(boosters.boosters(weights, is_joint=False).models)

    def _folds(self) -> tuple[Sequence[Fold], str]:
        """Decide which rows are held out, each by another booster, and name them."""
        problem, options = self.problem, self.options
        everyone = np.arange(len(problem.data.rows))
        if options.measure_on == "train":
            if not self.library.is_linear:
                issue_warning(
                    f"measure_on='train' optimises {problem.metric.metric} on decisions about "
                    f"rows that the trees have learned, and promises more than new rows give: use "
                    f"'crossfit' or 'holdout'.",
                    "GC118",
                )
            return [Fold(everyone, everyone)], TRAINING_ROWS
        folds: Sequence[Fold]
        if (given := problem.data.given_folds) is not None:
            folds, source = given.folds, given.source
        else:
            is_holdout = options.measure_on == "holdout" or (
                options.measure_on == "auto"
                and not options.ensemble
                and has_many_rows(
                    problem.cells, problem.compiled, range(len(problem.compiled.parts))
                )
            )
            if is_holdout:
                share = options.holdout_fraction or HOLDOUT_FRACTION
                held = problem.data.split(everyone, problem.cells, share)[:1]
            else:
                n = min(options.n_folds, everyone.size)
                held = problem.data.split(everyone, problem.cells, 1.0 / n, n)
            folds = folds_of(held, everyone.size)
            source = "out of fold" if len(folds) > 1 else "holdout"
        check_folds(problem, folds, source, self.library)
        return folds, source
