"""Measure disparity and utility of scores: audits, estimates with intervals, comparisons."""

from pairity.audits.audit import Audit, audit
from pairity.audits.comparison import compare
from pairity.audits.estimates import Estimate

__all__ = ["Audit", "Estimate", "audit", "compare"]
