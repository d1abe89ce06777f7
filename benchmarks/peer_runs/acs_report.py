"""Tables and figure of ``benchmarks/acs_income.py``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .catalogue import Peer


def print_tables(file: Path, trees: int, peers: Mapping[str, Peer]) -> None:
    """Print all tables of the results in a file."""


def draw(file: Path, trees: int, path: Path) -> None:
    """Draw."""
