"""Lagrangians of random rows under constraints of every kind."""

import numpy as np
from scipy.special import log_softmax

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.kernels import END
from gbm_constrained.problem.lagrangian import Lagrangian

CLASS_COUNTS = [2, 3, 7]
DTYPES = [np.float32, np.float64]
CLIP = 1.5
N = 40
PROXIES = ("auto", "logistic", "sigmoid", "ramp")


def proxies_of(n_classes):
    """Proxies that there are for so many classes: the ramp is of one margin."""
    return PROXIES if n_classes == 2 else PROXIES[:-1]


CASES = [(n_classes, proxy) for n_classes in (2, 3) for proxy in proxies_of(n_classes)]
CASES.append((7, "auto"))


def build(
    y, constraints=(), n_classes=None, weight=None, factor=None, machine=None, columns=None,
    **options,
):  # fmt: skip
    """Lagrangian of rows; `factor` multiplies the objective of each class."""
    classes = np.arange(n_classes or y.max() + 1)
    on = {} if machine is None else {"machine": machine}
    rows = Rows(y, classes, weight, columns or {}, **on)
    cells, compiled = compile_constraints(constraints, rows)
    if factor is not None:
        weight = (1.0 if weight is None else weight) * factor[y]
    return Lagrangian(y, cells, compiled, weight=weight, **options)


def draw(n_classes, n=N, seed=0):
    """Labels with every class present, scores, weights (one is zero) and two masks."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    margin = 2 * rng.normal(size=n if n_classes == 2 else (n, n_classes))
    weight = rng.gamma(2.0, size=n)
    weight[-1] = 0.0
    masks = rng.random((2, n)) < 0.5
    masks[:, :n_classes] = True
    return y, margin, weight, masks


def kinds(n_classes, masks):
    """Constraint lists that between them use everything a constraint can be."""
    several = [
        gc.class_error(0) <= 0.1,
        gc.class_error(n_classes - 1, on=masks[1]) <= 0.1,
        gc.error_rate(on=masks[0]) <= 0.2,
        gc.log_loss(on=gc.label(1)) <= 0.5,
        gc.log_loss(on=masks[1]) <= 0.5,
    ]
    return {
        "none": [],
        "rate": [gc.class_error(1) <= 0.1],
        "error": [gc.error_rate() <= 0.1],
        "loss": [gc.log_loss(on=gc.label(0)) <= 0.2],
        "masked": [gc.error_rate(on=masks[0]) <= 0.1],
        "mixed": [
            gc.selection_rate(1) <= 0.1,
            gc.class_error(0) <= 0.1,
            gc.error_rate(on=masks[0]) - gc.error_rate(on=masks[1]) <= 0.1,
        ],
        "several": several + ([gc.fpr() <= 0.1, gc.fnr() <= 0.1] if n_classes == 2 else []),
    }


KINDS = list(kinds(2, np.eye(2, dtype=bool)))


def spread_over_views(masks):
    """Write masks as values of columns with so many others that each is in a view of its own."""
    rng = np.random.default_rng(20)
    others = rng.integers(1, 50, size=masks.shape)
    columns = {f"c{j}": np.where(mask, 0, others[j]) for j, mask in enumerate(masks)}
    return columns, [{name: 0} for name in columns]


def log_probability(margin):
    scores = np.stack([np.zeros_like(margin), margin], axis=1) if margin.ndim == 1 else margin
    return log_softmax(scores, axis=1)


def keep_off_the_kinks(y, margin):
    """Move rows whose loss is at the kink of the clipped loss, or that are at an end of a ramp."""
    loss = -log_probability(margin)[np.arange(y.size), y]
    margin[np.abs(loss - np.logaddexp(0, CLIP)) < 1e-2] = 0.1
    if margin.ndim == 1:
        margin[np.abs(np.abs(margin) - END) < 1e-2] = 0.1
    return margin


def state(lag, margin, multipliers, anchor):
    """Everything a solver reads at one point."""
    point = lag.at(margin)
    statistics = point.statistics()
    numbers = [
        lag.objective(statistics),
        point.value(multipliers, anchor, 0.4),
        lag.bregman(margin, anchor),
        lag.total_weight,
        *lag.constraints.rates(statistics),
        *lag.constants.lipschitz()[0],
    ]
    grad, hess = point.gradient(multipliers, anchor, 0.4)
    return np.array(numbers), grad.copy(), hess.copy()


def sixty_four(masks, n_classes):
    """64 constraints over few cells."""
    rng = np.random.default_rng(13)
    rates = [gc.class_error(k, on=mask) for k in range(n_classes) for mask in masks]
    return [rates[i % len(rates)] <= b for i, b in enumerate(rng.uniform(0.1, 0.9, 64))]
