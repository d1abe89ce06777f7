"""The parameters that the drop-in classifiers add: their documentation, types and checks."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gbm_constrained.checks import check_share, is_finite_number
from gbm_constrained.decision import GUARANTEES, Guarantee
from gbm_constrained.early_stopping import EARLY_STOPPING_ON, EarlyStoppingOn
from gbm_constrained.lagrangian import Lagrangian
from gbm_constrained.losses import PROXIES, Proxy
from gbm_constrained.presets import from_fairlearn, is_fairlearn
from gbm_constrained.rates import Constraint, resolve_positive_class
from gbm_constrained.rows import Float
from gbm_constrained.solvers import ABPP, CBPR
from gbm_constrained.unseen import MEASURE_ON, MeasureOn

ErrorForm: TypeAlias = Literal["rate", "log_loss"]
Iterate: TypeAlias = Literal["last", "best", "ergodic", "randomized"]
ITERATES: tuple[Iterate, ...] = ("last", "best", "ergodic", "randomized")
SolverName: TypeAlias = Literal["auto", "abpp", "cbpr", "threshold"]
SOLVERS: tuple[SolverName, ...] = ("auto", "abpp", "cbpr", "threshold")
Probabilities: TypeAlias = Literal["shifted", "calibrated"]
PROBABILITIES: tuple[Probabilities, ...] = ("shifted", "calibrated")
OnInfeasible: TypeAlias = Literal["warn", "raise"]
ON_INFEASIBLE: tuple[OnInfeasible, ...] = ("warn", "raise")
ALIKE = 0.8  # Similarity of names, by difflib, from which on one is taken for the other misspelt.
SOLVER_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        The rules, such as ``[fnr() <= 0.05]`` (see :mod:`gbm_constrained.rates`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    positive : label, default=None
        The positive class of all rates that name none: with ``positive="fraud"`` the rule
        ``fnr() <= 0.05`` is ``fnr("fraud") <= 0.05``. By default the last of two sorted labels.
        Of more classes, it is one against all others. ``classes_`` and ``predict_proba`` keep the
        parent's order.
    proxy : {"auto", "logistic", "sigmoid"}, default="auto"
        Smooth stand-in for a 0-1 rate in gradients; multipliers always move on the exact rate.
        "logistic" is convex and amounts to re-weighting rows; "sigmoid" is bounded, so that rows
        beyond hope pull less. "auto" takes "sigmoid" for rules that may ask for errors (gaps,
        selection rates) and, of three or more classes, for those that forbid one of them (fpr or
        precision of a label), "logistic" for all others (error rates, recall, churn).
    rounds_per_iteration : int, default=2
        Boosting rounds in each outer iteration: how well each proximal subproblem is solved. The
        constraints are measured and the multipliers moved once in an iteration.
    tau, sigma : float, default=None
        Primal and dual step sizes; see :class:`gbm_constrained.solvers.ABPP`. The defaults come
        from the loss and the cells and need no tuning.
    mu : float, default=0
        Relative strong convexity claimed for the objective; above zero ABPP accelerates.
    iterate : {"last", "best", "ergodic", "randomized"}, default="last"
        Which iterate is returned: the last one (where constraints are measured on training rows
        and it violates them, the last of the later half that meets them, or violates them
        least); the one of smallest error among those that meet all constraints, on the rows that
        these are measured on; the average of all that the theory of ABPP speaks of; or a
        distribution over prefixes of the ensemble that meets the constraints in the mean, or
        nearest to that with a warning (``prefixes_``), from which ``predict(...,
        random_state=)`` draws one for each row.
    error_form : {"rate", "log_loss"}, default="rate"
        "rate" bounds 0-1 error rates themselves. "log_loss" is the source paper's heuristic: an
        error bound e is replaced by mean cross-entropy <= e log(n_classes), re-estimated half-way
        as e times the current mean cross-entropy.
    outlier_clip : float, default=None
        Margin beyond which a row on the wrong side stops adding to mean-loss constraints (paper,
        Appendix G; 7 to 30 in its experiments). Reports are of all losses in full, as are rates
        that are measured on unseen rows.
    initial_multipliers : array-like of shape (n_rows,), default=None
        Warm start of the multipliers, for instance ``multipliers_`` of an earlier fit.
    solver : {"auto", "abpp", "cbpr", "threshold"}, default="auto"
        The outer loop. "auto" takes CBPR for differences of mean losses, such as
        ``gap(log_loss(), by=...)``, which are not convex, and ABPP for everything else.
        "threshold" takes none: the library's own boosters, whose threshold (or class biases) is
        moved on unseen rows until the rules hold. Rules on labels and decisions alone, such as
        ``fnr() <= 0.05``, may do better without multipliers; "auto" finds out for those, where
        boosters are grown on part of the rows; see :mod:`gbm_constrained.unweighed`."""
