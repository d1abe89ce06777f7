"""The figure of a certificate shows its numbers as they are."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawing import assert_line, labels

import gbm_constrained as gc
from gbm_constrained.plotting import CertificateDisplay


@pytest.fixture(scope="module")
def fit(data):
    X, y, *_ = data
    constraints = [gc.fnr() <= 0.3, gc.selection_rate() <= 0.4]
    return gc.ConstrainedLinearSVC(constraints=constraints, n_iterations=4).fit(X, y)


@pytest.mark.parametrize("over", ["steps", "cuts"])
def test_objective_and_bounds_are_those_of_the_certificate(fit, over):
    certificate = fit.certificate_
    axes = plt.subplots()[1]
    display = CertificateDisplay.from_estimator(fit, over=over, ax=axes)
    assert display.ax_ is axes
    assert display.figure_ is axes.figure
    x = np.arange(5) if over == "steps" else certificate["n_cuts"].cumsum().to_numpy()
    (objective,) = (line for line in axes.get_lines() if line.get_label() == "ramp objective")
    assert_line(objective, x, certificate["objective"])
    (bars,) = axes.collections
    drawn = np.array(bars.get_segments())
    np.testing.assert_array_equal(drawn[:, :, 0], np.column_stack([x[1:], x[1:]]))
    np.testing.assert_allclose(
        drawn[:, :, 1], certificate.loc[1:, ["lower", "upper"]], rtol=0, atol=1e-15
    )
    assert (drawn[:, 1, 1] >= objective.get_ydata()[1:] - 1e-12).all()
    assert axes.get_xlabel() == over
    assert labels(axes) == ["ramp objective", "bounds of the convex optimum"]


def test_cuts_place_later_steps_further_apart(fit):
    """The two axes differ, for steps need unequal numbers of cuts."""
    assert fit.certificate_["n_cuts"].nunique() > 2


def test_figures_of_their_own_are_not_shown(fit):
    before = plt.get_fignums()
    display = CertificateDisplay(fit.certificate_).plot()
    assert display.figure_.number in set(plt.get_fignums()) - set(before)


def test_refusals_name_the_parameter_and_the_remedy(fit, two_constraints):
    with pytest.raises(TypeError, match=r"no certificate_.*fitted with constraints"):
        CertificateDisplay.from_estimator(two_constraints)
    with pytest.raises(TypeError, match=r"ConstrainedLinearSVC has no certificate_"):
        CertificateDisplay.from_estimator(gc.ConstrainedLinearSVC())
    with pytest.raises(ValueError, match="over"):
        CertificateDisplay.from_estimator(fit, over="seconds")
    with pytest.raises(ValueError, match="'lower' is not a column"):
        CertificateDisplay(fit.certificate_.drop(columns="lower"))
