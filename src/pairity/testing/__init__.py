"""Contracts: the properties that every ranker and every method must have."""

from pairity.testing.check_method import METHOD_CHECKS, check_method, method_checks
from pairity.testing.check_ranker import RANKER_CHECKS, check_ranker, ranker_checks

__all__ = [
    "METHOD_CHECKS",
    "RANKER_CHECKS",
    "check_method",
    "check_ranker",
    "method_checks",
    "ranker_checks",
]