UNSEEN_PARAMETERS_DOC = """
    measure_on : {"auto", "train", "holdout", "crossfit"}, default="auto"
        The rows whose rates move the multipliers; see :mod:`gbm_constrained.unseen`. "crossfit"
        grows `n_folds` boosters in step, "holdout" one, and the model is then trained on all rows
        with the multipliers found. "auto" takes "holdout" if every rate is taken over 50,000
        rows, and "crossfit" if not; "train" where neither is possible (dart, continued training).
    n_folds : int, default=4
        Folds of "crossfit", stratified by cell.
    holdout_fraction : float, default=None
        Share of the rows of "holdout". By default the last evaluation set given to ``fit``, which
        then costs nothing and is no longer unseen; a quarter of the rows without one.
    guarantee : {None, "expected", "high_probability"}, default=None
        What is promised of new rows, by rows that are set aside for it; see
        :mod:`gbm_constrained.decision`.
    delta : float, default=0.05
        Probability that the rules do not hold in spite of ``guarantee="high_probability"``.
    calibration_fraction : float, default=0.2
        Share of the rows that a guarantee keeps for nothing else.
    probabilities : {"shifted", "calibrated"}, default="shifted"
        Whether the shift of the decisions is folded into the model, or kept beside it
        (``shift_``), where ``predict`` applies it and probabilities stay as trained.
    on_infeasible : {"warn", "raise"}, default="warn"
        What to do about rules that cannot be met, once the model is trained. "raise" is refused
        where no conflict is looked for: on training rows, and of averages of models.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        What early stopping judges a round by, after the parent's ``early_stopping_rounds``: the
        parent's metric; the rules on the last evaluation set, of which the last round that met
        them is kept; or the metric among the rounds that meet them. See
        :mod:`gbm_constrained.early_stopping`."""
FITTED_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows (``train``), its value
        on unseen rows (``held_out``) with a 95% interval (``low``, ``high``), the rows that the
        verdict is by (``rows``: those of a certificate, else the last evaluation set, else those
        that measured the constraints; out of fold the interval is that of one more booster than
        those of the folds), its multiplier, whether the value is within the bound on the training
        rows (``train_satisfied``) and on the unseen ones (``satisfied``, missing without any), and
        the ``verdict``; see :class:`~gbm_constrained.verdicts.Verdict`.
    shift_ : ndarray of shape (1,) or (n_classes,)
        What was added to the scores; zero where the decisions stayed.
    history_ : DataFrame
        One row per outer iteration: objective, values, bounds and multipliers of the constraints,
        Bregman distance, seconds. With ``error_form="log_loss"`` values and bounds are mean
        losses.
    group_report_ : DataFrame
        One row per group of each constraint that compares groups: its training rows and its
        rates, with the interval of that on unseen rows. Groups of the last evaluation set that
        no training row is of have no training rows.
    small_groups_ : DataFrame
        One row per group of each constraint that compares groups, in which its rate is taken over
        fewer than `min_group_size` training rows: their number, and whether the group is kept,
        merged with others or left out.
    multipliers_ : Series
        Multipliers of the returned model, by linear row that the constraints compile to.
    unseen_accuracy_ : Estimate
        Accuracy on the rows of ``constraint_report_["held_out"]``, and its interval; NaN where
        there are none, and of a randomised classifier.
    feasibility_ : Feasibility
        The verdict on each rule as an object, the rules that conflict, and what was reached
        instead. Its ``status`` is the gravest verdict.
    stopping_message_ : str or None
        What ended the fit before all rounds (a constraint callback, ``time_limit``), after how
        many, and what was given up for the time limit; None if nothing did.
    prefixes_ : DataFrame
        With ``iterate="randomized"``: boosting rounds of each prefix, and its probability.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5.
