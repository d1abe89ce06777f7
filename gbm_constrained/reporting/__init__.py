"""Audits, pages, notebook views and figures."""
