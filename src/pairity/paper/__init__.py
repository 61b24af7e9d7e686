"""The experiments of the paper, to be run again: data, protocol, figures, verdicts.

`pairity.paper.reproduction.reproduce` runs it all; ``pairity reproduce`` calls that.
"""
