"""Proxies of rates, and their derivatives."""
