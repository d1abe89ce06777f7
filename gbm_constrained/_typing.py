"""Types of arrays, as the whole package names them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Float: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.intp]
Bool: TypeAlias = NDArray[np.bool_]
