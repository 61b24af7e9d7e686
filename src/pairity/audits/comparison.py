"""compare: audits of the same queries side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from pairity._utils.text import render_table
from pairity.audits.audit import Audit
from pairity.audits.estimates import Estimate
from pairity.exceptions import InputError


def compare(
    audits: Mapping[str, Audit], more: Mapping[str, Sequence[Estimate]] | None = None
) -> str:
    """Violations and utility of several rankers as one table, with confidence intervals.

    Below each violation is its noise floor, if it is known: the mean violation that variation
    between the queries alone produces.

    Parameters
    ----------
    audits : mapping from the name of a ranker to its audit
        All audits must be of the same queries.
    more : mapping from a title to one estimate per ranker, optional
        Further rows.

    Examples
    --------
    >>> from pairity import audit
    >>> from pairity.audits.comparison import compare
    >>> lists = dict(qid=[1, 1, 1, 2, 2, 2], sensitive_features=list("aababb"))
    >>> scores = {"plain": [3, 2, 1, 3, 2, 1], "other": [1, 2, 3, 3, 2, 1]}
    >>> audits = {
    ...     name: audit([1, 0, 0, 1, 0, 0], s, **lists, constraints="statistical", n_resamples=0)
    ...     for name, s in scores.items()
    ... }
    >>> print(compare(audits))
    on 2 queries            plain  other
    ------------------------------------
    violation: statistical  1.000  0.000
    AUC                     1.000  0.500
    NDCG@10                 1.000  0.750
    """
    first = next(iter(audits.values()), None)
    sizes = sorted({audit.n_queries for audit in audits.values()})
    if first is None or len(sizes) > 1:
        counts = " and ".join(f"{size:,}" for size in sizes) or "no"
        raise InputError(
            f"The audits are of {counts} queries. Pass one or more audits of the same queries."
        )
    keys = {}
    for name in first.violation:
        keys[f"violation: {name}"] = ("violation", name)
        if not all(isnan(audit.noise_floor[name]) for audit in audits.values()):
            keys[f"noise floor: {name}"] = ("noise_floor", name)
    keys |= {"AUC": ("auc", ""), f"NDCG@{max(first.k)}": (f"ndcg@{max(first.k)}", "")}
    rows: dict[str, Sequence[Estimate]] = {
        title: [audit.estimate(measure, constraint=name) for audit in audits.values()]
        for title, (measure, name) in keys.items()
    }
    rows |= more or {}
    with_intervals = any(not isnan(e.low) for estimates in rows.values() for e in estimates)
    intervals = f", with {100 * first.confidence:g} % intervals" if with_intervals else ""
    return render_table(
        [f"on {first.n_queries:,} queries{intervals}", *audits],
        [[title, *map(_cell, estimates)] for title, estimates in rows.items()],
    )


def _cell(estimate: Estimate) -> str:
    interval = f" ({estimate.low:.3f} to {estimate.high:.3f})"
    return f"{estimate.value:.3f}{'' if isnan(estimate.low) else interval}"
