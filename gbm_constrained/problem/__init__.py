"""The mathematical programme: functionals of cell statistics, linear constraints, Lagrangian."""
