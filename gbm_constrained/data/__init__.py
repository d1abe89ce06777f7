"""Arguments of ``fit``, checked and encoded once: rows, weights, groups, cells and splits."""
