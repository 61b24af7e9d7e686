"""Report: audits and a frontier as one self-contained HTML page for a reader who decides.

A report computes nothing: every number comes from `pairity.reports.evidence`. The page makes no
network requests, and its content security policy admits only its own scripts and styles.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from pairity._utils.files import atomic_write
from pairity._utils.html import Html, tag
from pairity._utils.text import shorten
from pairity.audits.audit import Audit
from pairity.comparisons.frontiers import Frontier
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.reports import charts, panels
from pairity.reports.collect import collect_audits, collect_training
from pairity.reports.evidence import Evidence
from pairity.reweighting.fair_ranker import FairRanker

MAX_BYTES = 5_000_000  # that mail servers and browsers handle without trouble


class Report:
    """One HTML page about rankers: summary, tables, trade-off, rankings, exposure and caveats.

    Parameters
    ----------
    source : Evidence, Audit or sequence of Audit
        What `pairity.collect` measured, or audits of the same queries, of which the first is
        compared with the last. Audits contain no rankings and no weights; the page says so.
    frontier : Frontier, optional
        A sweep whose points are shown too; only with audits.
    constraint : str, optional
        The violation that the page is about; only with audits.
    tolerance : float, optional
        The largest violation that is acceptable; only with audits.
    title : str
        The heading.

    Examples
    --------
    >>> from pairity import Report, audit
    >>> lists = dict(qid=[1, 1, 1, 2, 2, 2], sensitive_features=list("aababb"))
    >>> scores = {"plain": [3, 2, 1, 3, 2, 1], "other": [1, 2, 3, 3, 2, 1]}
    >>> Report([
    ...     audit([1, 0, 0, 1, 0, 0], s, **lists, constraints="statistical", name=name)
    ...     for name, s in scores.items()
    ... ])
    Report('plain' to 'other', statistical, 2 queries)
    """

    def __init__(
        self,
        source: Evidence | Audit | Sequence[Audit],
        *,
        frontier: Frontier | None = None,
        constraint: str | None = None,
        tolerance: float | None = None,
        title: str = "",
    ) -> None:
        if isinstance(source, Evidence):
            if frontier is not None or constraint is not None or tolerance is not None:
                raise InputError(
                    "Evidence already has a frontier, a constraint and a tolerance. Pass them to "
                    "collect."
                )
            self.evidence = replace(source, title=title) if title else source
            return
        audits = [source] if isinstance(source, Audit) else list(source)
        for audit in audits:
            if not isinstance(audit, Audit):
                raise InputError(
                    f"A report is made of audits or of Evidence, not of {type(audit).__name__}. "
                    "Pass the results of pairity.audit or pairity.collect."
                )
        self.evidence = collect_audits(
            audits, constraint=constraint, tolerance=tolerance, frontier=frontier, title=title
        )

    @classmethod
    def of(
        cls, plain: Any, model: FairRanker, train: Queries, test: Queries, **options: Any
    ) -> Report:
        """A report on a fitted model and the plain ranker, measured on held-out queries.

        The parameters are those of `pairity.reports.collect.collect_training`.
        """
        return cls(collect_training(plain, model, train, test, **options))

    def to_html(self, max_bytes: int = MAX_BYTES) -> str:
        """The page; if it would be larger than `max_bytes`, it has fewer example rankings.

        The same evidence gives the same page, byte for byte.
        """
        evidence = self.evidence
        while True:
            page = _page(evidence)
            if len(page.encode("utf-8")) <= max_bytes:
                return page
            if not evidence.queries:
                raise InputError(
                    f"The page with {len(evidence.candidates)} rankers and {len(evidence.groups)} "
                    f"groups is larger than {max_bytes / 1e6:g} MB. Report on fewer of them."
                )
            evidence = _halve_queries(evidence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file; after an error, an existing file is unchanged."""
        page = self.to_html().encode("utf-8")
        with atomic_write(path) as file:
            file.write(page)

    def _repr_html_(self) -> str:
        """The page inside a frame, for notebooks."""
        return tag(
            "iframe", srcdoc=Html(html.escape(self.to_html())), width="100%", height="900",
            title="pairity report", sandbox="allow-scripts",
        )  # fmt: skip

    def __repr__(self) -> str:
        evidence = self.evidence
        first, last = (
            shorten(evidence.candidates[index].name, 60)
            for index in (evidence.before, evidence.after)
        )
        sample = f"{evidence.constraint}, {evidence.n_queries} queries"
        return f"Report({first!r} to {last!r}, {sample})"


def _halve_queries(evidence: Evidence) -> Evidence:
    n = len(evidence.queries) // 2
    candidates = tuple(
        replace(candidate, tops=candidate.tops[:n], scores=candidate.scores[:n])
        for candidate in evidence.candidates
    )
    return replace(evidence, queries=evidence.queries[:n], candidates=candidates)


def _page(evidence: Evidence) -> str:
    scripts = (_asset("styles.js"), charts.library(), _asset("report.js"))
    style, drawn = _asset("report.css"), charts.draw(evidence)
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    data = {
        "charts": drawn,
        "candidates": [charts.columns(evidence, candidate) for candidate in evidence.candidates],
        "names": [shorten(candidate.name, 60) for candidate in evidence.candidates],
        "after": evidence.after,
    }
    return panels.render(
        evidence, policy=policy, style=style, scripts=scripts, data=data, charts=drawn
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _asset(name: str) -> str:
    return files("pairity.reports").joinpath("static", name).read_text(encoding="utf-8")
