"""compare: two or more audits of the same queries side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pairity._utils.text import render_table
from pairity.audits.audit import Audit
from pairity.audits.estimates import Estimate
from pairity.exceptions import InputError


def compare(
    audits: Mapping[str, Audit], more: Mapping[str, Sequence[Estimate]] | None = None
) -> str:
    """Violations and utility of several rankers as one table, with their intervals.

    Parameters
    ----------
    audits : mapping from the name of a ranker to its audit
        All of the same queries.
    more : mapping from a title to one figure for each ranker, optional
        Further rows.

    Examples
    --------
    >>> from pairity import audit
    >>> from pairity.audits.comparison import compare
    >>> lists = dict(qid=[1, 1, 1, 2, 2, 2], sensitive_features=list("aababb"))
    >>> one, two = ([3, 2, 1, 3, 2, 1], [1, 2, 3, 3, 2, 1])
    >>> audits = {
    ...     name: audit([1, 0, 0, 1, 0, 0], s, **lists, constraints="statistical", n_resamples=0)
    ...     for name, s in (("plain", one), ("other", two))
    ... }
    >>> print(compare(audits))
    on 2 queries            plain  other
    ------------------------------------
    violation: statistical  1.000  0.000
    AUC                     1.000  0.500
    NDCG@10                 1.000  0.750
    """
    first = next(iter(audits.values()), None)
    if first is None or any(held.n_queries != first.n_queries for held in audits.values()):
        raise InputError("There is nothing to compare: give audits of the same queries.")
    rows = {
        f"violation: {name}": [
            held.estimate("violation", constraint=name) for held in audits.values()
        ]
        for name in first.violation
    }
    rows["AUC"] = [held.estimate("auc") for held in audits.values()]
    k = max(first.ndcg)
    rows[f"NDCG@{k}"] = [held.estimate(f"ndcg@{k}") for held in audits.values()]
    rows.update({title: list(estimates) for title, estimates in (more or {}).items()})
    sampled = any(
        estimate.low == estimate.low for estimates in rows.values() for estimate in estimates
    )
    told = f", with {100 * first.confidence:g} % intervals" if sampled else ""
    return render_table(
        [f"on {first.n_queries:,} queries{told}", *audits],
        [[title, *map(_cell, estimates)] for title, estimates in rows.items()],
    )


def _cell(estimate: Estimate) -> str:
    if estimate.low != estimate.low:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
