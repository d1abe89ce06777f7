"""Run the tests at both ends of the versions that pyproject.toml allows, over several Pythons.

    python .ci/matrix.py --tests tests [--wheel dist/FILE.whl] python3.11 python3.12 python3.13

The package is installed from the checkout, or from a wheel. Each Python that is here gets an
environment with the oldest declared versions of the dependencies and one with the newest. A Python
that is absent is skipped with a word, and so is the oldest end where packages have no wheel for
so new a Python; the first Python must have both.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def oldest(requirements: list[str]) -> list[str]:
    """Turn lower bounds into the release series that they name: "numpy>=2.0" to "numpy==2.0.*"."""
    return [f"{requirement.replace('>=', '==')}.*" for requirement in requirements]


def run(*command: object) -> bool:
    """Run a command, and tell whether it succeeded."""
    return subprocess.run([*map(str, command)], cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Try each Python at both ends, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", default="tests", help="files or folders, in quotes")
    parser.add_argument("--wheel", type=Path, help="wheel to install in place of the checkout")
    parser.add_argument("pythons", nargs="+")
    arguments = parser.parse_args()
    package = ("--editable", ".[test]")
    if arguments.wheel is not None:
        package = (f"{arguments.wheel.resolve()}[test]",)
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]

    results: list[tuple[str, str]] = []
    tried = False
    for python in arguments.pythons:
        if shutil.which(python) is None or not run(python, "-c", ""):
            results.append((python, "skipped: it is not on this machine"))
            continue
        for end, pins in (("oldest", oldest(dependencies)), ("newest", [])):
            name = f"{python}, {end}"
            folder = ROOT / f".venv-{python}-{end}"
            binary = folder / "bin" / "python"
            run(python, "-m", "venv", "--clear", folder)
            pip = (binary, "-m", "pip", "install", "--quiet", "--prefer-binary")
            pinned = not pins or run(*pip, "--only-binary", ":all:", *pins)
            if not pinned and tried:
                results.append((name, "skipped: no wheels of these versions for it"))
                continue
            constraints = folder / "constraints.txt"
            constraints.write_text("\n".join(pins))
            installed = pinned and run(*pip, "-c", constraints, *package)
            if not installed:
                results.append((name, "FAILED: it cannot be installed"))
                continue
            run(binary, "-m", "pip", "list", "--format", "freeze")
            # The command, unlike the module, does not put the checkout on the path.
            pytest = binary.with_name("pytest")
            passed = run(pytest, "-q", "--numprocesses", "auto", *arguments.tests.split())
            results.append((name, "passed" if passed else "FAILED"))
        tried = True
    print()
    for name, result in results:
        print(f"{name}: {result}")
    return int(not tried or any(result.startswith("FAILED") for _, result in results))


if __name__ == "__main__":
    sys.exit(main())
