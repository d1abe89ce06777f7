"""The peers: where each runs, which tasks it offers, what its decisions need."""

from __future__ import annotations

from dataclasses import dataclass

from .rules import NEYMAN_PEARSON, TASKS

GAPS = tuple(task for task in TASKS if task != NEYMAN_PEARSON)
ODDS_AND_RATES = ("selection_rate_gap", "fpr_gap", "tpr_gap", "equalized_odds")


@dataclass(frozen=True)
class Peer:
    """A way to meet a rule.

    Parameters
    ----------
    name : str
        Its name in the table.
    method : str
        Module and class in this folder that runs it.
    tasks : tuple of str
        The tasks that it offers.
    environment : str, default=""
        Name of its requirements file; runs beside this package when empty.
    needs_group : bool, default=False
        Whether its decisions need the sensitive feature.
    is_one_model : bool, default=True
        Whether its decisions are those of one deterministic model.
    calibrates : bool, default=False
        Whether a quarter of the training rows is kept from its booster, to choose decisions on.
    is_slow : bool, default=False
        Whether only every third bound is asked of it.
    asks : tuple of float, default=()
        What is asked of it instead of bounds, such as the rates of a penalty.
    """

    name: str
    method: str
    tasks: tuple[str, ...] = TASKS
    environment: str = ""
    needs_group: bool = False
    is_one_model: bool = True
    calibrates: bool = False
    is_slow: bool = False
    asks: tuple[float, ...] = ()


PEERS = {
    peer.name: peer
    for peer in (
        Peer("plain", "beside.Plain", asks=(float("inf"),)),
        Peer("ours_lightgbm", "beside.OursLightGBM"),
        Peer("ours_xgboost", "beside.OursXGBoost"),
        Peer("groups_lightgbm", "beside.GroupsLightGBM", GAPS, needs_group=True),
        Peer("groups_xgboost", "beside.GroupsXGBoost", GAPS, needs_group=True),
        Peer("tuned_threshold", "beside.TunedThreshold", calibrates=True),
        Peer("umbrella", "beside.Umbrella", (NEYMAN_PEARSON,), calibrates=True),
        Peer("npmc_cx", "beside.NPMCCX", (NEYMAN_PEARSON,)),
        Peer("npmc_er", "beside.NPMCER", (NEYMAN_PEARSON,)),
        Peer(
            "fairgbm",
            "fairgbm_peer.FairGBM",
            (NEYMAN_PEARSON, "fpr_gap", "tpr_gap", "equalized_odds"),
            "fairgbm",
        ),
        Peer(
            "exponentiated_gradient",
            "fairlearn_peers.Reduction",
            GAPS,
            "fairlearn",
            is_one_model=False,
            is_slow=True,
        ),
        Peer(
            "threshold_optimizer",
            "fairlearn_peers.GroupThresholds",
            ODDS_AND_RATES,
            "fairlearn",
            needs_group=True,
            is_one_model=False,
            calibrates=True,
        ),
        Peer(
            "oxonfair", "oxonfair_peer.OxonFair", TASKS, "oxonfair",
            needs_group=True, calibrates=True,
        ),
        Peer(
            "error_parity",
            "error_parity_peer.ErrorParity",
            ODDS_AND_RATES,
            "error_parity",
            needs_group=True,
            is_one_model=False,
            calibrates=True,
        ),
        Peer(
            "mmm_fair",
            "mmm_fair_peer.MMMFair",
            ODDS_AND_RATES,
            "mmm_fair",
            asks=(0.1, 0.2, 0.4, 0.7, 1.0),
        ),
    )
}  # fmt: skip
