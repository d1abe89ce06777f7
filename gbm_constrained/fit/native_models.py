"""Models that the library trains by its own means, on parts of the rows or on all of them.

A fit for a metric finds decisions on scores of rows that boosters have not seen, and its model is
one that the library trains itself. Where decisions need the probability of label and group, each
part has two boosters: one of the labels and one of the joint cells.

Boosters may be grown in stages. In each of them the library goes on with other weights of the
rows. No formula says how weights that move change the scores, so that factors and scale, by which
scores become probabilities of the rows as they are, are those of largest likelihood on the
held-out rows.

The first booster is trained while there is time to train all the others for as many rounds, by
the seconds that its own rounds took. The others, and the model of all rows, then have these rounds
in any case: decisions are found on scores after as many. Boosters that grow in stages have their
number of rounds from the seconds of the first stage. Boosters at other weights are trained only
where there is time for all of them.

A checkpoint holds what each training has given: scores on held-out rows, and the booster itself
where it is merged with others or another stage goes on with it. A fit that is called again takes
from the file what it would train on the same rows with the same weights, and trains the rest.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import joblib
import numpy as np
from sklearn.base import clone

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import CombinedRows, FitArguments
from gbm_constrained.data.splits import Fold
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.decision.rules import (
    OTHER_DATA,
    CellScores,
    calibrate_scores,
    probabilities_of,
)
from gbm_constrained.fit.callbacks import CallbackNotifier, MeasuringClock
from gbm_constrained.fit.checkpoint import CheckpointFile, State
from gbm_constrained.fit.metric_problem import MetricProblem
from gbm_constrained.fit.problem import LibrarySettings

NativeModel: TypeAlias = Any
"""A model that the library has trained by its own means. ``model`` is the library's classifier,
``margin(X, rows)`` scores rows of X, whose positions among all rows are `rows`, and ``to_bytes()``
writes the model as the library does. Boosters have all that a checkpoint keeps in ``state()``."""
IsOver: TypeAlias = Callable[[int], bool]
"""Whether training ends after so many boosting rounds."""
EvaluationRows: TypeAlias = tuple[str, Any, Any, Any, Any]
"""An evaluation set as it was given to ``fit``: its name in errors and reports, its features, its
labels, and, or None, the weight of each row and the scores of the user that ``predict`` adds."""


@dataclass(frozen=True, eq=False)
class PartRows:
    """Rows that a model is trained on, and what it is to learn.

    Parameters
    ----------
    combined : CombinedRows
        All rows; those of further data sets are learned as joint labels only.
    rows : ndarray of int
        Positions of the rows.
    target : ndarray of shape (n_rows,), intp or None
        Joint labels of all rows; None for the labels that the user gave.
    factor : ndarray of shape (n_rows,), default=None
        Factor of the weight of each of all rows.
    is_over : callable, default=None
        Whether training ends after so many boosting rounds; None if all are trained.
    start : NativeModel, default=None
        Model of the same rows that training goes on with.
    n_before : int, default=0
        Rounds of that model.
    rounds : int, default=None
        Rounds to grow; by default all that the classifier asks for.
    """

    combined: CombinedRows
    rows: Codes
    target: Codes | None
    factor: Float | None = None
    is_over: IsOver | None = None
    start: NativeModel = None
    n_before: int = 0
    rounds: int | None = None

    @property
    def is_joint(self) -> bool:
        """Whether the model learns joint labels, which no parameter about classes is for."""
        return self.target is not None

    @property
    def work(self) -> float:
        """Number of values that a boosting round has gradients for: rows times scores."""
        labels = self.combined.codes if self.target is None else self.target
        n_labels = np.unique(labels[self.rows]).size
        return float(self.rows.size * (1 if n_labels <= 2 else n_labels))

    def take_features(self) -> Any:
        """Take the features of these rows."""
        return take_rows(self.combined.X, self.rows)

    def take_labels(self, y: Any) -> Any:
        """Take the labels of these rows."""
        return take_rows(y, self.rows) if self.target is None else self.target[self.rows]

    def take_weight(self, weight: Any) -> Any:
        """Take the weights of these rows, given those of the training rows, times the factors."""
        weight = multiply_weight(self.combined.extend(weight, 1.0), self.factor)
        return None if weight is None else take_rows(weight, self.rows)


def multiply_weight(weight: Any, factor: Float | None) -> Any:
    """Multiply the weights of rows, ones where weight is None, by factors if there are any."""
    if factor is None:
        return weight
    return factor if weight is None else np.asarray(weight, dtype=np.float64) * factor


class NativeAdapter:
    """What a fit that leaves training to the library knows of the library.

    Attributes
    ----------
    model : estimator
        The classifier that is fitted.
    takes_offsets : bool
        Whether offsets of groups may be added to the scores of the model.
    """

    model: Any
    takes_offsets: ClassVar[bool]

    settings: Callable[[], LibrarySettings]  # Says what a fit must know of the parameters.
    # Calls the parent's own ``fit``, with the weight of each row multiplied by a factor. Training
    # ends after the number of rounds for which a function is true.
    fit_plain: Callable[..., None]
    fit_part: Callable[[PartRows], NativeModel]  # Trains the library's own model on some rows.
    # Merges models of ``fit_part`` into one whose raw score is the mean of theirs.
    merge: Callable[[Sequence[Any]], NativeModel]
    # Makes the model that ``fit_part`` has trained on some rows from its state.
    restore: Callable[[State, PartRows], NativeModel]
    can_fold: Callable[[], bool]  # Whether a shift of scores can be added to the trained model.
    add_to_margin: Callable[[Array], None]  # Adds to all scores that the trained model predicts.
    # Refuses models whose scores are no sum that parameters could weigh.
    check_adjustable: Callable[[str], None]
    adjustable: Callable[[str], Any]  # Gives access to the parameters of the trained model.
    restrict: Callable[[Codes], None]  # Leaves out all training rows but some.
    # Fits another classifier under its constraints, with the arguments of this fit.
    fit_constrained: Callable[[Any, FitArguments], None]

    def without_gradients(self) -> str | None:
        """Name the parameter by which the booster takes no gradients of others; None if it does.

        Such a booster is trained by the library alone, and constraints are met by decisions.
        """
        return None

    def take(self, model: NativeModel) -> None:
        """Make a model of ``fit_part`` that of the classifier, as ``fit`` would."""
        take_fit(self.model, model.model)

    def evaluation_rows(self) -> list[EvaluationRows]:
        """Check and list the evaluation sets."""
        return []

    def given(self) -> Mapping[str, Any]:
        """List the arguments of ``fit`` that another fit may differ in."""
        return {}

    def starting_scores(self) -> Any:
        """Scores that the training rows start from, if ``predict`` can be given such scores."""
        return None

    def check_rows(self, combined: CombinedRows) -> None:
        """Refuse arguments that have no values for the rows of further data sets."""

    def leave_out_rounds(self) -> None:
        """Remove the rounds that early stopping left in the trained model."""

    def finish(self) -> None:
        """Add to the report the conditions that only the library knows, and warn of them."""


def clone_plain(model: Any) -> Any:
    """Clone a booster's classifier without its constraints and its metric."""
    with preserve_random_state(model):
        plain = clone(model)
    return plain.set_params(constraints=None, maximize=None, minimize=None, solver="auto")


