"""XGBoost under a checkpoint: what is saved of a booster, and how its training goes on.

XGBoost keeps the scores of its matrices in single precision and adds the new trees to them. Scores
predicted anew from all trees are the same sums in the same order, so that trees are all that a
file needs to hold; the scores' hash is kept with them and checked.

Row and column samples come from random streams that cannot be read or set. Under a checkpoint they
are begun anew in each round: ``seed_per_iteration`` seeds the one of rows, and reading its own
configuration makes the booster forget the one of columns, which is then seeded from the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.training.checkpoint import Resumed, State
from gbm_constrained.training.fingerprint import digest
from gbm_constrained.training.fit import ConstrainedFit

# Callbacks of XGBoost's own, which turn no samples on.
OWN_CALLBACKS = (
    xgb.callback.EarlyStopping,
    xgb.callback.EvaluationMonitor,
    xgb.callback.LearningRateScheduler,
    xgb.callback.TrainingCheckPoint,
)
SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")


def refuse_checkpoint(booster: str | None, xgb_model: Any) -> None:
    """Refuse, before training, what cannot be resumed exactly."""
    if booster == "dart":
        raise ValueError(
            "checkpoint= cannot resume booster='dart', whose trees are dropped by a random stream "
            "that XGBoost does not let us restore: use 'gbtree', or leave checkpoint out."
        )
    if xgb_model is not None:
        raise ValueError(
            "checkpoint= resumes fits that begin with no trees, and xgb_model= gives some: leave "
            "one of them out."
        )


def may_sample(params: dict[str, Any], callbacks: Iterable[Any]) -> bool:
    """Whether trees may be grown on samples of the rows or columns, which callbacks may set."""
    own = all(type(callback) in OWN_CALLBACKS for callback in callbacks)
    return not own or any(params.get(name) not in (None, 1) for name in SAMPLING)


def renew_samples(booster: Any, rounds: int) -> None:
    """Begin the random streams of a round, so that they depend on nothing but its number."""
    if rounds:  # there is no configuration before
        booster.load_config(booster.save_config())


def state_of(booster: Any, margins: Sequence[Array]) -> State:
    """Give what is to be saved of a booster; `margins` are those of its matrices."""
    return {"forest": bytes(booster.save_raw("ubj")), "margins": [digest(m) for m in margins]}


def forest_of(state: State) -> xgb.Booster:
    """Make a booster of the saved trees, to continue.

    A booster that already has parameters would forget them with ``load_model``.
    """
    return xgb.Booster(model_file=bytearray(state["forest"]))


def check_margins(state: State, margins: Sequence[Array]) -> None:
    """Refuse to go on from scores that are not those that were saved.

    Raises
    ------
    RuntimeError
        If they are not.
    """
    if [digest(m) for m in margins] != state["margins"]:
        raise RuntimeError(
            "The saved trees predict other scores here than those that they were trained to, so "
            "that the fit cannot be resumed exactly: resume it on the same device and machine, or "
            "delete the checkpoint to start anew."
        )


class Resuming(Resumed, xgb.callback.TrainingCallback):
    """The parent's own fit, saved as it goes, and resumed.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, and its checkpoint if it has one.
    matrices : list
        Training rows and evaluation sets, once they are made.
    renews : bool
        Whether samples may be drawn, so that random streams are to be renewed.
    """

    def __init__(self, fit: ConstrainedFit, matrices: list[Any], renews: bool) -> None:
        Resumed.__init__(self, fit)
        xgb.callback.TrainingCallback.__init__(self)
        self.matrices, self.renews = matrices, renews
        self._passed = 0

    def forest(self, xgb_model: Any) -> Any:
        """Give the model for the parent's fit to continue: that of the file, or the user's."""
        return xgb_model if self.saved is None else forest_of(self.saved)

    def callbacks(self) -> list[xgb.callback.TrainingCallback]:
        """Callbacks that come before all others; none without a file."""
        return [] if self.file is None else [self]

    def before_training(self, model: Any) -> Any:
        """Have the booster pass through the rounds of the file."""
        if self.saved is not None:
            check_margins(self.saved, self._margins(model))
        update, eval_set, grown = model.update, model.eval_set, model.num_boosted_rounds

        def resumed_update(dtrain: Any, iteration: int, *args: Any, **kwargs: Any) -> None:
            if self.passes(iteration):
                self._passed = iteration + 1
                return
            if self.renews:
                renew_samples(model, iteration)
            update(dtrain, iteration, *args, **kwargs)

        def resumed_eval_set(evals: Any, iteration: int = 0, *args: Any, **kwargs: Any) -> str:
            if not self.passes(iteration):
                self.metrics.append(eval_set(evals, iteration, *args, **kwargs))
            return str(self.metrics[iteration])

        def resumed_rounds() -> int:  # early stopping counts from those before training
            return self._passed if self._passed < self.rounds else int(grown())

        model.update, model.eval_set = resumed_update, resumed_eval_set
        model.num_boosted_rounds = resumed_rounds
        return model

    def after_training(self, model: Any) -> Any:
        """Leave the booster as XGBoost made it."""
        for name in ("update", "eval_set", "num_boosted_rounds"):
            del model.__dict__[name]
        return model

    def save(self, model: Any, epoch: int) -> None:
        """Write the file after a round, if it is time to and there are more rounds."""
        if self.file is not None and epoch + 1 < self.fit.n_rounds:
            self.file.offer(lambda: self.state(epoch + 1, state_of(model, self._margins(model))))

    def _margins(self, model: Any) -> list[Array]:
        return [np.asarray(model.predict(m, output_margin=True)) for m in self.matrices]
