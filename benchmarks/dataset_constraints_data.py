"""Data sets, and the methods beside ours, of `benchmarks/dataset_constraints.py`."""

from __future__ import annotations

import io
import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gbm_constrained import ConstrainedLinearSVC, error_rate
from gbm_constrained.datasets import load_credit
from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.dataset_rates import MajorizationMinimization, RateProblem

FOLDER = Path(os.environ.get("GBM_CONSTRAINED_DATA", "../shared/data"))
MALE, EDUCATION = 72, 38  # Columns of a9a, of which the authors' code takes the second for sex.
N_DEPLOYED, N_LABELLED, N_UNLABELLED = 3000, 10_000, 10_000
HINGES = {"objective_loss": "hinge", "constraint_loss": "hinge"}


class Table(NamedTuple):
    """Features, and whether each row is positive."""

    X: Any
    y: NDArray[np.bool_]

    def take(self, rows: NDArray[np.intp]) -> Table:
        """Take some rows."""
        return Table(self.X[rows], self.y[rows])


class ChurnData(NamedTuple):
    """Rows of the deployed model, labelled and unlabelled rows of its successor, test rows."""

    deployed: Table
    labelled: Table
    unlabelled: Table
    test: Table


@cache
def load_a9a(name: str) -> Table:
    """Read a file of LIBSVM."""
    text = lzma.decompress((FOLDER / f"{name}.xz").read_bytes())
    X, y = load_svmlight_file(io.BytesIO(text), n_features=123)
    return Table(sparse.csr_array(X), y > 0)


def is_in(table: Table, column: int) -> NDArray[np.bool_]:
    """Tell the rows in which a binary column of a9a is set."""
    return np.asarray(table.X[:, [column]].toarray().ravel() == 1)


@cache
def load_default() -> Table:
    """Read Default of credit card clients, with codes as columns of zeros and ones."""
    frame = pd.read_parquet(FOLDER / "default_credit.parquet")
    codes = ["SEX", "EDUCATION", "MARRIAGE", *frame.filter(regex=r"^PAY_\d")]
    y = frame.pop("default payment").to_numpy() == 1
    amounts = [column for column in frame if column not in codes]
    prepare = make_column_transformer(
        (OneHotEncoder(min_frequency=30, handle_unknown="infrequent_if_exist"), codes),
        (StandardScaler(), amounts),
        sparse_threshold=1.0,
    )
    return Table(sparse.csr_array(prepare.fit_transform(frame)), y)


def split_churn(data: str, seed: int) -> ChurnData:
    """Draw the rows of a deployed model and of its successor; a9a has test rows of its own."""
    table = load_a9a("a9a") if data == "a9a" else load_default()
    rows = np.random.default_rng(seed).permutation(table.y.size)
    ends = np.cumsum([N_DEPLOYED, N_LABELLED, N_UNLABELLED])
    parts = [table.take(part) for part in np.split(rows, ends)]
    return ChurnData(*parts[:3], load_a9a("a9a.t") if data == "a9a" else parts[3])


