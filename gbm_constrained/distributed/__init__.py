"""Fits whose rows are on several machines, each of which runs the same program on its own rows."""
