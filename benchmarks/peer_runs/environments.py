"""One pinned environment for each peer that cannot run beside the others."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def python_of(name: str, folder: Path) -> str:
    """Python of a peer's environment, which is made where it is missing or its pins changed.

    Parameters
    ----------
    name : str
        Of the environment; the running Python's own when empty.
    folder : Path
        Where the environments are.

    Raises
    ------
    RuntimeError
        It cannot be installed.
    """
    if not name:
        return sys.executable
    pins = HERE / f"requirements-{name}.txt"
    home = folder / name
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    mark = home / "installed.sha256"
    digest = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    if mark.is_file() and mark.read_text() == digest:
        return str(python)
    print(f"{name}: installing {pins.name} into {home}", flush=True)
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "-r", str(pins)],
    )  # fmt: skip
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} cannot be installed: {_last_error(done.stderr)}")
    mark.write_text(digest)
    return str(python)


def _last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "ERROR" in line), (lines or ["?"])[-1])[:300]
