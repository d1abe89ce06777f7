"""Documentation of the arguments that ``fit`` of both classifiers adds to the parent's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

FIT_ARGUMENTS_DOC = """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint or a metric may be taken over, with ``on=dataset(name)``. The
    objective leaves them out. Their X is prepared as the training X is, for no step of a
    ``Pipeline`` transforms it; their groups are columns of X.
sensitive_features_eval_set : list, default=None
    Sensitive features of each evaluation set. Groups without training rows take part in the
    values of an evaluation set, and a warning names them; ``measure_on="holdout"`` refuses an
    evaluation set with such groups.
groups : array-like of shape (n_samples,), default=None
    Rows of one group are kept together where rows are split to measure constraints. A splitter
    given as `cv` gets them.
validation : tuple (X, y) or (X, y, sensitive_features), default=None
    Rows that an objective which is only a function to call
    (:class:`~gbm_constrained.metrics.BlackBox`) is called with, and that choose the model. Weights
    of the rows may be a fourth element. By default a share `holdout_fraction` of the training rows
    is held out.
evaluation : tuple (X, y) or (X, y, sensitive_features), default=None
    Further rows for ``blackbox_report_``, which choose nothing. By default a third of the
    validation rows is kept for it.
time : str or array-like of shape (n_samples,), default=None
    With ``measure_on="forward"``, the time of each row: numbers, dates, an ordered categorical, or
    texts that sort as time does. It may be the name of a column of X or of `sensitive_features`.
constraint_callbacks : sequence of callable, default=None
    Called in each outer iteration with a
    :class:`~gbm_constrained.training.callbacks.ConstraintState`; when one returns True, training
    ends with that iteration. With a metric, called before each call of the oracle; when one
    returns True, the search for decisions ends with the best so far.
checkpoint : str or path-like, default=None
    File that the boosters of the folds are saved to after each pass, and with a metric each of
    them when it is trained. An interrupted fit that is
    called again with the same arguments resumes from there and gives the model of an
    uninterrupted fit. The file is removed when the fit is done.
time_limit : float, default=None
    Seconds after which measuring and training end, at the next outer iteration, and with a metric
    the search for decisions. Part of them is
    kept for training the model for as many rounds as were measured, and for the reports;
    ``stopping_message_`` and a warning say what was given up. A resumed fit has the whole limit
    again.

Raises
------
TypeError, ValueError
    If constraints, labels or weights do not fit together; before training starts."""

PREDICT_ARGUMENTS_DOC = """\
random_state : int, RandomState or None, default=None
    Source of each row's prefix with ``iterate="randomized"``, and of each row's rule in a mixture
    (``mixture_``). Any other classifier draws nothing, and decides the same with every value.
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns that make the groups of a black-box metric, where their offsets are kept beside the
    model. All other classifiers need none.

Raises
------
ValueError
    If offsets of groups are kept beside the model, and the columns are missing."""


def document_fit(method: Method) -> Method:
    """Complete the docstring of a ``fit``, which has ``{fit_arguments}`` in their place."""
    return complete_doc(method, "{fit_arguments}", FIT_ARGUMENTS_DOC)


def document_predict(method: Method) -> Method:
    """Complete the docstring of a ``predict``, which has ``{predict_arguments}``."""
    return complete_doc(method, "{predict_arguments}", PREDICT_ARGUMENTS_DOC)


def complete_doc(method: Method, placeholder: str, arguments: str) -> Method:
    """Put the documentation of arguments in the place of a placeholder in a docstring."""
    doc = inspect.cleandoc(method.__doc__ or "")  # Python 3.13 has removed the indentation already
    method.__doc__ = doc.replace(placeholder, arguments)
    return method