def split_training(seed: int) -> tuple[Table, Table]:
    """Split the training rows of a9a into two thirds and one, without any test rows."""
    table = load_a9a("a9a")
    rows = np.random.default_rng(seed).permutation(table.y.size)
    parts = np.split(rows, [2 * rows.size // 3])
    return table.take(parts[0]), table.take(parts[1])


def split_credit(seed: int) -> tuple[Table, Table]:
    """Split the bundled sample of Credit, standardised by its training rows, into 70 and 30 %."""
    credit = load_credit()
    y = credit.target.to_numpy() == 1
    parts = train_test_split(
        credit.data.to_numpy(), y, test_size=0.3, random_state=seed, stratify=y
    )
    scale = StandardScaler().fit(parts[0])
    return Table(scale.transform(parts[0]), parts[2]), Table(scale.transform(parts[1]), parts[3])


def fit_plain(table: Table, **options: Any) -> ConstrainedLinearSVC:
    """Fit a support vector machine with a free intercept, under a rule that all models meet."""
    model = ConstrainedLinearSVC(constraints=[error_rate() <= 1.0], **HINGES, **options)
    return model.fit(table.X, table.y)


def find_shift(scores: NDArray[np.float64], share: float, *, at_least: bool) -> float:
    """Find the shift with which at least, or at most, a share of scores is above zero."""
    ordered = np.sort(scores)[::-1]
    if at_least:
        return float(1e-9 - ordered[int(np.ceil(share * ordered.size - 1e-9)) - 1])
    return float(-ordered[int(np.floor(share * ordered.size + 1e-9))])


def fit_zafar_hinge(
    table: Table, in_first: NDArray[np.bool_], multiplier: float
) -> NDArray[np.float64]:
    r"""Fit the covariance constraint of Zafar et al., appendix D of Goh et al., by hinges.

    With :math:`\bar x` the difference of the mean features of the two groups, the constraint is
    :math:`\langle w, \bar x \rangle \le c`, a hinge of the data set of one row :math:`\bar x`.
    That row has no intercept. Therefore the intercept is a feature that is next to unpenalised,
    and the free one is held at -1/2 by a row of zeros. Multipliers stand for bounds c, which fall
    from that of no constraint to zero, and below zero to overcorrected covariances.

    Parameters
    ----------
    table : Table
        Training rows.
    in_first : ndarray of shape (n_samples,)
        Which of them are in the first group.
    multiplier : float
        Multiplier of the constraint.

    Returns
    -------
    ndarray of shape (n_features + 1,)
        Coefficients with the intercept last.
    """
    X, y, n = table.X, table.y, table.y.size
    constant, scale = sparse.csr_array(np.full((n, 1), 30.0)), 0.02
    one_row = sparse.csr_array(np.append(-scale * _difference(X, in_first), 0.0)[None])
    zeros = sparse.csr_array(one_row.shape)
    rows = sparse.csr_array(sparse.vstack([sparse.hstack([X, constant]), zeros, one_row]))
    price = multiplier / scale  # The hinge is linear where |<w, x>| < 1 / scale.
    positive = np.concatenate([~y / n, [4.0 + 2.0 * price, 0.0]])
    negative = np.concatenate([y / n, [2.0 + price, price]])
    found = WeightedSVM(rows, 2 / n).minimize(positive, negative, 1e-5).coefficients
    return np.append(found[:-2], 30.0 * found[-2] + found[-1])


def fit_zafar_ramp(
    table: Table, in_first: NDArray[np.bool_], strength: float
) -> NDArray[np.float64]:
    r"""Fit the ramp analogue of the covariance constraint, with ramps in the objective as well.

    A bound of the ramp of :math:`\bar x` on both sides by 1/2 + c is
    :math:`|\langle w, \bar x \rangle| \le c`, for c below 1/2. It has the same stationary
    points as a penalty :math:`\tfrac{\mu}{2} \langle w, \bar x \rangle^2`, which is that of
    features whose part along :math:`\bar x` is shrunk.

    Parameters
    ----------
    table : Table
        Training rows.
    in_first : ndarray of shape (n_samples,)
        Which of them are in the first group.
    strength : float
        Share that is taken off the part along the difference. With zero there is no constraint,
        and with one c is zero.

    Returns
    -------
    ndarray of shape (n_features + 1,)
        Coefficients with the intercept last.
    """
    X, y = table.X.toarray(), table.y
    difference = _difference(table.X, in_first)
    unit = difference / np.linalg.norm(difference)
    shrunk = X - np.outer(X @ unit, strength * unit)
    costs = np.zeros((1, 2, 2))
    costs[0, 0, 0] = costs[0, 1, 1] = 1.0
    shares = sparse.csr_array(np.vstack([y, ~y]) / y.size)
    problem, model = (
        RateProblem.of(shares, costs, np.zeros(0), ()),
        WeightedSVM(shrunk, 2 / y.size),
    )
    steps = MajorizationMinimization().solve(problem, model, np.zeros(X.shape[1] + 1))
    found = steps[-1].coefficients.copy()
    found[:-1] -= strength * (found[:-1] @ unit) * unit
    return found


def _difference(X: Any, in_first: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.asarray(X[in_first].mean(axis=0) - X[~in_first].mean(axis=0))
