"""Table of the codes of warnings and findings, and the function that warns.

``docs/warnings.md`` has a section for each code. Codes that begin with GC1 are about constraints,
with GC2 about data, with GC3 about training, and with GC4 about model files. A code keeps its
meaning, and a retired code is not used again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, TypeAlias

from sklearn.exceptions import ConvergenceWarning

from gbm_constrained._messages import find_stack_level
from gbm_constrained.exceptions import (
    CheckpointWarning,
    CostlyConstraintsWarning,
    FragileConstraintsWarning,
    InfeasibleConstraintsWarning,
    MissedConstraintsWarning,
    TimeLimitWarning,
)

Severity: TypeAlias = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """Kind of problem that a fit or an audit may find.

    The severity is "error" where a constraint or a guarantee is not met, "warning" where a report
    may mislead, and "note" where nothing needs to be done.
    """

    code: str  # Such as "GC101".
    severity: Severity
    category: type[Warning] | None  # Class of the warning; None where only reports show it.
    title: str
    remedy: str


_TABLE = (
    # Constraints.
    Finding("GC101", "error", InfeasibleConstraintsWarning,
            "Constraints cannot be met together",
            "Relax one of the bounds in conflict, or drop one of these constraints."),
    Finding("GC102", "error", InfeasibleConstraintsWarning,
            "Constraints are not certified",
            "Relax a bound, take a larger delta, as in `guarantee=HighProbability(delta=0.1)`, or "
            "give more rows to certify on."),
    Finding("GC103", "error", MissedConstraintsWarning,
            "A constraint is missed beyond sampling error",
            "Relax the bounds, or give more boosting rounds."),
    Finding("GC104", "error", MissedConstraintsWarning,
            "A violation costs more errors to mend than it is worth",
            "Relax the bounds, or give more boosting rounds."),
    Finding("GC105", "error", MissedConstraintsWarning,
            "The shift of the scores breaks a constraint on a mean loss",
            "Set probabilities='calibrated', or relax the bounds."),
    Finding("GC106", "error", InfeasibleConstraintsWarning,
            "No mixture of prefixes meets all constraints",
            "Relax the bounds, or set iterate='last'."),
    Finding("GC107", "error", InfeasibleConstraintsWarning,
            "No iterate of a linear model met the constraints",
            "Raise n_iterations or tol, or relax the bounds."),
    Finding("GC111", "note", None,
            "A constraint is missed within sampling error",
            "Give more rows to measure on, or tighten the bound to leave room."),
    Finding("GC112", "warning", FragileConstraintsWarning,
            "Too few rows to assess a constraint",
            "Give more rows, merge small groups, or relax the bounds."),
    Finding("GC113", "warning", FragileConstraintsWarning,
            "A constrained value is undefined",
            "Give rows that the rate is taken over."),
    Finding("GC114", "warning", FragileConstraintsWarning,
            "The boosters of the folds differ by more than chance",
            "Give more boosting rounds or a smaller learning_rate, or more rows for each tree."),
    Finding("GC115", "warning", FragileConstraintsWarning,
            "The model breaks a constraint on its own training rows",
            "Give more rows, or measure the model itself by guarantee= or an eval_set."),
    Finding("GC116", "warning", FragileConstraintsWarning,
            "The constraints leave a model hardly better than a constant one",
            "Relax the bounds."),
    Finding("GC117", "warning", CostlyConstraintsWarning,
            "The constraints cost more errors than they should",
            "Give more boosting rounds or a larger learning_rate, or relax the costliest bound."),
    Finding("GC118", "warning", UserWarning,
            "Constraints are measured on training rows",
            "Measure the model on held-out rows, by an evaluation set or by audit."),
    Finding("GC119", "note", None,
            "Training ended before all rounds",
            "Nothing, where a callback or early stopping was meant to end it."),
    Finding("GC120", "warning", UserWarning,
            "The search for the best decisions ended before its optimum was certain",
            "Use solver='auto', or 'columns'."),
    Finding("GC121", "warning", FragileConstraintsWarning,
            "A constraint drifts",
            "Train on recent rows again, and audit the model by time."),
    Finding("GC122", "warning", UserWarning,
            "Decisions use the group",
            "Make sure that this is allowed where the model is used, or set "
            "group_thresholds=False (group_shifts=False of a regressor)."),
    # Data.
    Finding("GC201", "warning", UserWarning,
            "Rows are taken by position although the indexes differ",
            "Give arguments without an index, or with equal ones."),
    Finding("GC202", "warning", UserWarning,
            "Values of a column look alike and are groups of their own",
            "Spell values alike that mean the same."),
    Finding("GC203", "warning", UserWarning,
            "A data set is unlike the training features",
            "Prepare the data set as the training rows were prepared."),
    Finding("GC204", "warning", UserWarning,
            "Groups have few rows",
            "Set small_groups='merge' or 'drop', or give more rows."),
    Finding("GC205", "warning", UserWarning,
            "An evaluation set has groups without training rows",
            "Add training rows of these groups, or leave the groups out."),
    Finding("GC206", "warning", UserWarning,
            "XGBoost cuts the names of categories",
            "Use XGBoost 3.4 or newer, or rename the categories."),
    Finding("GC207", "note", UserWarning,
            "The report holds for predictions with base_margin",
            "Give base_margin to predict as well."),
    Finding("GC208", "warning", UserWarning,
            "Rows have groups without an offset",
            "Give rows of these groups in training, or the group of each row."),
    # Training.
    Finding("GC301", "warning", CheckpointWarning,
            "A checkpoint could not be written",
            "Check the path and the space that is left on the disk."),
    Finding("GC302", "note", CheckpointWarning,
            "A checkpoint was written by another machine",
            "Nothing, unless the last digits of the model matter."),
    Finding("GC303", "warning", TimeLimitWarning,
            "The time limit ended a fit",
            "Give more time, or ask for fewer rounds."),
    Finding("GC304", "warning", ConvergenceWarning,
            "A linear model did not converge",
            "Raise n_iterations or tol."),
    Finding("GC305", "note", UserWarning,
            "Surrogates of a black-box metric move together",
            "Leave out one of the surrogates that are named, or raise sigma."),
    Finding("GC306", "warning", ConvergenceWarning,
            "A black-box metric does not respond to perturbations",
            "Start from a model on which the metric is not at its worst, or raise sigma."),
    Finding("GC307", "warning", UserWarning,
            "There are many surrogates for few validation rows",
            "Give fewer surrogates, or more validation rows."),
    Finding("GC308", "note", UserWarning,
            "Gradients are computed on the CPU beside a graphics card",
            "Install CuPy for your version of CUDA, or make the card CuPy's current one."),
    Finding("GC309", "warning", UserWarning,
            "A given model is not what a fit starts from",
            "Give a model whose multiple meets the constraints, or initial_model=None."),
    Finding("GC310", "warning", UserWarning,
            "A black-box metric is random",
            "Fix the function's random state, so that equal predictions have equal values."),
    # Model files.
    Finding("GC401", "warning", UserWarning,
            "A model file does not keep all parameters",
            "Give the parameters again after load_model."),
    Finding("GC402", "warning", UserWarning,
            "Another program changed a model file",
            "Load the file that this package saved, or fit again."),
)  # fmt: skip
FINDINGS = {finding.code: finding for finding in _TABLE}


def issue_warning(message: str, *codes: str) -> None:
    """Warn about the line of user code that called the package, with codes at the end."""
    (category,) = {FINDINGS[code].category for code in codes}
    assert category is not None
    issued = " ".join([message, *(f"[{code}]" for code in codes)]), category
    if (collected := _COLLECTED.get()) is not None:
        collected.append(issued)
    else:
        issue_again([issued])


Issued: TypeAlias = tuple[str, type[Warning]]
"""A warning: its text and its class."""

_COLLECTED: ContextVar[list[Issued] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_warnings() -> Iterator[list[Issued]]:
    """Collect the warnings of this thread instead of issuing them."""
    collected: list[Issued] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def issue_again(collected: Iterable[Issued]) -> None:
    """Issue warnings that were collected, maybe in another process."""
    for text, category in collected:
        warnings.warn(text, category, stacklevel=find_stack_level())
