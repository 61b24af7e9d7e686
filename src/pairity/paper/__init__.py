"""The paper's experiments: protocol, claims, checks, plots.

`pairity.paper.reproduction.reproduce` runs all of them; ``pairity reproduce`` calls it.
"""
