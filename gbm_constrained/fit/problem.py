"""The mathematical programme of a fit: constraints bound to its rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import Constraint, refuse_priorities
from gbm_constrained.constraints.checking import check_straight
from gbm_constrained.constraints.rates import row_functions_of
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData, Weights, check_targets
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.regression import PredictedRows
from gbm_constrained.fit.options import (
    SolverOptions,
    check_measurable,
    check_rows,
    divide_as_given,
)
from gbm_constrained.problem.compiler import compile_constraints, needs_of
from gbm_constrained.problem.functionals import FEW_NAMED, WeightedLoss
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.regression import RegressionLagrangian

ClassFactor: TypeAlias = Callable[[Array, Array], Array]
Features: TypeAlias = frozenset[Hashable]


@dataclass(frozen=True)
class TreeLimits:
    """Limits of the trees of a fit, as the library's parameters set them.

    Attributes
    ----------
    missing : float, default=nan
        Number that trees take for a missing value.
    monotone : frozenset of column names, default=frozenset()
        Columns under ``monotone_constraints``.
    together : tuple of frozenset of column names, default=()
        Sets of ``interaction_constraints``, of which one must have all columns of a branch;
        none without a limit.
    """

    missing: float = np.nan
    monotone: Features = frozenset()
    together: tuple[Features, ...] = ()

    @classmethod
    def read(
        cls, names: Sequence[Hashable], monotone: Any, interactions: Any, missing: float = np.nan
    ) -> TreeLimits:
        """Read parameters in the forms that the libraries take: lists, texts and dicts."""
        if isinstance(monotone, Mapping):
            signs = [monotone.get(str(name)) for name in names]
        elif isinstance(monotone, str):
            signs = [int(sign) for sign in re.findall(r"-?\d+", monotone)]
        else:
            signs = list(() if monotone is None else monotone)
        if isinstance(interactions, str):
            text = interactions if interactions.startswith("[[") else f"[{interactions}]"
            interactions = ast.literal_eval(text)
        of_text = {str(name): name for name in names}
        together = tuple(
            frozenset(of_text[one] if isinstance(one, str) else names[int(one)] for one in members)
            for members in interactions or ()
        )
        bound = frozenset(name for name, sign in zip(names, signs, strict=False) if sign)
        return cls(missing, bound, together)


MIN_ROWS_FOR_HOLDOUT = 25_000
"""Rows of each rate from which a holdout is large enough: half of them estimate a rate of 0.05
with a standard error of 0.002."""
HOLDOUT_FRACTION = 0.25  # Share of the rows that a holdout takes by default.


@dataclass(frozen=True)
class LibrarySettings:
    """Settings of a library's own fit.

    Parameters
    ----------
    learning_rate : float
        Shrinkage of each round.
    n_rounds : int
        Boosting rounds that were asked for.
    library_factor, objective_factor : callable, default=None
        Factor of each class in the objective, given the sorted classes and the class index of
        each row: as the library multiplies it into the weights of its data set, and as it
        applies it in its own objective.
    softmax_hessian : callable, default=None
        Factor of the library's softmax Hessian, given the number of classes; one by default.
    is_linear : bool, default=False
        Whether a linear model is fitted in iterations, with no parameter `measure_on`. Its
        decisions about the training rows are as good as those about others, and those of trees
        are not, which the library grows by itself where no constraint binds.
    random_state : int, RandomState or None, default=None
        Source of randomness of the splits; None is the same as 0.
    kernel : mapping, default=empty
        Options of :class:`~gbm_constrained.problem.lagrangian.Lagrangian`, such as the dtype.
    takes_weights : bool, default=True
        Whether the objective takes weights of rows, as a function of the user need not.
    without_stages : str, default=None
        What keeps a model from being grown in stages whose rows have other weights; None if
        nothing does.
    has_scale : bool, default=True
        Whether the scores of the trained model can be multiplied by a factor.
    tree_limits : callable, default=None
        Limits of the trees, given the names of the columns; None if nothing limits them.
    """

    learning_rate: float
    n_rounds: int
    library_factor: ClassFactor | None = None
    objective_factor: ClassFactor | None = None
    softmax_hessian: Callable[[int], float] | None = None
    is_linear: bool = False
    random_state: Any = None
    kernel: Mapping[str, Any] = field(default_factory=dict)
    takes_weights: bool = True
    without_stages: str | None = None
    has_scale: bool = True
    tree_limits: Callable[[Sequence[Hashable]], TreeLimits] | None = None

    def class_factors(self, classes: Array, y: Codes) -> tuple[Float, Float]:
        """Evaluate both factors of each class in the objective, which constraints do not have."""
        first, second = np.ones(classes.size), np.ones(classes.size)
        if self.library_factor is not None:
            first = np.asarray(self.library_factor(classes, y), dtype=np.float64)
        if self.objective_factor is not None:
            second = np.asarray(self.objective_factor(classes, y), dtype=np.float64)
        for values in (first, second):
            if not (np.isfinite(values) & (values > 0)).all():
                raise ValueError(
                    f"class_weight (or scale_pos_weight) gives the classes {classes.tolist()} the "
                    f"factors {values.tolist()}: under constraints they must be positive. Use "
                    f"sample_weight=0 to leave rows out."
                )
        return first, second


@dataclass(frozen=True, eq=False)
class FitProblem:
    """Constraints bound to the rows of a fit, and the Lagrangians that follow.

    Parameters
    ----------
    constraints : tuple of Constraint
        The constraints, whose rates name the positive class.
    data : FitData
        The rows that are trained on, and those set aside.
    weights : Weights
        All weight vectors.
    factors : ndarray of shape (n_classes,)
        Factors of the classes in the objective.
    cells : Cells
        Partition of the rows that are trained on.
    compiled : LinearConstraints
        The constraints on these rows.
    kernel : mapping
        Options of the Lagrangian. Those of a regression have its objective.
    half : ndarray of shape (n_functionals,), default=None
        Rows of a regression at which a group counts as much as all groups together.
    room : ndarray of shape (m,), default=None
        What is taken off each right-hand side where the constraints move the model.
    """

    constraints: tuple[Constraint, ...]
    data: FitData
    weights: Weights
    factors: Float
    cells: Cells
    compiled: LinearConstraints
    kernel: Mapping[str, Any]
    half: Float | None = None
    room: Float | None = None

    @classmethod
    def of(
        cls, options: SolverOptions, arguments: FitArguments, library: LibrarySettings
    ) -> tuple[SolverOptions, Self]:
        """Encode the rows, set some aside for a guarantee, and compile the constraints.

        Returns the options with the positive class of rates named, and the problem.
        """
        kernel, constraints = library.kernel, options.constraints
        has_targets = "objective" in kernel
        if has_targets:
            check_straight(constraints, "a regressor", "use a sum of gaps")
            refuse_priorities(constraints, "regressors serve all alike: leave with_priority out")
        check_rows(options, arguments)
        data = FitData.of(arguments, constraints, library.random_state, has_targets=has_targets)
        if data.targets is not None:
            kernel["objective"].check_targets(data.targets)
        else:
            options = options.with_classes(data.classes)
            hessian = library.softmax_hessian
            kernel = {
                "proxy": options.method.proxy,
                "outlier_clip": options.method.outlier_clip,
                "majoriser_factor": 1.0 if hessian is None else hessian(data.classes.size),
                **kernel,
            }
        if options.guarantee is not None:
            data = _set_aside(data, options)
        data = divide_as_given(data, options)
        library_factors, objective_factors = library.class_factors(data.classes, data.y)
        factors = library_factors * objective_factors
        cells, compiled = _compile_what_is_left(data, options, factors)
        check_measurable(data, cells, compiled)
        weights, half = Weights.of(data, library_factors, objective_factors), None
        if has_targets:
            rewards = np.zeros(len(compiled), dtype=bool)
            compiled = replace(
                compiled,
                may_reward_errors=rewards,
                must_reward_errors=rewards,
                splits_targets=rewards,
            )
            # A certificate needs every group.
            half = None if options.guarantee is None else np.zeros(compiled.constant.size)
        problem = cls(options.constraints, data, weights, factors, cells, compiled, kernel, half)
        return options, problem

    @cached_property
    def acting(self) -> LinearConstraints:
        """The constraints as they move the model: each group as far as its rows can tell.

        With a guarantee every group acts in full, since its certificate needs that.
        """
        if self.data.certification is not None and self.data.targets is None:
            return self.compiled
        return self.compiled.make_credible(self.cells, self.half).leave_room(self.room)

    def compile(self, rows: Rows, name: str) -> tuple[Cells, LinearConstraints]:
        """Compile the constraints on other rows, with the groups of the training rows."""
        return compile_for_fit(self.constraints, rows, self.factors, self.compiled, name)

    def lagrangian(
        self,
        index: Codes | None = None,
        *,
        is_restricted: bool = False,
        log_odds: float = 0.0,
        factor: Float | None = None,
    ) -> Lagrangian:
        """Build the Lagrangian of all rows, or of those at positions `index`.

        Parameters
        ----------
        is_restricted : bool, default=False
            Whether rates are taken over these rows alone.
        log_odds : float, default=0
            Log-odds that the weights of the objective add to the second class.
        factor : ndarray of shape (n_rows,), default=None
            Factor of the weight of each of these rows.
        """
        cells, compiled = self.cells, self.acting
        weight = self.weights.with_log_odds(self.data.rows, log_odds)
        if index is not None:
            cells = cells.take(index, factor)
            compiled = compiled.on(cells) if is_restricted else compiled
            weight = None if weight is None else weight[index]
            if factor is not None:
                weight = factor if weight is None else weight * factor
        targets = self.data.targets
        if targets is None:
            return Lagrangian(cells.rows.y, cells, compiled, weight=weight, **self.kernel)
        return RegressionLagrangian(
            targets if index is None else targets[index],
            cells,
            compiled,
            functions=row_functions_of(self.constraints),
            weight=weight,
            **self.kernel,
        )

    def own_gradient(self, index: Codes) -> Callable[[Array], tuple[Array, Array]]:
        """Make the library's own objective of some rows: gradient and Hessian at their scores."""
        lagrangian, multipliers = self.lagrangian(index), np.zeros(len(self.compiled))
        return lambda margin: lagrangian.at(margin).gradient(multipliers)

    def initial_multipliers(self, start: Float | None) -> Float | None:
        """Check the user's multipliers, and drop those of constraints that are always met."""
        if start is None:
            return None
        names = self.compiled.all_rows
        if start.shape != (len(names),):
            raise ValueError(
                f"initial_multipliers must hold one number for each of the {len(names)} rows "
                f"that the constraints compile to, got {start.size}: the rows are {list(names)}."
            )
        return np.asarray(start[np.isin(names, self.compiled.rows)])

    def certification_set(self) -> EvaluationSet | None:
        """Bind the constraints to the rows that are set aside; None without a guarantee."""
        data = self.data
        if data.certification is None:
            return None
        rows = data.whole_rows.take(data.certification)
        targets = None if data.whole.targets is None else data.whole.targets[data.certification]
        return self.hold_out(*self.compile(rows, "the rows set aside"), "certification", targets)

    def evaluation_set(
        self, name: str, X: Any, y: Any, weight: Any = None, sensitive_features: Any = None
    ) -> EvaluationSet:
        """Bind the constraints to rows that are not trained on."""
        rows = self.data.evaluation_rows(name, X, y, weight, sensitive_features)
        try:
            found = self.compile(rows, name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return self.hold_out(*found, name, y)

    def hold_out(
        self, cells: Cells, compiled: LinearConstraints, name: str, y: Any = None, **others: Any
    ) -> EvaluationSet:
        """Describe rows on which constraints are compiled; those of a regression have targets y.

        `others` are further arguments for rows of a classification.
        """
        if self.data.targets is None:
            return EvaluationSet(cells, compiled, name, **others)
        targets, objective = check_targets(y, f"y of {name}"), self.kernel["objective"]
        if not targets.size:
            raise ValueError(f"{name} has no rows: leave it out.")
        objective.refuse_negative(targets, f"y of {name}")
        return PredictedRows(cells, compiled, name, targets, objective, self.half)

    def name_further_groups(self, rows: EvaluationSet) -> str:
        """Name groups of an evaluation set that no training row is of, with their rows there."""
        cells = rows.cells
        sizes: dict[str, int] = {}
        for group in rows.compiled.further_groups(self.compiled):
            view = next(view for view in cells.views if group.by in view.levels)
            inside = np.isin(view.levels[group.by], list(group.levels))
            sizes[str(group)] = int(cells.count[view.cells][inside].sum())
        return join_truncated(
            [f"{name} ({size:,} rows)" for name, size in sizes.items()], FEW_NAMED
        )

    def check_has_weight(self, parts: Sequence[Codes]) -> None:
        """Refuse parts of the rows whose training rows have no weight."""
        if self.weights.objective is None:
            return
        # No booster learns from rows of further data sets.
        weight = self.weights.objective[: self.data.combined.sizes[0]]
        has_weight = [weight[part[part < weight.size]].any() for part in parts]
        sizes = [np.count_nonzero(weight), weight.size]
        if not self.cells.communicator.holds_all_rows:
            found = self.cells.reduce_sum(np.array([*sizes, *has_weight], dtype=np.float64))
            sizes, has_weight = found[:2].astype(int).tolist(), (found[2:] > 0).tolist()
        if not all(has_weight):
            raise ValueError(
                f"sample_weight is zero on all rows that one of the boosters would be grown or "
                f"measured on: only {sizes[0]} of {sizes[1]} rows have weight. "
                f"Leave out rows of weight zero, and with groups= give more groups that have any; "
                f"or use measure_on='train'."
            )


def has_many_rows(cells: Cells, compiled: LinearConstraints, functionals: Iterable[int]) -> bool:
    """Whether each of some functionals is taken over enough rows for a holdout."""
    taken_over = [
        cells.weighted_count[base].sum()
        for k in functionals
        for part in compiled.terms[k] or ()
        if not isinstance(part, WeightedLoss)
        for base in part.bases
    ]
    return bool(min(taken_over, default=0) >= MIN_ROWS_FOR_HOLDOUT)


def find_idle(constraints: Sequence[Constraint]) -> frozenset[int]:
    """Positions of constraints that no decision can violate, if others can be violated."""
    met = [j for j, constraint in enumerate(constraints) if constraint.is_always_met]
    return frozenset(met) if len(met) < len(constraints) else frozenset()


def _set_aside(data: FitData, options: SolverOptions) -> FitData:
    """Set rows aside for a guarantee, which must leave rows of each class."""
    if data.groups is not None:
        raise ValueError(
            f"guarantee={options.guarantee!r} counts rows as independent, and groups says that "
            f"those of a group are not: leave the guarantee out, or give one row of each group, "
            f"without groups."
        )
    needs = [needs_of(constraint, data.rows) for constraint in options.constraints]
    cells = Cells(data.rows, needs, find_idle(options.constraints))
    data = data.without_certification_rows(cells, options.calibration_fraction)
    left = np.bincount(data.y, minlength=data.classes.size).astype(np.float64)
    is_left = data.rows.machine.communicator.sum(left) > 0
    if data.targets is None and not is_left.all():
        raise ValueError(
            f"guarantee={options.guarantee!r} sets aside all rows of class "
            f"{data.classes[~is_left].tolist()[0]!r}, which has too few of them: give more rows, "
            f"drop the class, or leave the guarantee out."
        )
    return data


def _compile_what_is_left(
    data: FitData, options: SolverOptions, factors: Float
) -> tuple[Cells, LinearConstraints]:
    """Compile the constraints on the rows that are trained on."""
    try:
        return compile_for_fit(options.constraints, data.rows, factors)
    except ValueError as error:
        if data.certification is None:
            raise
        # What concerns all rows is raised here.
        compile_for_fit(options.constraints, data.whole_rows, factors)
        raise ValueError(
            f"guarantee={options.guarantee!r} sets aside fraction="
            f"{options.calibration_fraction:g} of the rows, and without these {error} Rows "
            f"that it needs are all among those set aside: give more of them or a smaller "
            f"fraction, or leave the guarantee out."
        ) from None


def compile_for_fit(
    constraints: Sequence[Constraint],
    rows: Rows,
    factors: Float,
    like: LinearConstraints | None = None,
    name: str = "",
) -> tuple[Cells, LinearConstraints]:
    """Compile the constraints; those that are always met have no rows."""
    cells, compiled = compile_constraints(
        constraints,
        rows,
        like,
        find_idle(constraints),
        warning=(f"{name}, ", "") if name else ("", "small_groups_"),
    )
    cells.class_weight = factors
    return cells, compiled
