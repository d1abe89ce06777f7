"""The bounds of the ramp in the benchmark of proxies are those of the paper's Algorithm 1."""

import numpy as np
import proxies as benchmark

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.kernels import END
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.solvers import ABPP

RULE = gc.gap(gc.selection_rate(), by="g", min_group_size=1) <= 0.05


def gradients(method, weight, margins):
    """Gradient and Hessian of a solver's rounds at given scores, with a fixed multiplier."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(0, 2, (2, 80))
    rows = Rows(y, np.array([0, 1]), weight, {"g": group})
    cells, constraints = compile_constraints([RULE], rows)
    lagrangian = Lagrangian(y, cells, constraints, weight=weight, proxy="ramp")
    solver = method.begin(
        lagrangian,
        initial_multipliers=np.array([0.0, 1.5]),
        fixed=np.ones(2, dtype=bool),
        lazy=True,
    )
    return group, [tuple(x.copy() for x in solver(margin)) for margin in margins]


def test_between_renewals_gradients_are_those_of_the_paper_s_bounds():
    """Constant where the ramp's upper end freed a row at the renewal, and a hinge elsewhere."""
    rng = np.random.default_rng(1)
    weight = rng.gamma(2.0, size=80)
    reference, margin = margins = 3 * rng.normal(size=(2, 80))
    bounds, ramp = benchmark.Bounds(proxy="ramp", renewed=2), ABPP(proxy="ramp")
    group, of_bounds = gradients(bounds, weight, margins)
    _, of_ramp = gradients(ramp, weight, margins)
    np.testing.assert_array_equal(of_bounds[0], of_ramp[0])
    more = np.subtract(of_bounds[1], of_ramp[1])
    sign = np.where(group == 1, 1, -1)
    of_group = np.array([weight[group == g].sum() for g in (0, 1)])[group]
    cost = sign * 1.5 * weight * weight.sum() / of_group
    freed, beyond = sign * reference >= END, sign * margin >= END
    inside = np.abs(margin) < END
    expected = (~freed & beyond) * cost / 4 - (freed & inside) * cost / 4
    assert min((~freed & beyond).sum(), (freed & inside).sum()) > 2
    np.testing.assert_allclose(more[0], expected, atol=1e-12)
    assert (more[1][~freed & beyond] > 0).all()
    assert (more[1][freed & ~beyond] < 0).all()
    assert not more[1][freed == beyond].any()


def test_bounds_that_are_renewed_in_every_round_are_the_ramp():
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    X[:, 1] = group
    y = (X[:, 0] + 2 * group + rng.normal(size=400) > 0.5).astype(int)
    scores = []
    for solver in (benchmark.Bounds(proxy="ramp", renewed=1), ABPP(proxy="ramp")):
        clf = gc.ConstrainedXGBClassifier(
            constraints=[RULE],
            solver=solver,
            n_estimators=15,
            max_depth=2,
            measure_on=gc.CrossFit(2),
            n_jobs=1,
        )
        clf.fit(X, y, sensitive_features={"g": group})
        assert clf.multipliers_.max() > 0
        scores.append(clf.predict(X, output_margin=True))
    np.testing.assert_array_equal(*scores)
