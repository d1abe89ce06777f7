"""One constrained fit."""
