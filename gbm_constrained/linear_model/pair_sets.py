"""Rows in the sets that constraints on pair rates compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.functionals import WeightedPairs
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.pair_statistics import pair_rate, pair_table
from gbm_constrained.solvers.pair_rules import POSITIVES, PairRule, PairTerm


@dataclass(frozen=True, eq=False)
class PairSample:
    """Rows, as pair rates need them.

    Parameters
    ----------
    X : (n, n_features). Features, dense or CSR.
    codes : (n, n_views). Cell of each row in each view of the cells, counted over all views.
    weight : (n,). Weight of each row.
    """

    X: Any
    codes: Codes
    weight: Float

    def __len__(self) -> int:
        return self.weight.size

    def take(self, index: Codes) -> PairSample:
        """Take some of the rows."""
        return PairSample(self.X[index], self.codes[index], self.weight[index])

    @classmethod
    def concatenate(cls, parts: Sequence[PairSample]) -> PairSample:
        """Put rows one after the other."""
        return cls(
            stack_rows([part.X for part in parts]),
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )


def stack_rows(parts: Sequence[Any]) -> Any:
    """Put tables of features, dense or CSR, one under the other."""
    return sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PairSets:
    """Constraints on pair rates, read as rules over sets of cells.

    Parameters
    ----------
    compiled : Linear rows of the constraints.
    cells : Cells of the rows that the constraints were compiled against.
    sets : (n_cells, n_sets), bool. Cells of each set: the positives, the negatives, then all sets
        that a pair rate compares.
    functionals : Pair rates that each functional adds up, next to its constant.
    """

    compiled: LinearConstraints
    cells: Cells
    sets: Bool
    functionals: tuple[tuple[PairTerm, ...], ...]

    @classmethod
    def of(cls, constraints: Sequence[Constraint], rows: Rows) -> PairSets:
        """Compile constraints against some rows.

        Parameters
        ----------
        constraints : sequence of Constraint
            Constraints on pair rates, whose classes are named.
        rows : Rows
            Rows of two classes, with at least one in each set that is compared.
        """
        cells, compiled = compile_constraints(constraints, rows)
        labels = cells.views[0].levels["label"]
        columns: dict[bytes, int] = {}
        for label in (1, 0):  # The order is that of POSITIVES and NEGATIVES.
            columns[np.flatnonzero(labels == label).tobytes()] = len(columns)
        functionals = []
        for terms in compiled.terms:
            pairs = [term for term in terms or () if isinstance(term, WeightedPairs)]
            for term in pairs:
                for side in term.bases:
                    columns.setdefault(side.tobytes(), len(columns))
            functionals.append(tuple(
                PairTerm(term.coefficient, *(columns[side.tobytes()] for side in term.bases))
                for term in pairs
            ))  # fmt: skip
        sets = np.zeros((len(cells), len(columns)), dtype=bool)
        for cells_of_set, j in columns.items():
            sets[np.frombuffer(cells_of_set, dtype=np.intp), j] = True
        return cls(compiled, cells, sets, tuple(functionals))

    def rules(self, slack: float = 0.0) -> list[PairRule]:
        """Write each linear row of the constraints as a rule.

        Parameters
        ----------
        slack : float, default=0
            Number that is added to all bounds.
        """
        compiled, rules = self.compiled, []
        for i in range(len(compiled)):
            row = compiled.R[[i]]
            terms = [
                PairTerm(float(factor * term.coefficient), term.upper, term.lower)
                for k, factor in zip(row.indices, row.data, strict=True)
                for term in self.functionals[k]
            ]
            rules.append(PairRule(tuple(terms), float(compiled.b[i]) + slack, compiled.rows[i]))
        return rules

    def sample(self, X: Any, rows: Rows) -> PairSample:
        """Find the cell of each row, among the cells of the rows of the compilation.

        Raises
        ------
        ValueError
            If a row has a value of a column that no row of the compilation has.
        """
        codes = np.empty((len(rows), len(self.cells.views)), dtype=np.intp)
        for j, view in enumerate(self.cells.views):
            shape = self.cells.shape_of([*view.levels])
            levels = []
            for key, size in zip(view.levels, shape, strict=True):
                attribute = rows.attribute(key)
                unknown = np.flatnonzero(attribute.codes >= size)
                if unknown.size:
                    value = attribute.levels[attribute.codes[unknown[0]]]
                    raise ValueError(
                        f"row {unknown[0]} has the value {value!r} of {key!r}, which no row of "
                        f"the first call had: give rows of all groups in the first call, or fit "
                        f"anew."
                    )
                levels.append(attribute.codes.astype(np.intp))
            codes[:, j] = np.ravel_multi_index(tuple(levels), shape) + view.cells.start
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        return PairSample(X, codes, weight)

    def inside(self, sample: PairSample) -> Bool:
        """Find the sets that each row is in; (n, n_sets)."""
        return np.asarray(self.sets[sample.codes].any(axis=1))

    def members(self, sample: PairSample) -> Float:
        """Compute the weight of each row in each set; (n, n_sets)."""
        return np.asarray(self.inside(sample) * sample.weight[:, None])

    def auc(self, sample: PairSample, scores: Float) -> float:
        """Compute the AUC of all rows, NaN without positives or negatives."""
        is_positive = self.inside(sample)[:, POSITIVES]
        return float(pair_table(scores, is_positive.astype(int), sample.weight, 2)[1, 0])

    def values(self, sample: PairSample, scores: Float) -> tuple[Float, Bool]:
        """Compute what each constraint bounds, exactly, NaN where undefined; (n_constraints,).

        Returns
        -------
        tuple of two arrays
            The values, and whether each constraint has all of its pair rates, those of each group.
        """
        # Rows of the same sets are one cell of the table of pairs.
        packed = np.packbits(self.inside(sample), axis=1)
        patterns, codes = np.unique(packed, axis=0, return_inverse=True)
        codes = codes.ravel()
        weight = np.bincount(codes, sample.weight, len(patterns))
        table = pair_table(scores, codes, sample.weight, len(patterns))
        of_sets = np.unpackbits(patterns, axis=1)[:, : self.sets.shape[1]].T * weight
        functionals = np.array(self.compiled.constant)
        for k, terms in enumerate(self.functionals):
            for s, upper, lower in terms:
                functionals[k] += s * pair_rate(table, of_sets[upper], of_sets[lower])
        is_known = [not np.isnan(functionals[span]).any() for span in self.compiled.spans]
        return self.compiled.values(functionals), np.array(is_known, dtype=bool)
