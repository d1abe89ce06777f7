"""What the sweep loses where a constant of the choice has another value.

The fits are draws of ``sweep.py`` from its half to choose on: the same draws for every value. What
a fit is worth is the objective on test rows less the violation by groups that rows can tell of,
each with the price of ``docs/method.md``.

    python benchmarks/ablation.py [--draws 50] [--first 0] [--kinds groups auc ...]
        [--values NAME=VALUE ...] [--least-rows 1] [--most-rows 5000] [--output FOLDER]

Without ``--values``, those that stand below are measured on the kinds of fits that they are for.
Each value is a row of ``benchmarks/results/ablation.csv``: the mean difference of worth from the
package as it is, its standard error, the share of fits that lose more than a point, and the cost
in plain fits over that of the package as it is. A row that is there is not measured again.
"""

from __future__ import annotations

import sys
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from result_file import HERE, Figures, Measurements, at_least, make_parser
from sweep import KINDS, TUNE, draw, fit, wanted

# Values that stand for the constant's absence, or lie on both sides of it, by the kinds of fits.
# Without CREDIBLE_ROWS every group acts in full; without MEMORISED_SHARE no threshold is enough.
VALUES = {
    ("groups", "forward", "amounts"): (
        "CREDIBLE_ROWS=1e-9", "CREDIBLE_ROWS=50.0", "VIOLATION_PRICE=0.3", "VIOLATION_PRICE=3.0",
        "START=0.0", "START=1.0", "AFFORDABLE=0.0", "AFFORDABLE=0.02", "MAX_ERROR_INCREASE=-1.0",
        "MAX_STANDARD_ERROR=0.0", "MEMORISED_SHARE=1e9", "N_CANDIDATES=30", "SLOPE_FACTOR=1.0",
        "MIN_SLOPE=0.0", "MIN_EXACT_SLOPE=0.0", "MOST_CANDIDATES=128", "LAST=1",
    ),
    ("auc",): ("PRICE_OF_SCORES=1.0", "BUDGET=7.9", "SLOPE_FACTOR=1.0", "MIN_SLOPE=0.0", "LAST=1"),
    ("classes",): ("SURELY=0.0", "RESTARTS=1"),
    ("metrics",): ("MIN_GAIN=0.0",),
    ("regression",): ("N_SHIFTS=25", "N_HALVINGS=3", "STEP_WIDTH=0.5", "KINK_WIDTH=0.4"),
}  # fmt: skip


@contextmanager
def replaced(name: str, value: Any) -> Iterator[None]:
    """Give a constant another value in every module that has its name."""
    modules = [
        module
        for key, module in sys.modules.items()
        if name and key.startswith("gbm_constrained.") and name in vars(module)
    ]
    if name and not modules:
        raise ValueError(f"no module of the package has a constant {name}")
    before = [getattr(module, name) for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--draws", type=at_least(1), default=50)
    parser.add_argument("--first", type=at_least(0), default=0, help="number of the first draw")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--values", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--least-rows", type=at_least(1), default=1)
    parser.add_argument("--most-rows", type=at_least(1), default=5000)
    parser.add_argument("--most-rounds", type=at_least(1), default=60)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    args = parser.parse_args()
    of_rows = f", {args.least_rows} rows or more" if args.least_rows > 1 else ""

    @cache
    def fit_usual(kinds: str) -> pd.DataFrame:
        """Fit the draws of some kinds: what each is worth, and its processor time."""
        asked = SimpleNamespace(
            **vars(args)
            | {"kinds": kinds.removesuffix(of_rows).split(), "groups": None, "half": TUNE}
        )
        rows = []
        for plan in wanted(asked):
            found: dict[str, Any] = fit(draw(plan.number))
            known = found.get("known", np.nan)
            violated = max(found.get("violation" if np.isnan(known) else "known", np.nan), 0.0)
            worth = found.get("returned", np.nan) - violated
            rows.append({"worth": worth, "cpu": found.get("cpu", np.nan)})
        return pd.DataFrame(rows)

    def measure(name: str, value: str, kinds: str) -> Figures:
        """Compare the fits of one value with those of the package as it is."""
        usual = fit_usual(kinds)
        with replaced(name, literal_eval(value)):
            found = fit_usual.__wrapped__(kinds)
        differs = (found["worth"] - usual["worth"]).dropna()
        figures = {
            "fits": len(differs),
            "worth": differs.mean(),
            "error": differs.sem(),
            "> .01": (differs < -0.01).mean(),
            "cost": np.exp(np.log(found["cpu"] / usual["cpu"]).mean()),
        }
        return {figure: float(f"{x:.4g}") for figure, x in figures.items()}

    results = Measurements(args.output / "ablation.csv", ("constant", "value", "kinds"))
    of_kinds = VALUES if args.values is None else {tuple(args.kinds): args.values}
    for kinds, values in of_kinds.items():
        if set(kinds) <= set(args.kinds):
            for text in values:
                named = (*text.split("=", 1), " ".join(kinds) + of_rows)
                print(named, results.once(measure, *named), flush=True)


if __name__ == "__main__":
    main()
