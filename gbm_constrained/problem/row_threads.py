"""Threads that share the blocks of many rows.

While a booster asks for gradients, the threads of its library wait. numpy releases the lock of the
interpreter in its loops, so that threads of Python can take their place. They sleep between two
rounds: a pool that spins would take cores from the library. The library's threads do spin for a
while after their own loops, and half of the cores are left to them. Two cores are therefore used
by one thread (evidence, Cost).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, pairwise
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

MIN_ROWS = 200_000  # Rows from which on a fit gains by several threads.


def count_threads(n_jobs: int | None) -> int:
    """Count the threads beside a booster whose ``n_jobs`` is given: half of its own."""
    return max(_count_cores(n_jobs) // 2, 1)


def _count_cores(n_jobs: int | None) -> int:
    """Count the threads that ``n_jobs`` asks for: all cores where it names none."""
    available = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    cores = available or 1
    if n_jobs is None or n_jobs == 0:
        return cores
    return min(n_jobs, cores) if n_jobs > 0 else max(cores + 1 + n_jobs, 1)


@lru_cache(maxsize=4)
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="gbm_constrained")


if hasattr(os, "register_at_fork"):  # A child of a fork has none of the threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def map_in_order(
    function: Callable[[Item], T], items: Sequence[Item], n_threads: int = 1
) -> list[T]:
    """Apply a function to items; results are in order. Each thread has a run of the items."""
    n_threads = min(n_threads, len(items))
    if n_threads <= 1:
        return [function(item) for item in items]
    ends = [len(items) * i // n_threads for i in range(n_threads + 1)]

    def apply(run: tuple[int, int]) -> list[T]:
        return [function(item) for item in items[slice(*run)]]

    return [*chain.from_iterable(_pool(n_threads).map(apply, pairwise(ends)))]
