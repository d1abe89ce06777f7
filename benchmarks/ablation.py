"""What the sweep loses where a constant of the choice has another value.

The fits are draws of ``sweep.py`` from its half to choose on, in which groups stand as they are in
the files: the same draws for every value. The first row has the package as it is.

    python benchmarks/ablation.py [--draws 30] [--first 0] [--constants START ...]

Each value is a row of ``benchmarks/results/ablation.csv``: the share of fits that lose more than
three and five points to the best group thresholds, their mean violation by groups that rows can
tell of, the share of large groups beyond two standard errors, and the median cost in plain fits.
Results of a value are not repeated while its row is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from arguments import at_least
from result_file import ResultFile
from sweep import MANY, TUNE, described, draw, fit, frame_of, lost, wanted

RESULTS = Path(__file__).parent / "results" / "ablation.csv"
# Constants, by the values that they have in turn; without one, every group acts in full.
VALUES = {
    "": [None],
    "CREDIBLE_ROWS": [1e-9, 10.0, 50.0],
    "VIOLATION_PRICE": [0.3, 3.0, 10.0],
    "START": [0.0, 1.0, 8.0],
    "BUDGET": [4.5, 12.0],
    "AFFORDABLE": [0.0, 0.02],
    "N_PREFIXES": [2],
}
FIGURES = ("draws", "fits", "> .03", "> .05", "known", "large > 2", "cpu")


@contextmanager
def replaced(name: str, value: float | None) -> Iterator[None]:
    """Give a constant another value in every module that has its name."""
    modules = [
        module
        for key, module in sys.modules.items()
        if name and key.startswith("gbm_constrained.") and name in vars(module)
    ]
    before = [getattr(module, name) for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)


def measure(args: argparse.Namespace) -> dict[str, float | str]:
    """Fit the draws, and say what they lose."""
    asked = SimpleNamespace(
        first=args.first, draws=args.draws, kinds=["groups"], groups=MANY, half=TUNE,
        most_rows=8000, most_rounds=60,
    )  # fmt: skip
    rows = []
    for plan in wanted(asked):
        case = draw(plan.number)
        found = described(case) | fit(case)
        rows.append({key: str(value) for key, value in found.items()})
    frame = frame_of(rows)
    of = lost(frame, 0.03, 0.05)
    large = frame["in_errors"][frame["reference"].notna()].dropna()
    found = of["fits"], of["> 0.03"], of["> 0.05"]
    known = frame["known"].clip(lower=0.0).mean()
    figures = args.draws, *found, known, (large > 2).mean(), frame["cpu"].median()
    return dict(zip(FIGURES, (f"{x:.4g}" for x in figures), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=at_least(1), default=30)
    parser.add_argument("--first", type=at_least(0), default=0, help="number of the first draw")
    parser.add_argument("--constants", nargs="+", choices=VALUES, default=list(VALUES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = ResultFile(args.output, ["constant", "value", *FIGURES])
    done = {(row["constant"], row["value"], row["draws"]) for row in results.rows()}
    for name in args.constants:
        for value in VALUES[name]:
            key = name, "" if value is None else f"{value:g}"
            if (*key, str(args.draws)) in done:
                continue
            with replaced(name, value):
                results.append({"constant": key[0], "value": key[1], **measure(args)})
            print(results.rows()[-1], flush=True)


if __name__ == "__main__":
    main()
