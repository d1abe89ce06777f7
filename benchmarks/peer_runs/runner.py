"""One peer on one split, in the peer's own environment.

    python -m peer_runs.runner job.json

``job.json`` names the method, the file of the split, the booster's parameters and what is asked.
For each thing asked, the decisions on training and test rows are written to a file, and one line
of JSON to the standard output: the file, the processor seconds of the fit with the share of the
booster under it, and the memory that it needed beyond what the process had before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .methods import Rule, Split

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Meter:
    """Processor seconds, and MiB at the peak beyond what the process had when this was made.

    Linux alone can forget an earlier peak; elsewhere it is the largest so far.
    """

    def __init__(self) -> None:
        self._before = self._peak()

    def measured(self, work: Callable[[], Any]) -> tuple[Any, float, float]:
        """Return the result, seconds (of children, too) and MiB."""
        with contextlib.suppress(OSError):
            RESET.write_text("5")
        start = _seconds()
        result = work()
        return result, _seconds() - start, self._peak() - self._before

    @staticmethod
    def _peak() -> float:
        if STATUS.is_file():
            lines = STATUS.read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
        scale = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def _seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def report(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    job = json.loads(Path(sys.argv[1]).read_text())
    split = Split.load(Path(job["split"]))
    if job["group_is_feature"]:
        split = split.with_group()
    module, name = job["method"].split(".")
    method = getattr(importlib.import_module(f"peer_runs.{module}"), name)
    meter = Meter()
    peer, base_seconds, base_mib = meter.measured(
        lambda: method(split, job["booster"], job["seed"])
    )
    for number, wish in enumerate(job["wishes"]):
        rule = Rule(wish["task"], tuple(wish["rates"]), wish["is_gap"])
        asked = float(wish["asked"])  # JSON has no infinity, but float reads its name
        try:
            fitted, seconds, mib = meter.measured(lambda: peer.fit(rule, asked))  # noqa: B023
            start = time.process_time()
            test = fitted.decide(split.X_test, split.groups_test)
            predicting = time.process_time() - start
            train = fitted.decide(split.X, split.groups)
        except Exception as error:  # a failure of a peer is a result
            traceback.print_exc()
            report(number=number, error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
            continue
        file = Path(job["folder"]) / f"{number}.npz"
        np.savez(file, train=_decisions(train), test=_decisions(test))
        report(
            number=number,
            file=str(file),
            seconds=base_seconds + seconds,
            predict_seconds=predicting,
            peak_mib=max(base_mib, mib),
            held_out=fitted.held_out,
        )


def _decisions(decisions: Any) -> Any:
    return np.asarray(decisions).ravel().astype(np.int8)


if __name__ == "__main__":
    main()
