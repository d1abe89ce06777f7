"""Gradient-boosted classifiers trained under constraints on their error rates."""

__version__ = "0.1.0"
