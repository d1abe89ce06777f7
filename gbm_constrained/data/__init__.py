"""What is given to ``fit``: rows, weights, groups, cells and splits."""