"""


@dataclass(frozen=True)
class SolverOptions:
    """The constructor parameters that the drop-in classifiers add, checked."""

    constraints: tuple[Constraint, ...]
    positive: Hashable | None = None
    proxy: Proxy = "auto"
    rounds_per_iteration: int = 2
    tau: float | None = None
    sigma: float | None = None
    mu: float = 0.0
    iterate: Iterate = "last"
    error_form: ErrorForm = "rate"
    outlier_clip: float | None = None
    initial_multipliers: Float | None = None
    measure_on: MeasureOn = "train"
    n_folds: int = 4
    holdout_fraction: float | None = None
    guarantee: Guarantee = None
    delta: float = 0.05
    calibration_fraction: float = 0.2
    probabilities: Probabilities = "shifted"
    on_infeasible: OnInfeasible = "warn"
    early_stopping_on: EarlyStoppingOn = "metric"
    solver: SolverName = "auto"

    @classmethod
    def of(cls, estimator: Any) -> SolverOptions:
        """Read and check the options of an estimator.

        Raises
        ------
        TypeError, ValueError
            If an option has the wrong type or value; the message names it and what it may be.
        """
        constraints = check_constraints(estimator.constraints)
        # The linear classifier is measured on training rows, having few parameters to learn them
        # by heart with; and its parent has a parameter called solver.
        asked = [name for name in SOLVER_PARAMETERS[1:-1] if hasattr(estimator, name)]
        own = {name: getattr(estimator, name) for name in asked}
        name = "constraint_solver" if hasattr(estimator, "constraint_solver") else "solver"
        options = cls(constraints, solver=getattr(estimator, name), **own)
        _check_choice("proxy", options.proxy, PROXIES)
        _check_choice("iterate", options.iterate, ITERATES)
        _check_choice(name, options.solver, SOLVERS if name == "solver" else SOLVERS[:-1])
        _check_choice("error_form", options.error_form, ("rate", "log_loss"))
        _check_choice("measure_on", options.measure_on, MEASURE_ON)
        check_integer("n_folds", options.n_folds, 2)
        if options.holdout_fraction is not None:
            check_share("holdout_fraction", options.holdout_fraction)
        _check_choice("guarantee", options.guarantee, GUARANTEES)
        check_share("delta", options.delta)
        check_share("calibration_fraction", options.calibration_fraction)
        _check_choice("probabilities", options.probabilities, PROBABILITIES)
        _check_choice("on_infeasible", options.on_infeasible, ON_INFEASIBLE)
        _check_choice("early_stopping_on", options.early_stopping_on, EARLY_STOPPING_ON)
        if options.error_form == "log_loss" and options.iterate in ("best", "randomized"):
            raise ValueError(
                f"iterate={options.iterate!r} chooses by 0-1 rates, which error_form='log_loss' "
                f"does not hold: use error_form='rate', or iterate='last'."
            )
        if options.outlier_clip is not None and options.iterate == "randomized":
            raise ValueError(
                "iterate='randomized' weighs prefixes by losses in full, and outlier_clip clips "
                "them: leave outlier_clip out, or use another iterate."
            )
        if options.guarantee is not None and options.iterate in ("ergodic", "randomized"):
            raise ValueError(
                f"guarantee={options.guarantee!r} is given for one prefix and threshold, and "
                f"iterate={options.iterate!r} is a mean of several: use iterate='last' or 'best'."
            )
        if options.solver == "threshold":
            _check_threshold(name, options)
        if options.on_infeasible == "raise" and options.iterate in ("ergodic", "randomized"):
            raise ValueError(
                f"on_infeasible='raise' judges one prefix and threshold, and "
                f"iterate={options.iterate!r} is a mean of several: use iterate='last' or 'best', "
                f"or on_infeasible='warn'."
            )
        check_integer("rounds_per_iteration", options.rounds_per_iteration, 1)
        for name in ("tau", "sigma", "outlier_clip"):
            value = getattr(options, name)
            if value is not None and not (is_finite_number(value) and value > 0):
                raise ValueError(f"{name} must be a positive number or None, got {value!r}.")
        if not (is_finite_number(options.mu) and options.mu >= 0):
            raise ValueError(f"mu must be a non-negative number, got {options.mu!r}.")
        start = options.initial_multipliers
        if start is None:
            return options
        start = np.asarray(start, dtype=np.float64)
        if start.ndim != 1 or not (np.isfinite(start) & (start >= 0)).all():
            raise ValueError(
                f"initial_multipliers must hold finite, non-negative numbers, as multipliers_ of "
                f"an earlier fit does; got {start.tolist()}."
            )
        return replace(options, initial_multipliers=start)

    def with_classes(self, classes: NDArray[np.generic]) -> SolverOptions:
        """Name the positive class of the constraints, now that the classes are known.

        Parameters
        ----------
        classes : ndarray of shape (n_classes,)
            Sorted labels.

        Raises
        ------
        TypeError, ValueError
            If `positive` is not one of them.
        """
        named = resolve_positive_class(self.constraints, classes, self.positive)
        return replace(self, constraints=named)

    def solver_class(self, lagrangian: Lagrangian) -> type[ABPP]:
        """Choose the outer loop: CBPR for differences of losses, ABPP otherwise.

        The sigmoid proxy of a rate is not convex either, but its curvature, 0.06 per unit of a
        multiplier, is less than that of ABPP's own proximal term, which makes subproblems convex.
        """
        solver = self.solver
        if solver == "auto":
            solver = "abpp" if lagrangian.constraints.is_convex else "cbpr"
        if solver == "cbpr" and self.iterate == "ergodic":
            raise ValueError(
                "iterate='ergodic' is an average that means nothing for rules that are not "
                "convex, which CBPR is for: use iterate='last'."
            )
        return CBPR if solver == "cbpr" else ABPP


SOLVER_PARAMETERS = tuple(SolverOptions.__dataclass_fields__)


def check_spelling(estimator: Any, others: Iterable[str], known: Collection[str] = ()) -> None:
    """Refuse a parameter that one of ours was meant by: the library would train without it.

    Parameters
    ----------
    estimator : classifier
        Whose parameters they are.
    others : iterable of str
        Names that its constructor does not know, and hands on to the library.
    known : collection of str, default=()
        Those of the library that are spelt like one of ours.

    Raises
    ------
    TypeError
        If one is nearly the name of a parameter of ours, or of something inside one, such as
        ``constraints__bound``: rules are set whole.
    """
    for name in others:
        near = get_close_matches(name.partition("__")[0], SOLVER_PARAMETERS, 1, ALIKE)
        if near and name not in (*near, *known):  # LightGBM's set_params hands on all names
            raise TypeError(
                f"{type(estimator).__name__} has no parameter {name!r}: did you mean {near[0]}=?"
            )


def with_constraints(tags: Any, constraints: Any, positive: Any) -> Any:
    """Tags of a parent as a classifier under constraints has them.

    Constraints are about one label of a row, and some of them about two classes.

    Parameters
    ----------
    tags : sklearn.utils.Tags
        The parent's, changed in place.
    constraints, positive : object
        The constructor parameters, which nothing has checked yet.
    """
    try:
        checked = check_constraints(constraints)
    except (TypeError, ValueError):
        return tags
    if checked:
        tags.classifier_tags.multi_label = tags.target_tags.multi_output = False
        is_binary = positive is None and any(rule.is_binary for rule in checked)
        tags.classifier_tags.multi_class &= not is_binary
    return tags


def _check_threshold(name: str, options: SolverOptions) -> None:
    """Refuse to move a threshold where none is moved, and what is about multipliers."""
    start = options.initial_multipliers
    for other, fits, choices in (
        ("measure_on", options.measure_on != "train", "'auto', 'holdout' or 'crossfit'"),
        ("iterate", options.iterate in ("last", "best"), "'last' or 'best'"),
        ("error_form", options.error_form == "rate", "'rate'"),
        ("initial_multipliers", start is None, "None"),
    ):
        if not fits:
            raise ValueError(
                f"{name}='threshold' moves the threshold of a model that was trained without "
                f"multipliers, on rows that its trees have not seen, and "
                f"{other}={getattr(options, other)!r} has no place there: use {choices}, or "
                f"another solver."
            )


def _check_choice(name: str, value: object, choices: Sequence[str | None]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")


def check_integer(name: str, value: object, least: int) -> None:
    """Refuse what is no integer, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}.")


