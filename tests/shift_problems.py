"""Random problems for searches of shifts, and what decisions give on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import settings
from hypothesis import strategies as st

from gbm_constrained.constraints.rates import (
    class_error,
    each,
    error_rate,
    fnr,
    fpr,
    gap,
    precision,
    ratio,
    recall,
    selection_rate,
    tpr,
)
from gbm_constrained.constraints.selectors import dataset
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

# Groups are small here.


EXACT = {"rtol": 0, "atol": 1e-12}


seeds = st.integers(0, 2**32 - 1)


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


class Problem:
    """Random rows whose scores tell something of their labels; some scores tie.

    Parameters
    ----------
    sizes : tuple of int
        Training rows, and rows of a data set "monitor" without labels.
    """

    def __init__(self, seed, n=60, k=2, weighted=True, n_monitor=0):
        rng = np.random.default_rng(seed)
        self.rng, self.k, self.n = rng, k, n + n_monitor
        y = rng.integers(0, k, self.n)
        y[: 2 * k] = [*range(k), *range(k)]
        if k == 2:
            margin = rng.normal(size=self.n) + y - 0.5 + rng.normal()
        else:
            margin = rng.normal(size=(self.n, k)) + np.eye(k)[y] + 0.5 * rng.normal(size=k)
        self.margin = margin
        self.margin[3::5] = np.round(self.margin[3::5])
        self.weight = rng.integers(1, 4, self.n).astype(float) if weighted else None
        self.group = rng.choice(list("abc"), self.n)
        self.group[:6] = list("aabbcc")
        self.y = y
        self.sizes = (n, n_monitor) if n_monitor else None
        if n_monitor:
            self.y[n:] = -1

    def compiled(self, rules):
        n = self.n if self.sizes is None else self.sizes[0]
        frame = pd.DataFrame({"group": self.group})
        sources = () if self.sizes is None else ("monitor",)
        rows = Rows(
            self.y, np.arange(self.k), self.weight, columns_of({"group": self.group[:n]}, n),
            (frame[:n], frame[n:]) if sources else (), sources, self.sizes,
        )  # fmt: skip
        return compile_constraints(rules, rows)

    def rules(self, many=False):
        """A few rules with random bounds, or a dozen that need several views."""
        rng, b = self.rng, self.rng.uniform(0.05, 0.6, 4)
        mask = rng.random(self.n if self.sizes is None else self.sizes[0]) < 0.6
        mask[:6] = True
        if self.k > 2:
            rules = [class_error(j) <= b[j] for j in range(3)]
            rules += [gap(selection_rate(1), by="group") <= b[3], error_rate(on=mask) <= 0.4]
        else:
            rules = [
                fnr() <= b[0], fpr() <= b[1], selection_rate() <= b[2], recall() >= 1 - b[3],
                precision() >= b[0], gap(tpr(), by="group") <= b[1],
                each(fpr(), by="group") <= b[2], ratio(selection_rate(), by="group") >= b[3],
                gap(selection_rate(), by="group", reference="a") <= b[0],
                fnr(on={"group": "a"}) + fpr(on=mask) <= b[1],
            ]  # fmt: skip
        chosen = rng.choice(len(rules), rng.integers(1, 4), replace=False)
        rules = [rules[i] for i in chosen]
        if self.sizes is not None:
            rules.append(selection_rate(1, on=dataset("monitor")) <= b[3])
        for _ in range(12 * many):
            mask = rng.random(self.n if self.sizes is None else self.sizes[0]) < 0.7
            mask[: 2 * self.k] = True
            rules.append(selection_rate(1, on=mask) <= rng.uniform(0.3, 0.7))
        return rules


def state_ratios(compiled, violations, functionals, n_rows):
    """Violations, (m,), of which those of ratios are the bound less the ratio.

    Where all groups have fewer decisions than 20 among `n_rows`, they are the bound.
    """
    found = violations.copy()
    for r, owner in enumerate(compiled.owner):
        constraint = compiled.constraints[owner]
        if str(constraint).startswith("ratio("):
            entries = compiled.R[[r]]
            (divisor,) = functionals[entries.indices[entries.data > 0.0]]
            span = compiled.spans[owner]
            is_few = np.nanmax(functionals[span]) * n_rows < 20.0 - 1e-9
            found[r] = constraint.bound if is_few else violations[r] / divisor
    return found


def measured(problem, cells, compiled, shift, bounds=None):
    """Error, largest violation and functionals of shifted scores, by the solver's own means."""
    lagrangian = Lagrangian(problem.y, cells, compiled, weight=problem.weight)
    statistics = lagrangian.at(problem.margin + shift).statistics()
    violations = compiled.violations(statistics)
    if bounds is not None:
        violations = compiled.rates(statistics) - bounds
    n_rows = problem.n if problem.sizes is None else problem.sizes[0]
    functionals = compiled.functionals(statistics)
    violations = state_ratios(compiled, violations, functionals, n_rows)
    excess = max(0.0, violations.max(initial=0.0))
    labelled = problem.y >= 0
    weight = cells.class_weight[problem.y] * labelled
    weight = weight if problem.weight is None else weight * problem.weight
    wrong = lagrangian.kernel.predict(problem.margin + shift) != problem.y
    return (
        weight @ wrong / weight.sum(),
        excess if excess > 1e-12 else 0.0,
        functionals,
    )
