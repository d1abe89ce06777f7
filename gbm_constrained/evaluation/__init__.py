"""What is said of a model: verdicts, feasibility, audits, report tables."""
