"""Documentation of the arguments that ``fit`` of the linear models have in common."""

from __future__ import annotations

from gbm_constrained._docstrings import Function, document_parameters

FIT_PARAMETERS = {
    "X": """\
X : array-like or sparse matrix of shape (n_samples, n_features)
    Features.""",
    "y": """\
y : array-like of shape (n_samples,)
    Labels.""",
    "sample_weight": """\
sample_weight : array-like of shape (n_samples,), default=None
    Weights, in the objective and in the rates.""",
    "sensitive_features": """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.""",
    "datasets": """\
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are not in
    the objective. Prepared as X is, for no step of a ``Pipeline`` transforms them; their groups
    are columns of X.""",
    "constraint_callbacks": """\
constraint_callbacks : sequence of callable, default=None
    Called in each iteration with a
    :class:`~gbm_constrained.training.callbacks.ConstraintState`; when one returns True, it is the
    last one.""",
    "time_limit": """\
time_limit : float, default=None
    Seconds after which the iterations end, and the best so far is returned, which
    ``stopping_message_`` and a warning say.""",
}
RAISES = """\
Raises
------
TypeError, ValueError
    If a parameter is not supported under constraints, or constraints, targets and weights do not
    fit together; before training starts."""


def document_fit(method: Function) -> Function:
    """Add the arguments that the method does not describe, and its errors."""
    return document_parameters(method, FIT_PARAMETERS, RAISES)
