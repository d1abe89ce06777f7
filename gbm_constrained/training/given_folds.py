"""Parameters that say which rows measure the constraints, and the folds that a user gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.given_folds import GivenFolds, check_splitter
from gbm_constrained.data.validation import check_choice, check_integer, check_share
from gbm_constrained.problem.linear_constraints import LinearConstraints

MeasureOn: TypeAlias = Literal["auto", "train", "holdout", "crossfit", "forward"]


def check_measurement(options: Any) -> None:
    """Check the parameters that say which rows measure the constraints.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.

    Raises
    ------
    TypeError, ValueError
        If one of them is out of its range, or some do not go together.
    """
    check_choice("measure_on", options.measure_on, get_args(MeasureOn))
    check_integer("n_folds", options.n_folds, 2)
    if options.holdout_fraction is not None:
        check_share("holdout_fraction", options.holdout_fraction)
    check_splitter(options.cv)
    if options.cv is not None and options.measure_on not in ("auto", "crossfit"):
        raise ValueError(
            f"cv={options.cv!r} makes the folds of measure_on='crossfit', and "
            f"measure_on={options.measure_on!r} has others: leave one of them out."
        )


def check_rows(options: Any, arguments: FitArguments) -> None:
    """Refuse rows that do not go with folds of a user.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters.
    arguments : FitArguments
        Arguments of ``fit`` about rows.

    Raises
    ------
    ValueError
        If ``time`` or ``measure_on="forward"`` is there without the other, or folds are to be
        made of rows that they cannot be made of.
    """
    is_forward = options.measure_on == "forward"
    if is_forward and arguments.time is None:
        raise ValueError(
            "measure_on='forward' trains on earlier and measures on later rows: give fit time=, a "
            "column of X or of sensitive_features or one value per row, or use "
            "measure_on='crossfit'."
        )
    if arguments.time is not None and not is_forward:
        raise ValueError(
            f"time= orders the rows of measure_on='forward', and measure_on="
            f"{options.measure_on!r} takes them in any order: use measure_on='forward', or leave "
            f"time out and give it to audit."
        )
    if options.cv is None and not is_forward:
        return
    name = "measure_on='forward'" if is_forward else f"cv={options.cv!r}"
    if not arguments.machine.communicator.holds_all_rows:
        raise ValueError(
            f"{name} divides the rows by what one machine knows of all of them, and they are on "
            f"several: train on one machine, or use measure_on='crossfit' without cv."
        )
    if arguments.datasets:
        raise ValueError(
            f"{name} divides the training rows, and datasets= {list(arguments.datasets)} has "
            f"others: use measure_on='crossfit' without cv, or append their rows with a column "
            f"that says which data set a row is of, and give on= that column."
        )
    if is_forward and arguments.groups is not None:
        raise ValueError(
            "measure_on='forward' divides the rows by time alone, and groups= keeps rows of one "
            "group together, which may have several times: leave groups out, or use cv= with a "
            "splitter of groups."
        )


def divide_as_given(data: FitData, options: Any) -> FitData:
    """Divide the rows into the folds of a user's splitter or of times, if there are any.

    Parameters
    ----------
    data : FitData
        The rows, without those that are set aside.
    options : SolverOptions
        The constructor's parameters.

    Returns
    -------
    FitData
        The rows with the folds, which have rows of all classes.
    """
    if options.measure_on == "forward":
        assert data.times is not None
        given = GivenFolds.of_times(data.times, options.n_folds)
    elif options.cv is not None:
        user = data.arguments
        given = GivenFolds.of_splitter(options.cv, user.X, user.y, user.groups, data.training)
    else:
        return data
    data.check_folds(given)
    return replace(data, given_folds=given)


def check_measurable(data: FitData, cells: Cells, compiled: LinearConstraints) -> None:
    """Refuse given folds that hold out no row of a group that a constraint is about."""
    given = data.given_folds
    if given is None:
        return
    is_lost = np.isnan(compiled.on(cells.take(given.held)).constant) & ~np.isnan(compiled.constant)
    lost = [
        str(constraint)
        for constraint, span in zip(compiled.constraints, compiled.spans, strict=True)
        if is_lost[span].any()
    ]
    if lost:
        raise ValueError(
            f"{given.name} holds out no row that a rate of {join_truncated(lost, 3)} is taken "
            f"over: hold out other rows, or leave out or merge groups that have none."
        )
