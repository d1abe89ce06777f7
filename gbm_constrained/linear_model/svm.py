r"""Linear support vector machines: under constraints on ramp rates, and with costs of rows.

For costs :math:`a, b \ge 0` of rows and scores :math:`z_x = \langle w, x \rangle + c`, the problem

.. math::

   \min_{w, c} \; \sum_x \Big[ a_x \max(0, \tfrac12 + z_x) + b_x \max(0, \tfrac12 - z_x) \Big]
   + \tfrac{\lambda}{2} \|w\|^2

has a dual over slopes :math:`\xi_x \in [-a_x, b_x]` that sum to zero, since the intercept is free,

.. math::

   \max_\xi \; \sum_x \min(b_x - \tfrac12 \xi_x, \; a_x + \tfrac12 \xi_x)
   - \tfrac{1}{2 \lambda} \Big\| \sum_x \xi_x x \Big\|^2 .

**Method.** The hinge is replaced by the Huber hinge, a parabola within a width of its kink. Newton
steps minimise the smooth function, and the width shrinks. The negative slopes of the smooth
losses at its minimum are feasible for the dual of the *unsmoothed* problem, so that the difference
of the two values is a proof, whatever the width. What Newton steps leave of the sum of the slopes
is taken from the larger of their positive and negative part, and so enters the bound.

**What this replaces.** Goh et al. (2016), appendix F, take stochastic dual coordinate ascent,
which moves one :math:`\xi_x` at a time and cannot keep their sum. They therefore fix the
intercept, and look for it by cutting planes over the optimum as a convex function of it. A Newton
step moves all coefficients at once: stationarity in the intercept *is* the condition on the sum.
On a9a with C = 1, compiled coordinate ascent that is given the best intercept takes .27 s on one
core for a gap of 1e-4, and .75 s for 1e-5. Each further intercept would take as long. Newton steps
with a free intercept take .21 and .23 s (``dataset_constraints.py --ascent``).

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, appendix F.
.. [2] Chapelle, "Training a Support Vector Machine in the Primal", 2007.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from gbm_constrained._docstrings import document_parameters
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import refuse_priorities
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_linear,
    check_straight,
    check_task,
)
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.decision.rules import Scores
from gbm_constrained.fit import model_note as saving
from gbm_constrained.fit.callbacks import ConstraintCallback, Progress, TimeLimit
from gbm_constrained.fit.finalize import (
    FinalModel,
    ReportLayout,
    describe_training_rows,
    report,
    warn,
)
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.fitted_report import FittedAttribute
from gbm_constrained.fit.options import SolverOptions, with_known_parameters
from gbm_constrained.linear_model.base import (
    FIT_PARAMETERS,
    ConstrainedLinearModel,
    check_rows,
    set_parameters,
)
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import check_positive
from gbm_constrained.solvers.cutting_plane import Chooser, CuttingPlane
from gbm_constrained.solvers.dataset_rates import (
    Loss,
    MajorizationMinimization,
    MajorizationStep,
    find_intercept_shift,
    find_start,
    ramp,
    rate_problem_of,
)

MAX_STEPS = 1000  # Newton steps; about a hundred reach a gap of 1e-6.


class HingeSolution(NamedTuple):
    """Coefficients, and bounds of the optimum.

    Parameters
    ----------
    coefficients : (n_features + 1,). Weights w, and the intercept last.
    primal : Value of the problem at the coefficients, an upper bound of the optimum.
    dual : Value of the dual at `slopes`, a lower bound of the optimum.
    slopes : (n_samples,). Dual variables xi, in [-a, b] and of sum zero.
    n_steps : Newton steps.
    """

    coefficients: Float
    primal: float
    dual: float
    slopes: Float
    n_steps: int

    @property
    def gap(self) -> float:
        """By how much the value at the coefficients may be above the optimum."""
        return self.primal - self.dual


def huber_slope(t: Float, width: float) -> Float:
    """Compute the slope of the Huber hinge, ``max over s in [0, 1] of s t + width s (1 - s)``."""
    return np.clip(0.5 + t / (2 * width), 0.0, 1.0)


class WeightedSVM:
    """Linear scores of the rows of a table, with a penalty of their weights.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features), float64
        Features. The table is neither copied nor made dense. Columns may be collinear, and rows
        duplicated.
    l2 : float
        Penalty ``l2 / 2 |w|^2`` of the weights, positive. The intercept is free.
    """

    def __init__(self, X: Any, l2: float) -> None:
        if not (np.isfinite(l2) and l2 > 0):
            raise ValueError(f"l2 must be a positive number, got {l2!r}: the dual divides by it.")
        self.X = X
        self.l2 = float(l2)
        self._is_sparse = bool(sparse.issparse(X))
        self.n_samples, self.n_features = X.shape

    def scores(self, coefficients: Float) -> Float:
        """Compute the scores of the rows; (n_samples,).

        Parameters
        ----------
        coefficients : ndarray of shape (n_features + 1,)
            Weights, and the intercept last.
        """
        return np.asarray(self.X @ coefficients[:-1] + coefficients[-1])

    def penalty(self, coefficients: Float) -> float:
        """Compute the penalty of the weights.

        Parameters
        ----------
        coefficients : ndarray of shape (n_features + 1,)
            Weights, and the intercept last.
        """
        return float(self.l2 / 2 * coefficients[:-1] @ coefficients[:-1])

    def minimize(
        self, positive: Float, negative: Float, gap: float, start: Float | None = None
    ) -> HingeSolution:
        """Minimise the sum of weighted hinge losses and the penalty.

        Parameters
        ----------
        positive, negative : ndarray of shape (n_samples,)
            Costs a of positive and b of negative decisions, at least zero.
        gap : float
            Largest difference between the value at the coefficients and the optimum.
        start : ndarray of shape (n_features + 1,), default=None
            Coefficients of a similar problem; zeros by default, and where they are better.

        Returns
        -------
        HingeSolution
            With ``primal - dual <= gap``.

        Raises
        ------
        ValueError
            If a cost is negative or not finite, or `gap` is not positive.
        RuntimeError
            If the gap is not reached, because it is below the precision of doubles on these
            features.
        """
        given = []
        for name, cost in (("positive", positive), ("negative", negative)):
            cost = np.asarray(cost, dtype=np.float64)
            if cost.shape != (self.n_samples,) or not (np.isfinite(cost) & (cost >= 0)).all():
                raise ValueError(
                    f"{name} must hold {self.n_samples} finite costs of at least zero, got {cost}."
                )
            given.append(cost)
        if not gap > 0:
            raise ValueError(f"gap must be a positive number, got {gap!r}.")
        a, b = given
        # Above 1/2, so that at scores of zero every row is within it of both kinks.
        newton, width = _Newton(self, a, b, np.zeros(self.n_features + 1)), 0.6
        if start is not None and (near := _Newton(self, a, b, start)).value() < newton.value():
            newton, width = near, 0.05  # The first width from coefficients of a similar problem.
        best: HingeSolution | None = None
        while newton.n_steps < MAX_STEPS and width > 1e-12:
            if not newton.minimize(width, gap):  # The minima of the two widths are too far apart.
                width = newton.return_to_last_minimum(width)
                continue
            found = newton.certify(width)
            # The better coefficients, and the better bound.
            primal = min(best or found, found, key=lambda solution: solution.primal)
            dual = max(best or found, found, key=lambda solution: solution.dual)
            best = primal._replace(dual=dual.dual, slopes=dual.slopes, n_steps=found.n_steps)
            if best.gap <= gap:
                return best
            # While the same rows are within the width of a kink, minima are nearly linear in the
            # width. It falls to a tenth at the least, and to three tenths at the most.
            newton.minima = [*newton.minima[-1:], (width, newton.coefficients, newton.z)]
            width = newton.extrapolate(width * np.clip(0.5 * gap / found.gap, 0.1, 0.3))
        reached = np.inf if best is None else best.gap
        raise RuntimeError(
            f"the duality gap of the SVM is {reached:.3g} after {newton.n_steps} Newton steps, "
            f"and {gap:.3g} was asked for: ask for more, or scale the features."
        )

    def hessian(self, curvature: Float) -> Float:
        """Compute the Hessian from the rows of positive curvature, a block at a time.

        Parameters
        ----------
        curvature : ndarray of shape (n_samples,)
            Second derivative of the loss of each row in its score.

        Returns
        -------
        ndarray of shape (n_features + 1, n_features + 1)
        """
        d = self.n_features
        H = np.empty((d + 1, d + 1))
        H[:d, :d] = self.l2 * np.eye(d)
        curved = np.flatnonzero(curvature)
        entries = self.X.nnz if self._is_sparse else self.X.size
        # Entries of X that are copied at a time.
        size = max(1, int(2**20 * self.n_samples / max(entries, 1)))
        for i in range(0, curved.size, size):
            rows = curved[i : i + size]
            block, weight = self.X[rows], curvature[rows]
            if self._is_sparse:
                H[:d, :d] += (block.T @ (sparse.diags_array(weight) @ block)).toarray()
            else:
                H[:d, :d] += block.T @ (weight[:, None] * block)
        H[:d, d] = H[d, :d] = self.X.T @ curvature
        H[d, d] = curvature.sum()
        return H


class _Newton:
    """Newton steps on the smooth problems of one set of costs."""

    def __init__(self, svm: WeightedSVM, positive: Float, negative: Float, start: Float) -> None:
        self.svm, self.positive, self.negative = svm, positive, negative
        self.coefficients, self.z = start, svm.scores(start)
        self.n_steps = 0
        # The last two minima: their width, coefficients and scores.
        self.minima: list[tuple[float, Float, Float]] = []

    def value(self) -> float:
        """Compute the value of the problem at the present coefficients."""
        up, down = np.maximum(0.5 + self.z, 0), np.maximum(0.5 - self.z, 0)
        losses = self.positive * up + self.negative * down
        return float(losses.sum()) + self.svm.penalty(self.coefficients)

    def slopes(self, z: Float, width: float) -> Float:
        """Compute the negative derivatives xi of the smooth losses at scores z."""
        up, down = huber_slope(0.5 + z, width), huber_slope(0.5 - z, width)
        return self.negative * down - self.positive * up

    def return_to_last_minimum(self, width: float) -> float:
        """Extrapolate the last two minima less far than to `width`, and return how far."""
        if not self.minima:  # The start is far from the minimum: widen.
            return 10 * width
        last, self.coefficients, self.z = self.minima[-1]
        return self.extrapolate(float(np.sqrt(last * width)))

    def extrapolate(self, width: float) -> float:
        """Extrapolate the last two minima, where there are two, to a width; return the width."""
        if len(self.minima) == 2:
            (first, *earlier), (second, *later) = self.minima
            share = (width - second) / (second - first)
            self.coefficients, self.z = (
                b + share * (b - a) for a, b in zip(earlier, later, strict=True)
            )
        return width

    def minimize(self, width: float, gap: float) -> bool:
        """Minimise the problem of a width, and say whether a minimum was reached.

        It is exact enough where it adds little to the gap that smoothing makes.
        """
        for _ in range(25):
            slopes = self.slopes(self.z, width)
            in_weights = self.svm.l2 * self.coefficients[:-1] - self.svm.X.T @ slopes
            gradient = np.append(in_weights, -slopes.sum())
            lost = gradient[:-1] @ gradient[:-1] / (2 * self.svm.l2) + abs(gradient[-1])
            # Part of the gap that the width makes, ``width * s (1 - s)`` of both hinges.
            up, down = huber_slope(0.5 + self.z, width), huber_slope(0.5 - self.z, width)
            parts = self.positive * up * (1 - up) + self.negative * down * (1 - down)
            # An inexact minimum may add a tenth to the gap that smoothing leaves.
            if lost <= 0.1 * max(float(width * parts.sum()), gap):
                return True
            if not self._step(gradient, width):
                return False
        return False

    def certify(self, width: float) -> HingeSolution:
        """Compute the values of primal and dual at the present coefficients."""
        self.z = self.svm.scores(self.coefficients)  # Steps have added up their rounding.
        slopes = self.slopes(self.z, width)
        # Shrink the larger of the positive and negative slopes, so that all sum to zero.
        up, down = slopes[slopes > 0].sum(), -slopes[slopes < 0].sum()
        if up > down:
            slopes = np.where(slopes > 0, slopes * (down / up), slopes)
        elif down > 0:
            slopes = np.where(slopes < 0, slopes * (up / down), slopes)
        pulled = self.svm.X.T @ slopes
        conjugate = np.minimum(self.negative - slopes / 2, self.positive + slopes / 2).sum()
        dual = float(conjugate) - float(pulled @ pulled) / (2 * self.svm.l2)
        return HingeSolution(self.coefficients, self.value(), dual, slopes, self.n_steps)

    def _step(self, gradient: Float, width: float) -> bool:
        """Take a Newton step as far as the function falls, and say whether it did."""
        step = self._direction(gradient, width)
        change = self.svm.scores(step)
        of_penalty = self.svm.l2 * np.array([self.coefficients[:-1], step[:-1]]) @ step[:-1]

        def slope(t: float) -> float:
            slopes = self.slopes(self.z + t * change, width)
            return float(of_penalty[0] + t * of_penalty[1] - slopes @ change)

        if not slope(0.0) < 0:  # Rounding is all that is left.
            return False
        t = 1.0 if slope(1.0) <= 0 else brentq(slope, 0.0, 1.0, xtol=1e-12, rtol=1e-2)
        self.coefficients = self.coefficients + t * step
        self.z = self.z + t * change
        self.n_steps += 1
        return True

    def _direction(self, gradient: Float, width: float) -> Float:
        """Solve for the Newton direction.

        Where few rows are within the width of a kink, the curvature in the intercept is at least
        the size of the slope, so that the intercept moves by at most about one.
        """
        up, down = np.abs(0.5 + self.z) < width, np.abs(0.5 - self.z) < width
        curvature = (self.positive * up + self.negative * down) / (2 * width)
        least = max(abs(gradient[-1]), np.finfo(float).tiny)
        if self.svm.n_features > 2000:  # A dense Hessian would take too much memory.
            extra = max(least - curvature.sum(), 0.0)
            svm = self.svm

            def product(u: Float) -> Float:
                rows = curvature * svm.scores(u)
                return np.append(svm.l2 * u[:-1] + svm.X.T @ rows, rows.sum() + extra * u[-1])

            operator = LinearOperator((gradient.size, gradient.size), product, dtype=np.float64)
            return np.asarray(cg(operator, -gradient, rtol=1e-3)[0])
        H = self.svm.hessian(curvature)
        H[-1, -1] = max(H[-1, -1], least)
        scale = 1 / np.sqrt(H.diagonal())
        H *= scale * scale[:, None]
        ridge = H.shape[0] * np.finfo(float).eps
        while True:
            H[np.diag_indices_from(H)] = 1.0 + ridge
            try:
                factor = cho_factor(H)
                break
            except LinAlgError:  # Rounding of nearly dependent columns makes H indefinite.
                ridge *= 100.0  # From a ridge of one on, H is dominated by its diagonal.
        return np.asarray(-scale * cho_solve(factor, scale * gradient))


Prediction: TypeAlias = Literal["deterministic", "randomized"]


class ConstrainedLinearSVC(ConstrainedLinearModel, LinearSVC):
    r"""Linear support vector machine trained under constraints on its decisions.

    A real :class:`sklearn.svm.LinearSVC`: ``constraints=[]`` is the parent's own fit. Under
    constraints the problem is that of Goh et al. (2016): with the ramp
    :math:`\sigma(z) = \max(0, \min(1, \tfrac12 + z))` in the place of a positive decision, with W
    the total weight of the rows (sample weights times class weights), and with scores z,

        min (weighted rate of errors) + ||coef||^2 / (C W)   s.t.   rate_j <= bound_j

    The rates are those that a classifier has in expectation, on the training rows, which decides
    positively with probability :math:`\sigma(z)`. Majorisation-minimisation keeps all constraints
    in every step, and bounds how far each step is from the optimum of its convex problem. Scores
    are half of the parent's, whose margin is one: with hinges in the place of ramps and without
    constraints, the problem is that of ``LinearSVC(loss="hinge")``, but for the intercept. That is
    not penalised, and `intercept_scaling` does not enter. Constraints must be linear in the
    decisions of two classes. See [1]_.

    Parameters
    ----------
    penalty, loss, dual, tol, C, multi_class, fit_intercept, intercept_scaling, class_weight
        Those of the parent. Under constraints the penalty is L2 and the intercept is fitted, `tol`
        is the progress relative to the objective at which the steps end, and `loss`, `dual`
        and `intercept_scaling` do not enter.
    verbose, random_state, max_iter
        Those of the parent. Under constraints `verbose` shows the progress, and the others do not
        enter.
    constraints : Constraint, str or sequence of these, default=None
        The constraints, such as ``[fnr() <= 0.05]`` (see
        :mod:`gbm_constrained.constraints.rates`). Without any, the parent's own ``fit`` is called.
    positive : label, default=None
        The positive class of all rates that name none; the last of two sorted labels by default.
    objective_loss : {"ramp", "hinge"}, default="ramp"
        What stands for errors in the objective.
    constraint_loss : {"ramp", "hinge"}, default="ramp"
        What stands for decisions in the constraints. The hinge is the convex relaxation, for
        comparison: one row of a large score can make it infeasible.
    prediction : {"deterministic", "randomized"}, default="deterministic"
        Whether ``predict`` decides by the sign of the score, or positively with probability
        :math:`\sigma(z)`. A score of zero is decided negatively, as by the parent, and positively
        in the paper.
    n_iterations : int, default=8
        Most steps. Decisions by the sign are best on held-out rows after four to ten of them, and
        randomised ones gain a little up to about twenty. A
        :class:`~sklearn.exceptions.ConvergenceWarning` says where the last step still lowered the
        objective by more than a hundredth.
    initial_model : linear classifier, default=None
        A fitted model with ``coef_`` and ``intercept_``, such as a deployed one, to start from.
        Its scores are multiplied by a factor with which they meet the constraints. A warning
        (GC309) says that there is none, and the fit starts without the model.
    chooser : {"maximum", "centroid"}, default="maximum"
        Search for the multipliers; see
        :class:`~gbm_constrained.solvers.cutting_plane.CuttingPlane`.

    Attributes
    ----------
    certificate_ : DataFrame
        The start and one row per step: ramp objective with penalty, largest ramp violation, lower
        and upper bound of the convex problem of the step, cuts, Newton steps and seconds. The
        first row has the factor of `initial_model`, and the last one the shift of the intercept
        with which the deterministic decisions meet the constraints, NaN where there is none.
    ramp_values_ : Series
        What each constraint bounds, with expected rates of randomised decisions on the training
        rows.
    constraint_report_, group_report_, history_, small_groups_ : DataFrame
        Those of :class:`~gbm_constrained.ConstrainedLogisticRegression`, of deterministic
        decisions.
    feasibility_ : Feasibility
        The verdict on each constraint as an object.
    multipliers_ : Series
        Multipliers of the last convex problem, by linear row of the constraints.
    n_iter_ : int
        Steps.
    stopping_message_ : str or None
        Why the fit ended early, by a callback or the time limit; None for a whole fit.

    References
    ----------
    .. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset
       Constraints", 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gbm_constrained import ConstrainedLinearSVC, fpr
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = ConstrainedLinearSVC(constraints=[fpr() <= 0.05]).fit(X / X.std(axis=0), y)
    >>> bool(clf.certificate_["violation"].max() <= 1e-9)
    True
    """

    certificate_: Any = FittedAttribute()
    ramp_values_: Any = FittedAttribute()

    @with_known_parameters
    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: Any = "auto",
        tol: float = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        constraints: Any = None,
        positive: Any = None,
        objective_loss: Loss = "ramp",
        constraint_loss: Loss = "ramp",
        prediction: Prediction = "deterministic",
        n_iterations: int = 8,
        initial_model: Any = None,
        chooser: Chooser = "maximum",
    ) -> None:
        set_parameters(self, locals())

    @with_known_parameters
    @functools.partial(document_parameters, shared=FIT_PARAMETERS)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        datasets: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        time_limit: float | None = None,
    ) -> ConstrainedLinearSVC:
        """Fit the classifier under its constraints.

        Parameters
        ----------
        datasets : dict from name to X or (X, y), default=None
            Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are
            not in the objective, and need no labels where a constraint asks for none.
        time_limit : float, default=None
            Seconds after which the steps end.

        Raises
        ------
        TypeError, ValueError
            If a parameter is not supported under constraints, or constraints, labels and weights
            do not fit together; before training starts.
        InfeasibleConstraintsError
            If no scores were found whose ramp rates meet the constraints.
        """
        constraints = check_constraints(self.constraints)
        if not constraints:
            return self._fit_without_constraints(X, y, sample_weight, time_limit)
        check_linear(constraints)
        refuse_priorities(constraints, "ramp rates all keep their bounds: leave with_priority out")
        check_task(constraints, predicts_numbers=False)
        check_straight(constraints, type(self).__name__, "use ConstrainedLogisticRegression")
        self._check_parameters()
        column_or_1d(y, warn=True)  # A column of labels is warned of, as by the parent.
        sample_weight = check_rows(X, y, sample_weight)
        fit = ConstrainedFit(
            SolverOptions(constraints, self.positive, method=ABPP(rounds_per_iteration=1)),
            FitArguments(X, y, sample_weight, sensitive_features, datasets),
            self._settings(sample_weight),
            progress=Progress("iteration") if self.verbose else None,
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        fit.measure()
        fit.data.alignment.warn()
        with saving.unchanged_on_error(self):
            self._solve(fit)
        return self

    def _solve(self, fit: ConstrainedFit) -> None:
        """Solve the ramp problem, and set the fitted attributes.

        The penalty is ``2 / (C W)``: scores are half of those of a margin of one.
        """
        accepted = {"accept_sparse": "csr", "dtype": np.float64}
        validate_data(self, fit.data.arguments.X, **accepted)  # Names and number of the features.
        rows = validate_data(self, fit.data.combined.X, reset=False, **accepted)
        classes, compiled = fit.data.classes, fit.problem.compiled
        problem = replace(
            rate_problem_of(fit.problem.cells, compiled, fit.problem.factors),
            objective_loss=self.objective_loss,
            constraint_loss=self.constraint_loss,
        )
        svm = WeightedSVM(rows, 2.0 / (self.C * fit.solver.lagrangian.total_weight))
        limit = fit.notifier.limit
        search = CuttingPlane(
            chooser=self.chooser, is_over=lambda: not limit.has_time_for(seconds=0.0)
        )
        method = MajorizationMinimization(self.n_iterations, self.tol, search=search)
        given = self._coefficients_to_start_from(classes)
        start, factor = find_start(problem, svm, method, given)
        steps = take_steps(fit, svm, method, method.iterate(problem, svm, start))
        coefficients = steps[-1].coefficients.copy()
        shift = find_intercept_shift(problem, svm.scores(coefficients))
        if shift is not None:  # Deterministic decisions meet the constraints there.
            coefficients[-1] += shift
        self.classes_, self.n_iter_ = classes, len(steps) - 1
        self.coef_, self.intercept_ = coefficients[None, :-1], coefficients[-1:]
        z = svm.scores(coefficients)
        model = FinalModel(self.n_iter_, np.zeros(1), ReportLayout(compiled, ()))
        model = describe_training_rows(fit, model, Scores(z, z))
        done = self.n_iter_ if fit.notifier.is_stopped else self.n_iterations
        feasibility = report(self, fit, model, done)
        names = ("objective", "violation", "lower", "upper", "n_cuts", "n_steps", "seconds")
        table = pd.DataFrame({name: [getattr(step, name) for step in steps] for name in names})
        table["factor"] = [factor, *[np.nan] * self.n_iter_]
        table["shift"] = [*[np.nan] * self.n_iter_, np.nan if shift is None else shift]
        self.certificate_ = table
        # What each constraint bounds, with expected rates of randomised decisions.
        shares = [problem.shares @ ramp(-z), problem.shares @ ramp(z)]
        no_loss = np.zeros(len(shares[0]))
        expected = CellStatistics(np.column_stack(shares), no_loss, no_loss)
        values = compiled.values(compiled.functionals(expected))
        self.ramp_values_ = pd.Series(values, compiled.names, name="ramp value")
        warn(fit, model, feasibility)
        if given is not None and np.isnan(factor):
            issue_warning(
                "initial_model is not what the fit started from: no multiple of its scores was "
                "found whose ramp rates meet the constraints. The fit started from a constant "
                "score or from the smallest violation: give a model that is nearer to the "
                "constraints, relax these, or leave initial_model out.",
                "GC309",
            )
        is_short = self.n_iter_ == self.n_iterations and not fit.notifier.is_stopped
        warn_of_last_step(steps, is_short=is_short)
        fit.notifier.warn()

    def predict(self, X: Any, *, random_state: Any = None) -> Any:
        """Predict classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        random_state : int, RandomState or None, default=None
            Source of the decisions of ``prediction="randomized"``; the parameter of the classifier
            by default. Deterministic decisions draw nothing, and are the same with any.
        """
        check_is_fitted(self)
        is_constrained = "certificate_" in vars(self)
        if not is_constrained or self.prediction == "deterministic":
            return super().predict(X)
        source = check_random_state(self.random_state if random_state is None else random_state)
        probability = ramp(self.decision_function(X))
        decided = source.random_sample(probability.size) < probability
        return self.classes_[decided.astype(np.intp)]

    def _check_parameters(self) -> None:
        """Refuse parameters that have no meaning under constraints, or wrong values."""
        check_choice("objective_loss", self.objective_loss, get_args(Loss))
        check_choice("constraint_loss", self.constraint_loss, get_args(Loss))
        check_choice("prediction", self.prediction, get_args(Prediction))
        check_choice("chooser", self.chooser, get_args(Chooser))
        check_integer("n_iterations", self.n_iterations, 1)
        if not (is_finite_number(self.tol) and self.tol >= 0):
            raise ValueError(f"tol must be a number of at least zero, got {self.tol!r}.")
        check_positive("C", self.C)
        if self.penalty != "l2":
            raise ValueError(
                f"penalty={self.penalty!r} is not supported under constraints: use penalty='l2'."
            )
        if not self.fit_intercept:
            raise ValueError(
                "fit_intercept=False is not supported under constraints, which a constant score "
                "may have to meet: use fit_intercept=True."
            )

    def _coefficients_to_start_from(self, classes: Any) -> Float | None:
        """Read the coefficients of the initial model, with the intercept last."""
        model = self.initial_model
        if model is None:
            return None
        if not hasattr(model, "coef_"):
            raise TypeError(
                f"initial_model={model!r} has no coef_: give a fitted linear classifier, or None."
            )
        # After ``sparsify`` the coefficients are a sparse array.
        given = cast(Any, model.coef_).toarray() if sparse.issparse(model.coef_) else model.coef_
        coef = np.ravel(given).astype(np.float64)
        if coef.size != self.n_features_in_:
            raise ValueError(
                f"initial_model has {coef.size} coefficients, and X has {self.n_features_in_} "
                f"features: give a model of two classes that was fitted on the same features."
            )
        if not np.array_equal(model.classes_, classes):
            raise ValueError(
                f"initial_model has the classes {model.classes_.tolist()}, and y has "
                f"{classes.tolist()}: give a model of the same classes."
            )
        return np.append(coef, np.ravel(model.intercept_))


def take_steps(
    fit: ConstrainedFit,
    svm: WeightedSVM,
    method: MajorizationMinimization,
    iterates: Iterable[MajorizationStep],
) -> list[MajorizationStep]:
    """Take steps until the progress is small, a callback ends them, or time is over.

    The history of the fit's solver gets a record of each, with the multipliers of the next one.
    """
    notifier, solver = fit.notifier, fit.solver
    steps: list[MajorizationStep] = []
    notifier.is_training_over(0)  # The call starts the clock of the time limit.
    try:
        for step in iterates:
            steps.append(step)
            if len(steps) > 1:
                point = solver.lagrangian.at(svm.scores(steps[-2].coefficients))
                solver.multipliers = step.multipliers
                solver.add_record(point.statistics())
                if notifier.is_training_over(len(steps) - 1) or notifier.is_stopped:
                    break
            if method.is_over(steps):
                break
    finally:
        fit.hide_progress()
    return steps


def warn_of_last_step(steps: Sequence[MajorizationStep], *, is_short: bool) -> None:
    """Warn of bounds that have not closed, and of steps that ended far from the optimum."""
    last, step = steps[-2:]
    if step.upper - step.lower > step.asked:
        issue_warning(
            f"The search for multipliers ended after {step.n_cuts} cuts, and the optimum of "
            f"the last step is known to {step.upper - step.lower:.1e}, where "
            f"{step.asked:.1e} was asked for: raise tol or time_limit, or relax constraints "
            f"that can hardly be met.",
            "GC304",
        )
    progress = last.objective - step.objective
    # Progress of a last step, relative to the objective, that leaves much to gain.
    if is_short and progress > 0.01 * abs(step.objective):
        issue_warning(
            f"The last of n_iterations={len(steps) - 1} steps still lowered the objective by "
            f"{progress:.2g} to {step.objective:.3g}: raise n_iterations.",
            "GC304",
        )
