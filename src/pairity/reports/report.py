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
from functools import cache
from importlib.resources import files
from typing import Any

from pairity._utils.files import write_file
from pairity._utils.html import Html, escape, tag
from pairity._utils.text import shorten
from pairity.audits.audit import Audit
from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES, Estimate
from pairity.comparisons.frontiers import Frontier
from pairity.constraints import CATALOGUE
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.reports import charts, prose
from pairity.reports.collect import collect_audits, collect_training
from pairity.reports.evidence import Candidate, Evidence
from pairity.reweighting.fair_ranker import FairRanker

MAX_BYTES = 5_000_000  # that mail servers and browsers handle without trouble
MOST_GROUPS = 12  # rows and columns of a table that a screen has room for
SECTIONS = {
    "summary": "Summary",
    "groups": "Comparison by group",
    "tradeoff": "Accuracy and disparity",
    "weights": "Pair weights",
    "rankings": "Example rankings",
    "exposure": "Exposure by group",
    "caveats": "Caveats",
    "reproduce": "Reproduce this report",
}


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
            n = len(evidence.queries) // 2
            candidates = tuple(
                replace(candidate, tops=candidate.tops[:n], scores=candidate.scores[:n])
                for candidate in evidence.candidates
            )
            evidence = replace(evidence, queries=evidence.queries[:n], candidates=candidates)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file; after an error, an existing file is unchanged."""
        write_file(path, self.to_html().encode("utf-8"))

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


# --- the page ------------------------------------------------------------------------------------


def _page(evidence: Evidence) -> str:
    """The page as HTML."""
    scripts = (_asset("styles.js"), charts.library(), _asset("report.js"))
    style, drawn = _asset("report.css"), charts.draw(evidence)
    audit, constraint = _first_audit(evidence), CATALOGUE.get(evidence.constraint)
    estimates = [e for candidate in evidence.candidates for e in candidate.estimates]
    names = [estimate.constraint for estimate in estimates if estimate.constraint]
    favoured = prose.quote(evidence.gap[0]) if evidence.gap else "the first group"
    items = "" if audit is None else f", {prose.count(audit.n_items, 'item')}"
    page = _template().render(
        evidence=evidence,
        title=evidence.title or "How evenly are the groups ranked?",
        subtitle=(constraint.title if constraint else evidence.constraint).capitalize(),
        sample=(
            f"{prose.count(evidence.n_queries, 'held-out query')}{items}, "
            f"{len(evidence.groups)} groups, {prose.count(len(evidence.candidates), 'ranker')}"
        ),
        shown_groups=shown_groups(evidence),
        group_sizes=() if audit is None else audit.group_sizes,
        constraints=list(dict.fromkeys([evidence.constraint, *names])),
        method_marks=charts.method_styles(evidence),
        lines=min(len(evidence.groups), charts.MOST_LINES),
        histogram_text=(
            "Number of queries by their gap between "
            f"{prose.compared_groups(evidence)}. Gaps to the right of 0 favour {favoured}."
        ),
        provenance=(
            *evidence.provenance,
            ("constraint", evidence.definition),
            ("tolerance", "–" if evidence.tolerance is None else f"{evidence.tolerance:g}"),
            ("intervals", f"{100 * evidence.confidence:g} %, from resampled queries"),
        ),
        policy=(
            f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
            f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        scripts=scripts,
        data={
            "charts": drawn,
            "candidates": [charts.columns(evidence, c) for c in evidence.candidates],
            "names": [shorten(candidate.name, 60) for candidate in evidence.candidates],
            "after": evidence.after,
        },
        charts=drawn,
    )
    return str(page)


@cache
def _template() -> Any:
    """The template; its expressions pass `_utils.html.escape` unless they are marked as safe."""
    jinja2 = charts.import_report("jinja2")
    markup = charts.import_report("markupsafe").Markup

    def finalize(value: Any) -> Any:
        return value if hasattr(value, "__html__") else markup(escape(value))

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pairity.reports"), autoescape=True, finalize=finalize,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        "count": prose.count, "interval": prose.interval, "number": prose.number,
        "shorten": shorten, "signed": prose.signed,
    }  # fmt: skip
    environment.globals |= {
        "explain": prose.explain, "summary": prose.summary, "ndcg": _ndcg,
        "weight_sentences": prose.weight_sentences, "heat_class": _heat_class,
        "sections": SECTIONS, "shapes": charts.SHAPES, "max_lines": charts.MOST_LINES,
        "few_queries": FEW_QUERIES, "few_pairs": FEW_PAIRS,
    }  # fmt: skip
    return environment.get_template("report.html")


def _first_audit(evidence: Evidence) -> Audit | None:
    return next((candidate.audit for candidate in evidence.candidates if candidate.audit), None)


def shown_groups(evidence: Evidence) -> list[int]:
    """The groups that tables have room for: those of the largest gap, then the largest."""
    audit = _first_audit(evidence)
    sizes = audit.group_sizes if audit else [0] * len(evidence.groups)
    order = sorted(
        range(len(evidence.groups)),
        key=lambda k: (evidence.groups[k] not in evidence.gap, -sizes[k]),
    )
    return sorted(order[:MOST_GROUPS])


def _heat_class(difference: float) -> str:
    """The class of a cell by its difference from parity, in steps of 0.05 up to 0.25."""
    step = max(-5, min(5, round(difference / 0.05)))
    return f"h{step}".replace("-", "m")


def _ndcg(candidate: Candidate) -> Estimate:
    cuts = (e for e in candidate.estimates if e.measure.startswith("ndcg"))
    return next(cuts, Estimate("ndcg"))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _asset(name: str) -> str:
    return files("pairity.reports").joinpath("static", name).read_text(encoding="utf-8")
