"""Compiled loops over the pairs of each query; they know arrays only."""
