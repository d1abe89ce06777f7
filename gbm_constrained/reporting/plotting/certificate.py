"""The certificate of a linear classifier with ramp rates, step by step."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
from gbm_constrained.data.validation import check_choice
from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    check_columns,
    document_plot,
    finish_axes,
    get_axes,
    matplotlib,
)

Scale: TypeAlias = Literal["steps", "cuts"]


def read_certificate(estimator: Any) -> pd.DataFrame:
    """Read the certificate of a fit with ramp rates."""
    certificate = getattr(estimator, "certificate_", None)
    if not isinstance(certificate, pd.DataFrame):
        raise TypeError(
            f"{type(estimator).__name__} has no certificate_: give a ConstrainedLinearSVC that "
            f"was fitted with constraints."
        )
    return certificate


class CertificateDisplay:
    """Ramp objective of each step, and the bounds of the optimum of its convex problem.

    A step solves a convex problem that lies above the ramp problem and touches it at the step
    before. Its cutting planes end with a lower and an upper bound of the optimum. The ramp
    objective after the step is at most the upper one.

    Parameters
    ----------
    certificate : DataFrame
        The ``certificate_`` of a :class:`~gbm_constrained.ConstrainedLinearSVC`: ``objective``,
        ``lower``, ``upper`` and ``n_cuts``.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    ax_: Any
    figure_: Any

    def __init__(self, certificate: pd.DataFrame) -> None:
        names = {name: name for name in ("objective", "lower", "upper", "n_cuts")}
        check_columns(certificate, **names)
        self.certificate = certificate

    @classmethod
    @document_plot
    def from_estimator(
        cls, estimator: Any, *, over: Scale = "steps", ax: Any = None
    ) -> CertificateDisplay:
        """Draw the certificate of a fitted classifier.

        Parameters
        ----------
        estimator : fitted ConstrainedLinearSVC
            One with constraints.
        over : {"steps", "cuts"}, default="steps"
            Whether a step is as far from the next as any other, or as far as it needed cuts.

        Raises
        ------
        TypeError
            If the estimator has no certificate.
        ValueError
            If `over` is neither of its two values.
        """
        return cls(read_certificate(estimator)).plot(ax, over=over)

    @document_plot
    def plot(self, ax: Any = None, *, over: Scale = "steps") -> CertificateDisplay:
        """Draw the objective and both bounds after each step.

        Parameters
        ----------
        over : {"steps", "cuts"}, default="steps"
            Whether a step is as far from the next as any other, or as far as it needed cuts.

        Returns
        -------
        CertificateDisplay
            The display itself.
        """
        check_choice("over", over, get_args(Scale))
        ax = get_axes(ax)
        x = self._positions(over)
        bounds = self.certificate[["lower", "upper"]].to_numpy(np.float64)
        is_bounded = np.isfinite(bounds).all(axis=1)  # The start has no bounds.
        middle = bounds[is_bounded].mean(axis=1)
        half = np.diff(bounds[is_bounded], axis=1).ravel() / 2
        ax.errorbar(
            x[is_bounded],
            middle,
            half,
            fmt="none",
            ecolor=COLOURS[1],
            elinewidth=1.5,
            capsize=5,
            capthick=1.5,
            label="bounds of the convex optimum",
        )
        objective = self.certificate["objective"].to_numpy(np.float64)
        ax.plot(x, objective, ".-", color=COLOURS[0], label="ramp objective")
        ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
        ax.legend(loc="upper right", frameon=False)
        finish_axes(ax, over, "objective with penalty")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _positions(self, over: Scale) -> Float:
        """Place the steps on the horizontal axis."""
        if over == "cuts":
            return self.certificate["n_cuts"].to_numpy(np.float64).cumsum()
        return np.arange(len(self.certificate), dtype=np.float64)
