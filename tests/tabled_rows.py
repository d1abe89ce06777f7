"""Random rows that are dealt to machines, and what a search of all of them finds."""

from __future__ import annotations

import numpy as np
from machines import run_on_machines
from shift_problems import Problem

from gbm_constrained.constraints.rates import (
    class_error,
    each,
    error_rate,
    fnr,
    fpr,
    gap,
    precision,
    ratio,
    selection_rate,
    tpr,
)
from gbm_constrained.data.exact_sums import Machine
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints

LEVELS = 33  # Of two columns that are too many for one view together.


class Dealt(Problem):
    """A random problem whose rows may be on several machines."""

    def __init__(self, seed, n=300, k=2, weighted=True):
        super().__init__(seed, n, k, weighted)
        rng = np.random.default_rng([seed, 1])
        self.columns = {
            "group": self.group,
            "u": np.append(np.arange(LEVELS), rng.integers(0, LEVELS, n - LEVELS)),
            "v": np.append(np.arange(LEVELS)[::-1], rng.integers(0, LEVELS, n - LEVELS)),
        }
        if weighted and seed % 2:
            self.weight = rng.gamma(1.0, size=n)
        if seed % 3 == 0:
            self.margin = self.margin.astype(np.float32)

    def rules(self, many=False):
        rng, b = self.rng, self.rng.uniform(0.05, 0.6, 4)
        if self.k > 2:
            rules = [class_error(j) <= b[j] for j in range(3)]
            rules += [gap(selection_rate(1), by="group") <= b[3] / 5, error_rate() <= 0.4]
        else:
            rules = [
                fnr() <= b[0], fpr() <= b[1], selection_rate() <= b[2], precision() >= b[0],
                gap(tpr(), by="group") <= b[1] / 4, each(fpr(), by="group") <= b[2],
                ratio(selection_rate(), by="group") >= b[3],
                gap(selection_rate(), by="group", reference="a") <= b[0] / 4,
                fnr(on={"group": "a"}) + fpr() <= b[1],
            ]  # fmt: skip
        chosen = rng.choice(len(rules), rng.integers(1, 4), replace=False)
        rules = [rules[i] for i in chosen]
        if many:
            rules += [selection_rate(on={"u": 3}) <= 0.8, selection_rate(on={"v": 5}) >= 0.1]
        return rules

    def compiled(self, rules, index=None, communicator=None):
        """Cells and constraints of the rows of one machine, or of all."""
        index = np.arange(self.n) if index is None else index
        machine = Machine() if communicator is None else Machine(communicator, index)
        weight = None if self.weight is None else self.weight[index]
        columns = {name: values[index] for name, values in self.columns.items()}
        rows = Rows(self.y[index], np.arange(self.k), weight, columns=columns, machine=machine)
        return compile_constraints(rules, rows)

    def deals(self):
        """Ways to deal the rows: to one machine, two, and four of which one has no rows.

        Of the four, another one has the rows of a single group.
        """
        four = self.rng.choice([0, 2], self.n)
        four[self.group == "a"] = 3
        return [np.zeros(self.n, np.intp), self.rng.integers(0, 2, self.n), four]

    def on_machines(self, work):
        """Results of ``work(communicator, positions of its rows)`` on machines, by deal.

        All machines add and gather equally often, and tables of the same shape.
        """
        results = []
        for deal, n in zip(self.deals(), (1, 2, 4), strict=True):

            def run(communicator, deal=deal):
                index = self.rng.permutation(np.flatnonzero(deal == communicator.rank))
                found = work(communicator, index)
                return found, communicator.shapes, communicator.n_gathered

            of_ranks = run_on_machines(run, n)
            for _, shapes, n_gathered in of_ranks:
                assert shapes == of_ranks[0][1]
                assert n_gathered == of_ranks[0][2]
            results.append([found for found, _, _ in of_ranks])
        return results
