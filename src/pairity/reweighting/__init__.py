"""Algorithm 1: measure the violation, move the multipliers, weigh the pairs, retrain."""
