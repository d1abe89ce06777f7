"""Parts of ``benchmarks/peers.py``: what is compared, how each peer is run, how it is scored."""
