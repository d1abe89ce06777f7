"""Steps of majorisation and minimisation on the rows of a constrained fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.base import Record
from gbm_constrained.solvers.compiled_rates import rate_problem_of
from gbm_constrained.solvers.dataset_rates import ramp
from gbm_constrained.solvers.hard_rates import find_intercept_shift
from gbm_constrained.solvers.majorization_minimization import MajorizationMinimization, Step
from gbm_constrained.solvers.ramp_starts import Start, find_start
from gbm_constrained.training.fit import ConstrainedFit

FAR = 0.01  # Progress of a last step, relative to the objective, that leaves much to gain.


class RampFit:
    """The ramp problem of a constrained fit, and its solution.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, whose solver keeps history and multipliers.
    X : ndarray or CSR array of shape (n_samples, n_features), float64
        Features of all rows, those of further data sets with them.
    C : float
        Inverse penalty of scikit-learn's support vector machines.

    Attributes
    ----------
    problem : RateProblem
        Objective and constraints.
    model : WeightedSVM
        Scores of the rows. The penalty is ``2 / (C W)``: scores are half of those of a margin of
        one.
    """

    def __init__(self, fit: ConstrainedFit, X: Any, C: float) -> None:
        self.fit = fit
        factor = fit.problem.factors.both
        self.problem = rate_problem_of(fit.problem.cells, fit.problem.compiled, factor)
        self.model = WeightedSVM(X, 2.0 / (C * fit.solver.lagrangian.total_weight))

    def solve(self, method: MajorizationMinimization, given: Float | None) -> list[Step]:
        """Take steps until the progress is small, a callback ends them, or time is over.

        `given` are coefficients to start from.
        """
        self.method, self.is_given = method, given is not None
        self.start: Start = find_start(self.problem, self.model, method, given)
        notifier = self.fit.notifier
        steps: list[Step] = []
        notifier.is_training_over(0)  # The call starts the clock of the time limit.
        try:
            for step in method.iterate(self.problem, self.model, self.start.coefficients):
                steps.append(step)
                if len(steps) > 1:
                    self._record(len(steps) - 2, steps[-2], step.multipliers)
                    if notifier.is_training_over(len(steps) - 1) or notifier.is_stopped:
                        break
                if method.is_over(steps):
                    break
        finally:
            self.fit.run.hide_progress()
        return steps

    def warn(self, steps: Sequence[Step]) -> None:
        """Warn of bounds that have not closed, and of steps that ended far from the last."""
        if self.is_given and np.isnan(self.start.factor):
            issue_warning(
                "initial_model is not what the fit started from: no multiple of its scores was "
                "found whose ramp rates meet the constraints. The fit started from a constant "
                "score or from the smallest violation: give a model that is nearer to the "
                "constraints, relax these, or leave initial_model out.",
                "GC309",
            )
        last, step = steps[-2:]
        if step.upper - step.lower > step.asked:
            issue_warning(
                f"The search for multipliers ended after {step.n_cuts} cuts, and the optimum of "
                f"the last step is known to {step.upper - step.lower:.1e}, where "
                f"{step.asked:.1e} was asked for: raise tol or time_limit, or relax constraints "
                f"that can hardly be met.",
                "GC304",
            )
        progress, n = last.objective - step.objective, len(steps) - 1
        is_short = n == self.method.max_iter and not self.fit.notifier.is_stopped
        if is_short and progress > FAR * abs(step.objective):
            issue_warning(
                f"The last of n_iterations={n} steps still lowered the objective by "
                f"{progress:.2g} to {step.objective:.3g}: raise n_iterations.",
                "GC304",
            )

    def _record(self, iteration: int, step: Step, multipliers: Float) -> None:
        """Add a step to the history of the solver, with the multipliers of the next one."""
        solver = self.fit.solver
        lagrangian = solver.lagrangian
        statistics = lagrangian.at(self.model.scores(step.coefficients)).statistics()
        functionals = lagrangian.constraints.functionals(statistics)
        record = Record(
            iteration=iteration,
            rounds=iteration,
            objective=lagrangian.objective(statistics),
            error=lagrangian.error(statistics),
            rates=lagrangian.constraints.rows_of(functionals),
            functionals=functionals,
            bounds=lagrangian.constraints.b,
            multipliers=multipliers,
            bregman=np.nan,
            seconds=solver.elapsed,
        )
        solver.multipliers = multipliers
        solver.history.append(record)
        if solver.callback is not None:
            solver.callback(record)

    def shift_to_meet_decisions(self, coefficients: Float) -> tuple[Float, float]:
        """Move the intercept to where decisions meet the constraints; NaN if that is nowhere."""
        z = self.model.scores(coefficients)
        shift = find_intercept_shift(self.problem, z, self.method.losses)
        if shift is None:
            return coefficients, np.nan
        moved = coefficients.copy()
        moved[-1] += shift
        return moved, shift

    def ramp_values(self, coefficients: Float) -> pd.Series[float]:
        """Compute what each constraint bounds, with expected rates of randomised decisions."""
        z = self.model.scores(coefficients)
        shares = [self.problem.shares @ ramp(-z), self.problem.shares @ ramp(z)]
        no_loss = np.zeros(len(shares[0]))
        compiled = self.fit.problem.compiled
        expected = CellStatistics(np.column_stack(shares), no_loss, no_loss)
        values = compiled.values(compiled.functionals(expected))
        return pd.Series(values, compiled.names, name="ramp value")

    def describe(self, steps: Sequence[Step], shift: float) -> pd.DataFrame:
        """Make the table of the certificate."""
        names = ("objective", "violation", "lower", "upper", "n_cuts", "n_steps", "seconds")
        table = pd.DataFrame({name: [getattr(step, name) for step in steps] for name in names})
        table["factor"] = np.nan
        table.loc[0, "factor"] = self.start.factor
        table["shift"] = np.nan
        table.loc[len(steps) - 1, "shift"] = shift
        return table
