"""The language of constraints, which holds no data."""
