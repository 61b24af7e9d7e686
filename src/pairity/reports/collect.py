"""collect: measures rankers on held-out queries for a report.

Everything that a page shows is measured here, once; `pairity.reports` only draws it.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity.audits.audit import Audit, audit, name_constraints
from pairity.audits.estimates import Support
from pairity.baselines.methods import Method, Rankings
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.points import Point
from pairity.comparisons.runs import run_label
from pairity.constraints import CATALOGUE, Constraint, as_constraint
from pairity.data.columns import as_numbers
from pairity.data.digest import digest
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning
from pairity.reports.caveats import add_caveats
from pairity.reports.evidence import HELD_OUT, Candidate, Evidence, RoundSeen, Table
from pairity.reports.observations import (
    BINS,
    Observed,
    choose_queries,
    list_queries,
    position_shares,
    top_rows,
)
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.weights import make_weigher

_LEFT_OUT = (
    "average_precision", "awrf", "ndkl", "exposure_trec", "exposure_to_merit", "click_to_merit",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scored:
    """A ranker to show: its scores of the held-out items, and what there is to say of it.

    Attributes
    ----------
    scores : array of shape (n_items,)
    method : str, by default its name; rankers of one method share a colour
    weights : K × K table or None
    needs_group : bool, whether it reads the groups of the items it ranks
    note : str
    """

    scores: Any
    method: str = ""
    weights: Any = None
    needs_group: bool = False
    note: str = ""


def collect(
    queries: Queries,
    rankers: Mapping[str, Any],
    *,
    model: FairRanker | None = None,
    constraint: Any = None,
    tolerance: float | None = None,
    before: str | None = None,
    after: str | None = None,
    frontier: Frontier | None = None,
    items: Sequence[Any] | None = None,
    attributes: Sequence[str] = (),
    audits: Mapping[str, Audit] | None = None,
    provenance: Mapping[str, Any] | None = None,
    title: str = "",
    confidence: float = 0.95,
    n_resamples: int = 1000,
    random_state: int = 0,
) -> Evidence:
    """Measure rankers on held-out queries, for `pairity.Report`.

    Parameters
    ----------
    queries : Queries
        That none of the rankers was trained on.
    rankers : mapping from a name to scores of shape (n_items,), or to `Scored`
    model : FairRanker, fitted, optional
        Says the constraint, the tolerance, the pair weights of `after`, the rounds, how the fit
        ended and on which data.
    constraint : str, Constraint or function, optional
        The disparity that the page is about; by default the model's, or "inter".
    tolerance : float, optional
        The violation to come within; by default the model's.
    before, after : str, optional
        The two rankers compared when the page opens; by default the first and the last.
    frontier : Frontier, optional
        A sweep whose points are drawn as well; it has figures of them, and no rankings.
    items : sequence of shape (n_items,), optional
        What to call the items; by default their row numbers.
    attributes : sequence of str
        The columns that the groups were made of.
    audits : mapping from a name to an Audit of the same scores, optional
        So that they need not be measured again.
    provenance : mapping from str to anything that prints, optional
        How to get it again: command line, files, versions.
    title : str
        The heading, where it is to be another.
    confidence, n_resamples, random_state
        Of all intervals, as in `pairity.audit`.
    """
    held = {name: _as_scored(name, each) for name, each in rankers.items()}
    if not held:
        raise InputError("There is no ranker to show. Give at least one with its scores.")
    first, last = before or next(iter(held)), after or list(held)[-1]
    for name in (first, last):
        if name not in held:
            raise InputError(f"There is no ranker {name!r}; there are {', '.join(held)}.")
    if constraint is None:
        constraint = "inter" if model is None else model.constraint
    chosen = as_constraint(constraint)
    if tolerance is None and model is not None:
        tolerance = float(model.tolerance)
    if model is not None and held[last].weights is None:
        held[last] = replace(held[last], weights=model.pair_weights_.table)
    label, constraints = _constraints(chosen)
    observed = Observed(
        queries, chosen, label, held[first].scores, confidence, n_resamples, random_state
    )
    shown = choose_queries(queries, observed.gaps(held[first].scores))
    tops = {name: top_rows(queries, each.scores, shown) for name, each in held.items()}
    listed = list_queries(queries, observed, shown, tops, items)
    candidates = []
    for name, each in held.items():
        result = (audits or {}).get(name) or audit(
            queries, each.scores, constraints=constraints, confidence=confidence,
            n_resamples=n_resamples, random_state=random_state, name=name,
        )  # fmt: skip
        rows = [
            [query.rows.index(row) for row in top]
            for query, top in zip(listed, tops[name], strict=True)
        ]
        candidates.append(
            Candidate(
                name=name,
                method=each.method or name,
                needs_group=each.needs_group,
                estimates=_estimates(result),
                audit=_trimmed(result, label),
                changes=() if name == first else observed.changes(each.scores),
                weights=None if each.weights is None else _table(each.weights),
                positions=_table(position_shares(queries, each.scores)),
                histogram=observed.histogram(each.scores),
                tops=tuple(map(tuple, rows)),
                scores=_table(each.scores[list(top)] for top in tops[name]),
                note=each.note,
            )
        )
    candidates += of_frontier(frontier, label, held)
    made = Evidence(
        title=title,
        constraint=label,
        definition=repr(chosen)[:500],
        tolerance=tolerance,
        confidence=float(confidence),
        n_resamples=int(n_resamples),
        groups=queries.groups,
        attributes=tuple(map(str, attributes)),
        gap=widest_gap(candidates[list(held).index(first)], label),
        candidates=tuple(candidates),
        before=list(held).index(first),
        after=list(held).index(last),
        bins=BINS if observed.pairwise else (),
        queries=tuple(query.shown for query in listed),
        n_queries=queries.n_queries,
        rounds=() if model is None else _rounds(model),
        lambda_cells=() if model is None else _lambda_cells(model),
        outcome=None if model is None else model.outcome_,
        provenance=tuple((str(key), str(value)) for key, value in (provenance or {}).items()),
    )
    return add_caveats(made)


def collect_training(
    plain: Any,
    model: FairRanker,
    train: Queries,
    test: Queries,
    *,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    provenance: Mapping[str, Any] | None = None,
    **options: Any,
) -> Evidence:
    """What a fitted model and the plain ranker do on held-out queries, and rankers between them.

    Parameters
    ----------
    plain : ranker, fitted on the same queries without weights
    model : FairRanker, fitted
    train : Queries, what `model` was fitted on
    test : Queries, held out
    shares : sequence of float
        Rankers between the two, and beyond, as shares of the way; one training for each.
    provenance : mapping
        Put in front of the versions, settings and digests, which are added.
    **options
        Handed on to `collect`.

    Examples
    --------
    >>> from pairity import FairRanker, LinearRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.reports.collect import collect_training
    >>> train, test = make_biased_ranking(60, 20, random_state=0).queries().split(0.3, 0)
    >>> plain, fair = FairRanker(max_rounds=0).fit(**train), FairRanker().fit(**train)
    >>> evidence = collect_training(plain, fair, train, test, shares=[0.5], n_resamples=100)
    >>> evidence
    Evidence(constraint='inter', candidates=['plain', '50 % of the way', 'reweighted'])
    """
    rankers = {
        "plain": Scored(plain.predict(test.X)),
        **along_path(model, train, test, shares),
        "reweighted": Scored(model.predict(test.X), method="reweighted"),
    }
    told = {**(provenance or {}), **_provenance(model, train, test)}
    return collect(test, rankers, model=model, provenance=told, **options)


def collect_sweep(
    frontier: Frontier,
    methods: Iterable[Method],
    train: Queries,
    test: Queries,
    *,
    constraint: str,
    after: Point,
    random_state: int = 0,
    **options: Any,
) -> Evidence:
    """A sweep with everything about its best points, which are fitted once more.

    Parameters
    ----------
    frontier : Frontier, what `sweep` returned
    methods : the methods that were swept
    train, test : Queries, one of its splits
    constraint : str, one of those it measured
    after : Point
        The one compared with the first point when the page opens.
    random_state : int, the seed of that split
    **options
        Handed on to `collect`.

    Notes
    -----
    Fitted once more are the first point, `after`, and the Pareto front, eight in all at most. Of
    an order that is drawn at random, one draw is shown. All other points have figures alone.
    """
    known = {run_label(method.name, method.settings): method for method in methods}
    wanted = {
        _point_name(frontier, point): known[point.label]
        for point in (frontier.points[0], *frontier.front(constraint)[:6], after)
        if point.label in known
    }
    rankers = {}
    for name, method in wanted.items():
        note = ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PairityWarning)  # the sweep has warned of it
            scores = method(train, test, random_state)
        if isinstance(scores, Rankings):
            scores = scores.sample(test, random_state)
            note = "It draws its order at random; one draw is shown."
        rankers[name] = Scored(scores, method.name, None, method.needs_group, note)
    return collect(
        test, rankers, constraint=constraint, frontier=frontier,
        after=_point_name(frontier, after), random_state=random_state, **options,
    )  # fmt: skip


def collect_audits(
    audits: Iterable[Audit],
    *,
    constraint: str | None = None,
    tolerance: float | None = None,
    frontier: Frontier | None = None,
    title: str = "",
) -> Evidence:
    """What audits alone can show: all but rankings, exposure by position and paired changes.

    Parameters
    ----------
    audits : sequence of Audit, of the same queries
        The first is compared with the last when the page opens.
    constraint : str, optional
        The violation that the page is about; by default "inter" where it was measured, otherwise
        the first that was.
    tolerance, frontier, title
        As in `collect`.
    """
    held = list(audits)
    if not held:
        raise InputError("There is no audit to show. Give at least one.")
    one = held[0]
    for other in held[1:]:
        if (other.groups, other.n_queries, other.n_items) != (
            one.groups,
            one.n_queries,
            one.n_items,
        ):
            raise InputError(
                f"The audits {one.name!r} and {other.name!r} are of different queries or groups. "
                "Audit all rankers on the same held-out queries."
            )
    names = list(one.violation)
    label = constraint or ("inter" if "inter" in names else next(iter(names), ""))
    if any(label not in other.violation for other in held):
        raise InputError(
            f"The violation {label!r} is not in every audit. Audit with the same constraints."
        )
    titles = [each.name or f"ranker {at + 1}" for at, each in enumerate(held)]
    candidates = [
        Candidate(name=name, method=name, estimates=_estimates(each), audit=_trimmed(each, label))
        for name, each in zip(titles, held, strict=True)
    ]
    made = Evidence(
        title=title,
        constraint=label,
        definition=label,
        tolerance=tolerance,
        confidence=one.confidence,
        n_resamples=0,
        groups=one.groups,
        attributes=(),
        gap=widest_gap(candidates[0], label),
        candidates=(*candidates, *of_frontier(frontier, label)),
        before=0,
        after=len(held) - 1,
        n_queries=one.n_queries,
    )
    return add_caveats(made)


def along_path(
    model: FairRanker, train: Queries, test: Queries, shares: Sequence[float]
) -> dict[str, Scored]:
    """Rankers between the plain one and this one, for `collect`: trained with x · λ*."""
    if not len(shares):
        return {}
    path = model.path(**train, values=list(shares), test=test, keep_models=True)
    kind = as_constraint(model.constraint)
    weigher = make_weigher(kind, train, model.lambda_.shape, model.enumeration, model.weighting)
    return {
        f"{100 * point.x:.0f} % of the way": Scored(
            point.model.predict(test.X),
            method="reweighted",
            weights=weigher.table(point.lambda_),
            note=f"Trained with {point.x:g} times the multipliers λ of the reweighted ranker.",
        )
        for point in path.points
    }


def of_frontier(
    frontier: Frontier | None, label: str, known: Collection[str] = ()
) -> list[Candidate]:
    """The points of a sweep that are not known yet, as candidates that have figures alone."""
    if frontier is None:
        return []
    if label not in frontier.constraints:
        raise InputError(
            f"The sweep did not measure the violation {label!r}, which the report is about, but "
            f"{', '.join(map(repr, frontier.constraints))}. Sweep with it."
        )
    return [
        Candidate(
            name=name,
            method=point.method,
            needs_group=point.needs_group,
            estimates=tuple(estimates.values()),
            note=f"From a sweep, the mean of {len(point.runs)} seeds."
            if len(point.runs) > 1
            else "From a sweep.",
        )
        for point in frontier.points
        if (name := _point_name(frontier, point)) not in known
        and (estimates := point.test or point.validation)
    ]


def _point_name(frontier: Frontier, point: Point) -> str:
    """The method, with the settings that tell it from others."""
    telling = frontier.telling(point)
    return f"{point.method}, {telling}" if telling else point.method


def _provenance(model: FairRanker, train: Queries, test: Queries) -> dict[str, str]:
    """Versions, settings and digests."""
    engine = type(model.ranker_).__module__.rpartition(".")[2]
    libraries = ("pairity", "numpy", "scikit-learn", engine)
    return {
        "trained on": _size(train),
        "training data, SHA-256": model.training_digest_,
        "measured on": _size(test),
        HELD_OUT: digest(test),
        "model": " ".join(repr(model).split()),
        "versions": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {found}" for name in libraries if (found := _version(name))]
        ),
    }


def _size(queries: Queries) -> str:
    pairs = int(Support(queries).all_pairs().sum())
    return f"{queries.n_queries:,} queries, {queries.n_items:,} items, {pairs:,} preference pairs"


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def widest_gap(candidate: Candidate, label: str) -> tuple[str, ...]:
    """The two groups of the largest gap, the favoured one first."""
    result = candidate.audit
    gaps = (
        [f for f in result.estimates if f.measure == "gap" and f.constraint == label]
        if result
        else []
    )
    known = [gap for gap in gaps if gap.value == gap.value]
    if not known:
        return ()
    widest = max(known, key=lambda gap: abs(gap.value))
    ends = (str(widest.group), str(widest.other))
    return ends if widest.value >= 0 else ends[::-1]


# --- from what is there already -------------------------------------------------------------------


def _as_scored(name: str, given: Any) -> Scored:
    held = given if isinstance(given, Scored) else Scored(given)
    return replace(held, scores=as_numbers(held.scores, f"the scores of {name!r}", None))


def _constraints(chosen: Constraint) -> tuple[str, list[Any]]:
    """What the audits measure: the catalogue, with the chosen one in place of its namesake."""
    label = next(iter(name_constraints(chosen)))
    others = [name for name in CATALOGUE if name != label]
    if label in CATALOGUE:
        return label, [chosen if name == label else name for name in CATALOGUE]
    return label, [*others, chosen]


def _estimates(result: Audit) -> tuple[Any, ...]:
    overall = [result.estimate("auc"), result.estimate(f"ndcg@{max(result.k)}")]
    return (*overall, *(f for f in result.estimates if f.measure == "violation"))


def _trimmed(result: Audit, label: str) -> Audit:
    """An audit without the figures that no report shows."""
    kept = tuple(
        estimate
        for estimate in result.estimates
        if estimate.measure not in _LEFT_OUT
        and not estimate.measure.startswith("ndcg_within")
        and not (estimate.measure.startswith("gap") and estimate.constraint != label)
    )
    return replace(result, estimates=kept)


def _table(rows: Iterable[Any]) -> Table:
    return tuple(tuple(float(f"{value:.6g}") for value in row) for row in rows)


def _rounds(model: FairRanker) -> tuple[RoundSeen, ...]:
    return tuple(
        RoundSeen(
            number=int(each.number),
            lambda_=tuple(float(value) for value in each.lambda_[_free(model)]),
            violation=float(each.violation),
            auc=float(each.auc),
        )
        for each in model.history_
    )


def _free(model: FairRanker) -> NDArray[np.bool_]:
    """The entries of λ that ever moved."""
    return np.asarray(np.any([each.lambda_ != 0.0 for each in model.history_], axis=0))


def _lambda_cells(model: FairRanker) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(cell) for cell in np.argwhere(_free(model)).tolist())
