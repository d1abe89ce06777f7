"""LightGBM under a checkpoint: what is saved of a booster, and how its training goes on.

A booster in memory cannot be restored, but an equal one can be made: one that starts from the
saved scores of all rows (bins depend on the data alone) and has the saved trees put before its
own. It grows the same trees, bit by bit, wherever there is no hidden state.

What is drawn at random is hidden state: LightGBM begins its streams once, and they cannot be read
or set. Under a checkpoint they are therefore begun anew in each round, from a seed that is mixed
of the user's and of the round's number. What cannot be treated so is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lightgbm as lgb
import numpy as np
from lightgbm.basic import _LIB, _safe_call

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.model_text import parameters_of
from gbm_constrained.training.checkpoint import Resumed, State
from gbm_constrained.training.fit import ConstrainedFit

# A bag is drawn anew when its fraction changes: by so little that it holds as many rows.
NUDGE = 1e-9
NEVER = 2**30  # Rounds after which LightGBM would draw a bag by itself.


def refuse_init_model(init_model: Any) -> None:
    """Refuse, before training, to resume a fit that continues another model."""
    if init_model is not None:
        raise ValueError(
            "checkpoint= resumes fits that begin with no trees, and init_model= gives some: leave "
            "one of them out."
        )


class Renewal:
    """The random streams of a booster, begun anew in each round.

    What is drawn may change as it trains: a callback can reset any parameter. Whatever differs
    from what the last renewal left is the user's.

    Parameters
    ----------
    booster : Booster
        One that is untrained.

    Attributes
    ----------
    params : dict
        Parameters that the user gave it, as they were given.
    values : dict from str to str
        All of its parameters without those of the renewals, as they stand in a model's text.

    Raises
    ------
    ValueError
        If the booster keeps what cannot be restored.
    """

    def __init__(self, booster: lgb.Booster) -> None:
        self.booster = booster
        self._look()
        self.params, self.values = dict(self._left_params), dict(self._left_values)
        self._bag: tuple[int, int, float] | None = None
        self._nudges = 1
        _refuse_unrestorable(self.values)

    def renew(self, rounds: int) -> None:
        """Begin the streams of a round, so that they depend on nothing but its number."""
        self.follow()
        given = self.values
        fraction = float(given["bagging_fraction"])
        every = int(given["bagging_freq"]) if fraction < 1.0 else 0
        bag = (rounds // every, every, fraction) if every > 0 else None
        params: dict[str, Any] = {}
        if bag is not None:
            if bag != self._bag:
                self._nudges = 3 - self._nudges  # never none, as a new booster has it
            params["bagging_seed"] = _mixed(given, "bagging_seed", rounds // every, every)
            params["bagging_fraction"] = min(fraction * (1.0 + NUDGE * self._nudges), 1.0)
            params["bagging_freq"] = 1 if every == 1 else NEVER
        self._bag = bag
        if min(float(given["feature_fraction"]), float(given["feature_fraction_bynode"])) < 1.0:
            params["feature_fraction_seed"] = _mixed(given, "feature_fraction_seed", rounds)
        if given["extra_trees"] == "1":
            params["extra_seed"] = _mixed(given, "extra_seed", rounds)
        if params:
            self.booster.reset_parameter(params)
            self._look()

    def follow(self) -> None:
        """Take over what callbacks have changed since the last renewal."""
        if self.booster.params == self._left_params:
            return
        params, values = self._left_params, self._left_values
        self._look()
        self.params.update(_changed(params, self._left_params))
        self.values.update(_changed(values, self._left_values))
        _refuse_unrestorable(self.values)

    def _look(self) -> None:
        self._left_params = dict(self.booster.params)
        self._left_values = parameters_of(self.booster.model_to_string(num_iteration=1))

    def undone(self, text: str) -> str:
        """Model text with the parameters that the user gave."""
        for name, value in _changed(self._left_values, self.values).items():
            left = self._left_values[name]
            text = text.replace(f"\n[{name}: {left}]\n", f"\n[{name}: {value}]\n", 1)
        return text


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in now.items() if n not in before or before[n] != v}


def _refuse_unrestorable(given: Mapping[str, str]) -> None:
    refused = [
        why for values, why in UNRESTORABLE if all(given[n] == v for n, v in values.items())
    ]
    refused += [f"{name} remembers which features were used" for name in CEGB if given[name]]
    if refused:
        raise ValueError(
            f"checkpoint= cannot resume this fit: {'; '.join(refused)}, and LightGBM does not "
            f"let that be restored. Leave it out, or leave checkpoint out."
        )


UNRESTORABLE = (
    ({"boosting": "dart"}, "boosting_type='dart' changes old trees and drops them at random"),
    ({"data_sample_strategy": "goss"}, "'goss' counts the rounds of its warm-up"),
    (
        {"use_quantized_grad": "1", "stochastic_rounding": "1"},
        "use_quantized_grad rounds at random unless stochastic_rounding is False",
    ),
)
CEGB = ("cegb_penalty_feature_lazy", "cegb_penalty_feature_coupled")


def _mixed(given: Mapping[str, str], name: str, *numbers: int) -> int:
    """Seed of a round: neighbouring ones would make neighbouring streams in LightGBM."""
    return int(np.random.SeedSequence([abs(int(given[name])), *numbers]).generate_state(1)[0]) >> 1


def merge_forest(booster: lgb.Booster, text: str) -> None:
    """Put the trees of a model's text before those of a booster."""
    # Not public; it is how LightGBM itself continues an init_model, whose scores it would predict
    # anew. If it goes, resuming fails at once.
    forest = lgb.Booster(model_str=text)
    _safe_call(_LIB.LGBM_BoosterMerge(booster._handle, forest._handle))


