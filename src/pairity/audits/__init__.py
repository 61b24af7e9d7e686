"""Measure disparity and utility of scores: audits, estimates with intervals, comparisons."""

from pairity.audits.audit import Audit, audit
from pairity.audits.estimates import Estimate
from pairity.audits.tables import compare

__all__ = ["Audit", "Estimate", "audit", "compare"]
