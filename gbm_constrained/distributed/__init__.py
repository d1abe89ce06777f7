"""Fits whose rows are on several machines."""
