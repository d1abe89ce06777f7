"""Outer loops that call a cost-sensitive oracle and return a mixture of decision rules."""
