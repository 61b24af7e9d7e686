"""Report: audits and a frontier as one self-contained HTML page for a reader who decides.

It renders what it is given and computes nothing: every number comes from
`pairity.reports.evidence`. The
page asks the network for nothing, and its policy lets no script and no style through but those it
was written with.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from pairity._utils.files import atomic_write
from pairity._utils.html import Html, escape, join, tag
from pairity.audits.audit import Audit
from pairity.comparisons.frontiers import Frontier
from pairity.exceptions import InputError
from pairity.reports import charts
from pairity.reports import panels as pages
from pairity.reports.caveats import quote
from pairity.reports.collect import collect_audits
from pairity.reports.evidence import Evidence
from pairity.reports.prose import between, what_is_measured

LARGEST = 5_000_000
_SECTIONS = (
    ("answer", "The answer"),
    ("tables", "Group by group"),
    ("frontier", "What it costs"),
    ("learnt", "What was learnt"),
    ("rankings", "Rankings to look at"),
    ("exposure", "Who is seen"),
    ("caveats", "What this does not show"),
    ("again", "How to get it again"),
)
_NO_SCRIPT = "Without JavaScript there are no charts, and no other ranker or query can be chosen."
_FOOT = (
    "Written by pairity. It measures, reduces and trades off a stated disparity between stated "
    "groups; it does not make a ranking fair."
)


class Report:
    """One HTML page about rankers: the answer, the tables, the frontier, rankings, caveats.

    Parameters
    ----------
    source : Evidence, Audit or sequence of Audit
        What `pairity.reports.collect.collect` measured, or audits of the same queries, the first
        being
        compared with the last. Audits know no rankings and no weights: the page says so there.
    frontier : Frontier, optional
        A sweep whose points are drawn with them; only with audits (`collect` takes its own).
    constraint : str, optional
        The violation that the page is about, where audits are given.
    tolerance : float, optional
        The violation to come down to, where audits are given.
    title : str
        The heading.

    Examples
    --------
    >>> from pairity import Report, audit
    >>> lists = dict(qid=[1, 1, 1, 2, 2, 2], sensitive_features=list("aababb"))
    >>> one, two = (
    ...     audit([1, 0, 0, 1, 0, 0], s, **lists, constraints="statistical", name=name)
    ...     for name, s in (("plain", [3, 2, 1, 3, 2, 1]), ("other", [1, 2, 3, 3, 2, 1]))
    ... )
    >>> Report([one, two])
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
                    "Evidence has its frontier, constraint and tolerance already. Give them to "
                    "collect."
                )
            self.evidence = replace(source, title=title) if title else source
            return
        audits = [source] if isinstance(source, Audit) else list(source)
        for each in audits:
            if not isinstance(each, Audit):
                raise InputError(
                    f"A report is made of audits or of evidence, not of {type(each).__name__}."
                )
        self.evidence = collect_audits(
            audits, constraint=constraint, tolerance=tolerance, frontier=frontier, title=title
        )

    def to_html(self) -> str:
        """The page, of at most 5 MB: where it would be larger, fewer rankings are shown.

        It is the same, byte by byte, for the same evidence.
        """
        evidence = self.evidence
        while True:
            page = _page(evidence)
            if len(page.encode("utf-8")) <= LARGEST:
                return page
            if not evidence.queries:
                raise InputError(
                    f"{len(evidence.candidates)} rankers and {len(evidence.groups)} groups do not "
                    f"fit on a page of {LARGEST // 10**6} MB. Show fewer of them."
                )
            evidence = _with_fewer_queries(evidence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; an error leaves what was there before."""
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
        held = self.evidence
        names = (held.candidates[at].name for at in (held.before, held.after))
        first, last = (pages.named_text(name) for name in names)
        return f"Report({first!r} to {last!r}, {held.constraint}, {held.n_queries} queries)"


def _with_fewer_queries(evidence: Evidence) -> Evidence:
    n = len(evidence.queries) // 2
    candidates = tuple(
        replace(each, tops=each.tops[:n], scores=each.scores[:n]) for each in evidence.candidates
    )
    return replace(evidence, queries=evidence.queries[:n], candidates=candidates)


# --- the page --------------------------------------------------------------------------------


def _page(evidence: Evidence) -> str:
    scripts = (_asset("styles.js"), charts.library(), _asset("report.js"))
    style = _asset("report.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    title = evidence.title or "How evenly are the groups ranked?"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title[:200]),
        tag("style", Html(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the answer", href="#answer", cls="skip"),
        _header(evidence, title),
        tag("main", tag("noscript", tag("p", _NO_SCRIPT)), *_sections(evidence)),
        tag("footer", tag("p", _FOOT)),
        _script(_island(_data(evidence)), type="application/json", id="data"),
        *map(_script, scripts),
    )  # fmt: skip
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _header(evidence: Evidence, title: str) -> Html:
    links = [tag("li", tag("a", name, href=f"#{at}")) for at, name in _SECTIONS]
    return join(
        (
            tag(
                "header",
                tag("h1", tag("bdi", title[:300])),
                tag("p", f"{pages.title_of(evidence).capitalize()}. ", cls="subtitle"),
                tag("p", pages.summary_line(evidence), cls="muted"),
                tag("nav", tag("ol", *links), aria_label="On this page"),
            ),
            pages.chooser(evidence),
        )
    )


def _sections(evidence: Evidence) -> list[Html]:
    titles = dict(_SECTIONS)

    def follow(render: Any) -> Html:
        return pages.per_candidate(evidence, lambda each: render(evidence, each))

    content: dict[str, list[Any]] = {
        "answer": [
            follow(pages.answer_panel),
            tag("details", tag("summary", "The groups"), pages.groups_list(evidence)),
        ],
        "tables": [follow(pages.tables_panel), pages.heat_key(evidence)],
        "frontier": [
            tag("p", _how_to_read(evidence)),
            _chart("frontier", "Accuracy against disparity of every ranker; the table below has "
                               "the same figures."),
            pages.choice_table(evidence),
        ],
        "learnt": [follow(pages.weights_panel)],
        "rankings": [pages.rankings(evidence)],
        "exposure": _exposure(evidence, follow(pages.exposure_panel)),
        "caveats": [pages.per_candidate(evidence, pages.caveats_panel)],
        "again": [pages.provenance_list(evidence)],
    }  # fmt: skip
    return [pages.section(name, titles[name], *content[name]) for name, _ in _SECTIONS]


def _how_to_read(evidence: Evidence) -> str:
    """The frontier's marks and lines, those that it has."""
    text = (
        "Each mark is a ranker, with its intervals: further left is more even, higher is more "
        "accurate. The ring is the chosen one"
    )
    if evidence.tolerance is not None:
        text += "; the dashed line is the tolerance"
    if any(each.weights is not None for each in evidence.candidates):
        text += "; the dotted one is the way from the first ranker to the reweighted one"
    return f"{text}."


def _exposure(evidence: Evidence, by_group: Html) -> list[Html]:
    parts = [by_group]
    if any(each.positions for each in evidence.candidates):
        parts += [
            tag("h3", "Share of each position"),
            _chart("positions", "Which share of the first positions each group holds. Dotted: "
                                "before. With marks: after.", pages.positions_key(evidence)),
        ]  # fmt: skip
    if any(each.histogram for each in evidence.candidates):
        favoured = quote(evidence.gap[0]) if evidence.gap else "the first group"
        parts += [
            tag("h3", "Query by query"),
            _chart("histogram", f"How many queries have which gap between {between(evidence)}, in "
                                f"{what_is_measured(evidence)}. Right of 0, it favours "
                                f"{favoured}.", pages.histogram_key()),
        ]  # fmt: skip
    parts.append(tag("h3", "How the multipliers came to rest"))
    if len(evidence.rounds) > 1:
        text = f"The multiplier λ of each cell, retraining by retraining. {evidence.outcome or ''}"
        parts.append(_chart("rounds", text, pages.rounds_key(evidence)))
    elif evidence.outcome:
        parts.append(tag("p", evidence.outcome))
    rounds = pages.rounds_table(evidence)
    return [*parts, tag("details", tag("summary", "Every retraining"), rounds)]


def _chart(name: str, text: str, key: Html = Html()) -> Html:  # noqa: B008 - it is a str
    frame = tag("div", id=f"chart-{name}", cls="chart", role="img", aria_label=text)
    return tag("figure", key, frame, tag("figcaption", text))


def _data(evidence: Evidence) -> dict[str, Any]:
    return {
        "charts": charts.draw(evidence),
        "points": [charts.columns(evidence, each) for each in evidence.candidates],
        "names": [pages.named_text(each.name) for each in evidence.candidates],
        "after": evidence.after,
    }


def _island(data: Any) -> str:
    """JSON that cannot end its script element, nor a line of it."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _script(text: str, **attributes: str) -> Html:
    said = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<script{said}>{text}</script>")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _asset(name: str) -> str:
    return files("pairity.reports").joinpath("static", name).read_text(encoding="utf-8")
