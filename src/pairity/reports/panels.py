"""The page of a report: a Jinja2 template, and what it needs to know of the evidence."""

from __future__ import annotations

from functools import cache
from typing import Any

from pairity._utils.html import escape
from pairity._utils.text import shorten
from pairity.audits.audit import Audit
from pairity.audits.estimates import FEW_PAIRS, FEW_QUERIES, Estimate
from pairity.constraints import CATALOGUE
from pairity.reports import charts, prose
from pairity.reports.evidence import Candidate, Evidence

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


def render(evidence: Evidence, **page: Any) -> str:
    """The page as HTML; `page` holds its policy, style, scripts, data and charts."""
    audit = _first_audit(evidence)
    estimates = [e for candidate in evidence.candidates for e in candidate.estimates]
    names = [estimate.constraint for estimate in estimates if estimate.constraint]
    constraint = CATALOGUE.get(evidence.constraint)
    favoured = prose.quote(evidence.gap[0]) if evidence.gap else "the first group"
    items = "" if audit is None else f", {prose.count(audit.n_items, 'item')}"
    return str(
        _template().render(
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
            **page,
        )
    )


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
    found = (e for e in candidate.estimates if e.measure.startswith("ndcg"))
    return next(found, Estimate("ndcg"))