def take_fit(model: Any, other: Any) -> None:
    """Take over what the ``fit`` of another classifier has set, which has the same parameters."""
    # Not from get_params, which draws from a random_state that can be drawn from.
    makers = [vars(kind)["__init__"] for kind in type(model).__mro__ if "__init__" in vars(kind)]
    parameters = {name for make in makers[:-1] for name in inspect.signature(make).parameters}
    for name, value in vars(other).items():
        if name not in parameters and name != "_other_params":  # as LightGBM keeps more of them
            setattr(model, name, value)


class NativeGrowth:
    """Trains boosters on parts of the rows, or takes them from a checkpoint.

    Parameters
    ----------
    adapter : NativeAdapter
        Trains the library's own model on some of the rows.
    notifier : CallbackNotifier
        The time limit, and the number of rounds: fewer once the limit has settled them.
    file : CheckpointFile or None
        The checkpoint.

    Attributes
    ----------
    planned : float
        Work of a round of all boosters that will be trained, the model of all rows among them;
        see :attr:`PartRows.work`.
    of_model : float
        Work of a round of the model of all rows.
    """

    def __init__(
        self, adapter: NativeAdapter, notifier: CallbackNotifier, file: CheckpointFile | None
    ) -> None:
        self.adapter, self.notifier, self.file = adapter, notifier, file
        self.planned, self.of_model = 0.0, 1.0
        self._done = self._seconds = 0.0  # Work and seconds of all boosters so far.
        self._is_settled = False

    @property
    def _planned_with_search(self) -> float:
        """Work of a round of all planned boosters, with a share for the search for decisions.

        The search takes at most 0.15 of the boosters' own time on the data sets of the evidence
        page.
        """
        return 1.2 * self.planned

    def score(self, part: PartRows, held: Codes, *, is_kept: bool) -> tuple[Array, NativeModel]:
        """Train a booster and score the held-out rows.

        Parameters
        ----------
        part : PartRows
            The rows that the booster is trained on.
        held : ndarray of int
            Positions of the rows to score.
        is_kept : bool
            Whether the booster is needed again, to be merged or to go on with.
        """
        trained: list[NativeModel] = []

        def train() -> State:
            trained.append(self.train([part]))
            state = {"margin": trained[0].margin(take_rows(part.combined.X, held), held)}
            if is_kept and self.file is not None:
                state["model"] = trained[0].state()
            return state

        state = self._once("margin and booster" if is_kept else "margin", [part], train)
        margin = np.asarray(state["margin"])
        if not is_kept:
            return margin, None
        return margin, trained[0] if trained else self.adapter.restore(state["model"], part)

    def train(self, stages: Sequence[PartRows]) -> NativeModel:
        """Train a booster, each stage of which goes on with the one before."""
        model = stages[0].start
        for part in stages:
            model = self.adapter.fit_part(replace(part, start=model, is_over=self._pace(part)))
        return model

    def write(self, stages: Sequence[PartRows]) -> bytes:
        """Train a booster that decides, and write it as the library does."""

        def train() -> State:
            return {"bytes": np.frombuffer(self.train(stages).to_bytes(), np.uint8)}

        return bytes(self._once("bytes", stages, train)["bytes"])

    def settle(self, rounds: int) -> None:
        """Settle the number of rounds, once boosters that grow in stages have the first of them.

        Without a time limit, and where boosters have been grown before, it stays as it is.
        """
        notifier = self.notifier
        if not (self._is_settled or notifier.is_stopped or notifier.limit.seconds is None):
            per_round, pace = self._planned_with_search, self._seconds / self._done

            def has_time(n: int) -> bool:
                return notifier.limit.has_time_for((n * per_round - self._done) * pace)

            most = notifier.n_rounds
            n_rounds = next((n for n in range(most, rounds, -1) if has_time(n)), rounds)
            if n_rounds < most:
                notifier.end_for_time(n_rounds, "measuring")
        self._is_settled = True

    def has_time_for(self, work: float) -> bool:
        """Whether there is time for boosters of so much work a round beside the planned ones."""
        notifier = self.notifier
        limit = notifier.limit
        is_affordable = limit.affords((self.planned + work) / self.of_model)
        is_possible = is_affordable and not notifier.is_stopped
        has_time = is_possible and limit.has_time_for(self.seconds_left(work))
        limit.has_fewer_passes |= not has_time
        return has_time

    def seconds_left(self, work: float = 0.0) -> float:
        """Estimate the seconds of the planned boosters to come, and of so much work a round."""
        n_rounds = self.notifier.n_rounds
        left = work * n_rounds + max(self.planned * n_rounds - self._done, 0.0)
        return left * self._seconds / max(self._done, 1.0)

    def _once(self, what: str, stages: Sequence[PartRows], train: Callable[[], State]) -> State:
        """Take what a training gives from the checkpoint, or train and save it.

        The checkpoint names it by all that tells it from other trainings of the same fit.
        """
        told = [
            (part.rows, part.target, part.factor, part.n_before, part.rounds) for part in stages
        ]
        key, notifier, file = f"{what} {joblib.hash(told)}", self.notifier, self.file
        passes = () if file is None else file.passes
        state: State | None = next((one for one in passes if one["key"] == key), None)
        if is_new := state is None:
            begun = time.perf_counter()
            state = {"key": key, **train(), "seconds": time.perf_counter() - begun}
        else:
            notifier.restore(state["notifier"])
        if not stages[0].n_before:
            notifier.begin_pass(1)
        rounds = stages[0].rounds
        if rounds is None or len(stages) > 1:
            rounds, self._is_settled = notifier.n_rounds, True
        self._done += stages[0].work * min(rounds, notifier.n_rounds)
        self._seconds += state["seconds"]
        if is_new and file is not None:
            file.save({**state, "notifier": notifier.state()})
        return state

    def _pace(self, part: PartRows) -> IsOver | None:
        """Make the function that ends the training of a booster in time."""
        notifier = self.notifier
        if notifier.limit.seconds is None or part.n_before:
            return None
        if self._done:
            return notifier.is_over
        others = max(self._planned_with_search - part.work, 0.0)
        clock = MeasuringClock(notifier.limit, others / part.work, 1)

        def is_over(rounds: int) -> bool:
            if clock.is_over(rounds) and rounds < notifier.n_rounds:
                notifier.end_for_time(rounds, "measuring")
            return notifier.is_over(rounds)

        return is_over


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
    models : list of NativeModel or None
        The boosters, where they are to be merged or to go on with.
    """

    margin: Array
    factors: Float
    scale: float
    models: list[NativeModel]


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
    are_log_odds : bool, default=True
        Whether scores of the boosters are log-odds of the classes, or are calibrated first.

    Attributes
    ----------
    is_joint : bool
        Whether there are boosters of the joint cells beside those of the labels.
    rows : ndarray of int
        Positions of the held-out rows, in order.
    work : float
        Work of a round of the boosters of all folds.
    """

    def __init__(
        self,
        problem: MetricProblem,
        growth: NativeGrowth,
        folds: Sequence[Fold],
        *,
        are_log_odds: bool = True,
    ) -> None:
        self.problem, self.growth, self.folds = problem, growth, folds
        self.are_log_odds = are_log_odds
        self.is_joint = not problem.joint.are_labels
        self.rows = np.sort(np.concatenate([fold.held for fold in folds]))
        self._kinds = (False, True) if self.is_joint else (False,)
        self._merges = problem.options.ensemble is not None
        self._grown: dict[tuple[bool, bytes], LinkedScores] = {}
        self._stages: list[int] = []  # Rounds of each, where weights have moved.

        def work_of(fold: Fold | None) -> float:
            return sum(self._part(fold, None, is_joint=kind).work for kind in self._kinds)

        self.work = sum(map(work_of, folds))
        growth.of_model = work_of(None)
        growth.planned = self.work + (0.0 if self._merges else growth.of_model)
        growth.notifier.limit.check_cost(growth.planned / growth.of_model, "measuring the metric")

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
        factors, scale, combined = self.link(weights)
        margins = [self.boosters(weights, is_joint=kind).margin for kind in self._kinds]
        margin = margins[0] if combined is None else combined.combine(*margins)
        return probabilities_of(margin, factors, scale)

    def link(self, weights: Float | None = None) -> tuple[Float, float, CellScores | None]:
        """Say how scores that decide become probabilities: factors, scale and combination.

        Without joint cells there is nothing to combine. Combined scores are log-probabilities.
        """
        labels, *cells = (self.boosters(weights, is_joint=kind) for kind in self._kinds)
        if not cells:
            return labels.factors, labels.scale, None
        joint = self.problem.joint
        of_label = np.where(self.problem.in_objective, joint.labels, OTHER_DATA)
        combined = CellScores(
            of_label, labels.factors, labels.scale, cells[0].factors, cells[0].scale
        )
        return np.ones(len(joint)), 1.0, combined

    def row_factor(self, weights: Float | None, *, is_joint: bool = False) -> Float | None:
        """Factor of each row's weight in the boosters of the labels, or of the joint cells."""
        joint, amounts = self.problem.joint, self.problem.relative_amounts
        if weights is None:
            return amounts
        of_cells = weights if is_joint else self._of_labels(weights)[joint.labels]
        return np.asarray(multiply_weight(of_cells[joint.codes], amounts))

    def label_model(self, weights: Float | None) -> NativeModel:
        """Make the booster of the labels, if the library does not train it by itself."""
        if self._merges:
            return self.growth.adapter.merge(self.boosters(weights, is_joint=False).models)
        if weights is None or weights.ndim == 1:
            return None
        return self.growth.train(self._stages_of_all(weights, is_joint=False))

    def cell_model(self, weights: Float | None) -> bytes | None:
        """Make the booster of the joint cells as its library writes it, if there is one."""
        if not self.is_joint:
            return None
        if self._merges:
            models = self.boosters(weights, is_joint=True).models
            return bytes(self.growth.adapter.merge(models).to_bytes())
        return self.growth.write(self._stages_of_all(weights, is_joint=True))

    def _stages_of_all(self, weights: Float | None, *, is_joint: bool) -> list[PartRows]:
        """List the stages in which the model of all rows is trained."""
        if weights is None or weights.ndim == 1:
            return [self._part(None, weights, is_joint=is_joint)]
        stages = self._stages
        before = np.cumsum([0, *stages[:-1]]).tolist()
        return [
            replace(self._part(None, one, is_joint=is_joint), n_before=n, rounds=rounds)
            for one, n, rounds in zip(weights, before, stages, strict=True)
        ]

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
        notifier, path, done = self.growth.notifier, [np.ones(len(self.problem.joint))], 0
        stages = self._stages = list[int]()
        before: dict[bool, list[NativeModel]] = dict.fromkeys(
            self._kinds, [None] * len(self.folds)
        )
        while True:
            rounds = -(-(notifier.n_rounds - done) // (n_stages - len(stages)))
            weights = np.array(path)
            for kind in self._kinds:
                is_kept = self._merges or done + rounds < notifier.n_rounds
                parts = [
                    replace(
                        self._part(fold, path[-1], is_joint=kind),
                        start=model,
                        n_before=done,
                        rounds=rounds,
                    )
                    for fold, model in zip(self.folds, before[kind], strict=True)
                ]
                found = self._score(parts, weights, is_kept=is_kept)
                self._grown[kind, weights.tobytes()] = found
                before[kind] = found.models
            self.growth.settle(rounds)
            stages.append(min(rounds, notifier.n_rounds - done))
            done += stages[-1]
            probabilities = self.grow(weights)
            if done == notifier.n_rounds:
                return weights, probabilities
            for kind in self._kinds:  # The next stage goes on with these.
                del self._grown[kind, weights.tobytes()]
            path.append(move(path[-1], probabilities))

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
            self._grown[key] = self._score(parts, weights, is_kept=self._merges)
        return self._grown[key]

    def _score(
        self, parts: Sequence[PartRows], weights: Float | None, *, is_kept: bool
    ) -> LinkedScores:
        """Score the held-out rows in order, each by a model that has not seen it.

        A booster that knows none of the rows of a joint cell scores it with minus infinity. The
        scores become probabilities by the weights of the boosters' objective, or by the labels of
        the rows where those have moved.

        Raises
        ------
        ValueError
            If a booster that is to be merged has not seen all joint cells.
        """
        margins, models = [], []
        problem, rows, is_joint = self.problem, self.rows, parts[0].is_joint
        n_cells = len(problem.joint)
        for fold, part in zip(self.folds, parts, strict=True):
            known = np.arange(n_cells)
            if is_joint:
                known = np.unique(problem.joint.codes[part.rows])
            if self._merges and known.size < n_cells:
                raise ValueError(
                    f"Reduction(ensemble={problem.options.ensemble!r}) merges boosters "
                    f"that know the same groups of each class, and one of the folds holds all "
                    f"rows of a group of a class: use Reduction(ensemble=None), or a "
                    f"min_group_size that merges small groups."
                )
            margin, model = self.growth.score(part, fold.held, is_kept=is_kept)
            if known.size < n_cells:
                of_known, margin = margin, np.full((len(margin), n_cells), -np.inf)
                if of_known.ndim == 1:
                    of_known = np.column_stack([np.zeros(len(margin)), of_known])
                margin[:, known] = of_known
            margins.append(margin)
            models.append(model)
        margin = np.concatenate(margins)[np.argsort(np.concatenate([f.held for f in self.folds]))]
        codes, factors, scale, labelled = problem.joint.codes, np.ones(n_cells), 1.0, margin
        if not is_joint:
            codes, factors = problem.joint.labels[codes], problem.factors
            is_own = rows < problem.data.y.size
            labelled, rows = margin[is_own], rows[is_own]
        if (weights is not None and weights.ndim > 1) or not self.are_log_odds:
            weight = multiply_weight(problem.data.rows.weight, problem.relative_amounts)
            weight = None if weight is None else weight[rows]
            factors, scale = calibrate_scores(labelled, codes[rows], factors.size, weight)
        elif weights is not None:
            factors = np.asarray(factors * (weights if is_joint else self._of_labels(weights)))
        return LinkedScores(margin, factors, scale, models)

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
