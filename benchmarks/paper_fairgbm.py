"""One fit of FairGBM, for paper_tables.py: run by an interpreter in which fairgbm is installed.

    python benchmarks/paper_fairgbm.py fairgbm|lightgbm OPTIONS ROWS.npz OUT.npz

``lightgbm`` is the class of that name within the package, a fork of LightGBM. OPTIONS is JSON.
"""

from __future__ import annotations

import json
import sys

import fairgbm
import numpy as np


def main() -> None:
    name, options, rows, out = sys.argv[1:]
    with np.load(rows) as file:
        X, X_test, y, groups = (file[key] for key in ("X", "X_test", "y", "groups"))
    known = json.loads(options)
    if name == "fairgbm":
        model = fairgbm.FairGBMClassifier(**known).fit(X, y, constraint_group=groups)
    else:
        model = fairgbm.LGBMClassifier(**known).fit(X, y)
    np.savez(out, train=model.predict_proba(X), test=model.predict_proba(X_test))


if __name__ == "__main__":
    main()