def check_number(name: str, value: Any) -> float:
    """Read a number that a library takes as text, too.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}.") from None


def check_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """Constraints as a tuple: from None, one constraint, or a sequence of them."""
    if constraints is None:
        return ()
    if isinstance(constraints, Constraint) or is_fairlearn(constraints):
        return check_constraints((constraints,))
    if isinstance(constraints, str) or not isinstance(constraints, Iterable):
        raise TypeError(
            f"constraints must be a sequence of constraints such as [fnr() <= 0.05], got "
            f"{constraints!r}.{_remedy(constraints)}"
        )
    if isinstance(constraints, Iterator):
        raise TypeError(
            f"constraints is an iterator ({type(constraints).__name__}), which is empty once it "
            f"has been read: give a list, constraints=list(...)."
        )
    checked: list[Constraint] = []
    for item in constraints:
        item = from_fairlearn(item) if is_fairlearn(item) else item
        if isinstance(item, (list, tuple)):  # presets may make several
            checked += check_constraints(item)
        elif isinstance(item, Constraint):
            checked.append(item)
        else:
            raise TypeError(
                f"constraints holds {item!r}, which is not a constraint: bound a rate, as in "
                f"fnr() <= 0.05.{_remedy(item)}"
            )
    return tuple(checked)


def _remedy(item: Any) -> str:
    """Say how what was meant as a rule is written."""
    if inspect.isfunction(item):
        return (
            f" {item.__name__} is a function that makes a rate: write {item.__name__}() <= 0.05."
        )
    if isinstance(item, str):
        return " parse_constraint reads a rule that is written as text."
    if isinstance(item, bool):
        return " Rules are made by <= and >=; == says whether two rates are the same."
    return ""
