"""The rows of a9a, which are Adult in 123 binary columns."""

from __future__ import annotations

import io
import lzma
import os
from pathlib import Path

import pytest
from scipy import sparse
from sklearn.datasets import load_svmlight_file

FEMALE, MALE = 71, 72  # Columns of X; the 72nd and 73rd of the file. The 39th is an education bin.


def load_a9a(name="a9a"):
    """Load features and whether each row is positive, or skip a test without the file."""
    path = Path(os.environ.get("GBM_CONSTRAINED_DATA", "")) / f"{name}.xz"
    if not path.is_file():
        pytest.skip(f"{name}.xz is not committed and was not found.")
    X, y = load_svmlight_file(io.BytesIO(lzma.decompress(path.read_bytes())), n_features=123)
    return sparse.csr_array(X), y > 0