def scores_of(booster: lgb.Booster) -> tuple[Array, list[Array]]:
    """Scores of the training rows, and of each evaluation set, as LightGBM holds them."""
    training: list[Array] = []
    held: list[Array] = []

    def keep_in(kept: list[Array]) -> Callable[[Array, Any], list[Any]]:
        def keep(margin: Array, _: Any) -> list[Any]:
            kept.append(margin.copy())
            return []

        return keep

    booster.eval_train(feval=keep_in(training))
    booster.eval_valid(feval=keep_in(held))
    return training[0], held


def state_of(booster: lgb.Booster) -> State:
    """Give what is to be saved of a booster."""
    training, held = scores_of(booster)
    text = booster.model_to_string(num_iteration=-1)
    return {"forest": text.encode(), "scores": training, "held_scores": held}


class Resuming(Resumed):
    """The parent's own fit, saved as it goes, and resumed.

    Parameters
    ----------
    fit : ConstrainedFit
        The fit, and its checkpoint if it has one.

    Attributes
    ----------
    grown_in : list of int
        Rounds that grew a tree; the observer goes on with it.
    """

    def __init__(self, fit: ConstrainedFit) -> None:
        super().__init__(fit)
        self.grown_in: list[int] = [] if self.saved is None else self.saved["grown_in"]

    def starts(self, own: list[bool]) -> dict[str, Any]:
        """Scores that the rows start from, as arguments of ``fit``; none without a file's.

        Parameters
        ----------
        own : list of bool
            Of each evaluation set, whether it is the training rows.
        """
        if self.saved is None:
            return {}
        held = iter(self.saved["held_scores"])
        training = self.saved["scores"]
        sets = [training if is_own else next(held) for is_own in own]
        return {"init_score": training, "eval_init_score": sets or None}

    def callbacks(self) -> list[Callable[[Any], None]]:
        """Callbacks that come before all others, and one after them; none without a file."""
        if self.file is None:
            return []

        def before(env: Any) -> None:
            if env.iteration == env.begin_iteration:
                self._begin(env.model)
            if env.iteration == self.rounds and self.rounds:
                for name in ("update", "eval_train", "eval_valid"):
                    del env.model.__dict__[name]

        def renew(env: Any) -> None:
            if not self.passes(env.iteration):
                self._renewal.renew(env.iteration)

        # Schedules come between the two: a reset of any parameter keeps the bag as it is.
        before.before_iteration = renew.before_iteration = True  # type: ignore[attr-defined]
        before.order, renew.order = -(10**9), 10**9  # type: ignore[attr-defined]
        return [before, renew]

    def _begin(self, model: lgb.Booster) -> None:
        self._renewal = Renewal(model)
        if self.saved is None:
            return
        merge_forest(model, self.saved["forest"].decode())
        recorded = iter(self.metrics[:])
        model.update = lambda *args, **kwargs: False
        model.eval_train = lambda *args: []
        model.eval_valid = lambda *args: [_result(*values) for values in next(recorded)]

    def save(self, env: Any) -> None:
        """Write the file after a round, if it is time to and there are more rounds.

        Parameters
        ----------
        env : CallbackEnv
            LightGBM's account of the round.
        """
        if self.file is None:
            return
        results = env.evaluation_result_list or []
        self.metrics.append([[*r[:2], float(r[2]), bool(r[3])] for r in results])
        if env.iteration + 1 < env.end_iteration:
            own = {"grown_in": self.grown_in}
            self.file.offer(lambda: self.state(env.iteration + 1, {**own, **state_of(env.model)}))

    def as_given(self, text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Model text and parameters with the user's seeds instead of those of the last round."""
        if self.file is None:
            return text, params
        self._renewal.follow()
        return self._renewal.undone(text), self._renewal.params


def _result(*values: Any) -> Any:
    """Value of a metric as LightGBM reports it: a named tuple since LightGBM 4.7."""
    return getattr(lgb, "EvalResult", lambda *items: items)(*values)
