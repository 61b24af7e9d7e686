"""collect: measure rankers on held-out queries for a report.

Everything that a report shows is measured here, once; `pairity.reports.report` only displays it.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from pairity._utils.progress import Progress
from pairity.audits.audit import Audit, audit, name_constraints
from pairity.audits.estimates import groups_of_largest_gap
from pairity.baselines.methods import Method, Rankings
from pairity.comparisons.frontiers import Frontier
from pairity.comparisons.runs import Point, run_label
from pairity.constraints import CATALOGUE, as_constraint
from pairity.data.columns import as_numbers
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityWarning
from pairity.reports import observations
from pairity.reports.caveats import add_caveats
from pairity.reports.evidence import Candidate, Evidence, ShownQuery, Table
from pairity.reports.observations import Observer
from pairity.reports.remedies import list_remedies
from pairity.reweighting.fair_ranker import FairRanker
from pairity.reweighting.weights import PairWeights

_NOT_SHOWN = (
    "average_precision", "awrf", "ndkl", "exposure_trec", "exposure_to_merit", "click_to_merit",
    "ndcg_within",
)  # fmt: skip
REMEDY = "remedy"  # the method of rankers that were tried because the fit missed its tolerance
_MAX_FITTED = 6  # points of a Pareto front that are fitted again for a report


@dataclass(frozen=True, eq=False)
class Scored:
    """A ranker to show: its scores of the held-out items, and what is known about it.

    Attributes
    ----------
    scores : array of shape (n_items,)
    method : str, by default its name; rankers of one method share a colour
    weights : PairWeights or None
    needs_group : bool, whether it reads the groups of the items that it ranks
    note : str
    """

    scores: Any
    method: str = ""
    weights: PairWeights | None = None
    needs_group: bool = False
    note: str = ""


@dataclass(frozen=True, eq=False)
class Options:
    """The options that `collect`, `collect_training` and `collect_sweep` accept as keywords.

    Attributes
    ----------
    constraint : str, Constraint or function, optional
        The disparity that the report is about; by default the model's, or "inter".
    tolerance : float, optional
        The largest violation that is acceptable; by default the model's.
    before, after : str, optional
        The rankers that the page compares first; by default the first and the last.
    items : sequence of shape (n_items,), optional
        The names of the items; by default their row numbers.
    attributes : sequence of str
        The columns from which the groups were made.
    provenance : mapping from str to any value that prints
        How to reproduce the report: command line, files, versions.
    title : str
        The heading.
    confidence, n_resamples, random_state
        Of all intervals, as in `pairity.audit`.
    """

    constraint: Any = "inter"
    tolerance: float | None = None
    before: str | None = None
    after: str | None = None
    items: Sequence[Any] | None = None
    attributes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    confidence: float = 0.95
    n_resamples: int = 1000
    random_state: int = 0

    @property
    def sampling(self) -> dict[str, Any]:
        """The settings of intervals."""
        return {name: getattr(self, name) for name in ("confidence", "n_resamples", "random_state")}


def collect(
    queries: Queries,
    rankers: Mapping[str, Any],
    *,
    model: FairRanker | None = None,
    frontier: Frontier | None = None,
    audits: Mapping[str, Audit] | None = None,
    **options: Any,
) -> Evidence:
    """Measure rankers on held-out queries, for `pairity.Report`.

    Parameters
    ----------
    queries : Queries
        No ranker may have been trained on them.
    rankers : mapping from a name to scores of shape (n_items,), or to `Scored`
    model : FairRanker, fitted, optional
        Supplies the constraint, the tolerance, the pair weights of `after`, the rounds, the
        outcome of the fit and its data.
    frontier : Frontier, optional
        A sweep whose points are shown too; they have estimates and no rankings.
    audits : mapping from a name to an Audit of the same scores, optional
        Audits that need not be computed again.
    **options
        See `Options`.
    """
    settings = {name: value for name, value in options.items() if value is not None}
    if model is not None:
        inherited = {"constraint": model.constraint, "tolerance": model.outcome_.tolerance}
        settings = {**inherited, **settings}
    chosen = Options(**settings)
    scored = {name: _as_scored(name, ranker) for name, ranker in rankers.items()}
    names = list(scored)
    before, after = _compared(chosen, names)
    if model is not None and scored[after].weights is None:
        scored[after] = replace(scored[after], weights=model.pair_weights_)
    constraint = as_constraint(chosen.constraint)
    label = next(iter(name_constraints(constraint)))
    audited = list({**{name: name for name in CATALOGUE}, label: constraint}.values())
    observer = Observer(queries, constraint, label, scored[before].scores, **chosen.sampling)
    queries_shown, rankings = _rankings(observer, scored, chosen.items)
    candidates = []
    for name, ranker in scored.items():
        result = (audits or {}).get(name) or audit(
            queries, ranker.scores, constraints=audited, name=name, **chosen.sampling
        )
        candidate = Candidate(
            name=name,
            method=ranker.method or name,
            needs_group=ranker.needs_group,
            changes=() if name == before else tuple(observer.changes(ranker.scores)),
            weights=None if ranker.weights is None else _table(ranker.weights.table),
            mirrored=None if ranker.weights is None else _table(ranker.weights.mirrored),
            positions=_table(observations.position_shares(queries, ranker.scores)),
            histogram=observer.histogram(ranker.scores),
            note=ranker.note,
            **rankings[name],
            **_audited(result, label),
        )
        candidates.append(candidate)
    return _evidence(
        chosen,
        candidates=(*candidates, *_frontier_candidates(frontier, label, names)),
        constraint=label,
        definition=repr(constraint)[:500],
        groups=queries.groups,
        before=names.index(before),
        after=names.index(after),
        remedies=tuple(n for n, name in enumerate(names) if scored[name].method == REMEDY),
        bins=observations.BINS if observer.pairwise else (),
        queries=queries_shown,
        n_queries=queries.n_queries,
        **({} if model is None else observations.describe_fit(model)),
    )


def collect_training(
    plain: Any,
    model: FairRanker,
    train: Queries,
    test: Queries,
    *,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    scores: Mapping[str, Any] | None = None,
    remedies: bool = True,
    **options: Any,
) -> Evidence:
    """Measure a fitted model, the plain ranker and rankers between them on held-out queries.

    Parameters
    ----------
    plain : ranker, fitted on the same queries without weights
    model : FairRanker, fitted
    train : Queries, the queries on which `model` was fitted
    test : Queries, held out
    shares : sequence of float
        Rankers between the two, and beyond, as shares of λ; each is trained once.
    scores : mapping from "plain" and "reweighted" to scores of `test`, optional
        Predictions that need not be made again.
    remedies : bool
        Whether to try what may reach further if the fit missed its tolerance: see
        `pairity.reports.remedies`.
    **options
        Those of `collect`. Versions, settings and digests are added to the provenance.

    Examples
    --------
    >>> from pairity import FairRanker, LinearRanker
    >>> from pairity.datasets import make_biased_ranking
    >>> from pairity.reports.collect import collect_training
    >>> train, test = make_biased_ranking(60, 20, random_state=0).queries().split(0.3, 0)
    >>> plain, fair = FairRanker(max_rounds=0).fit(**train), FairRanker().fit(**train)
    >>> collect_training(plain, fair, train, test, shares=[0.5], n_resamples=100)
    Evidence(constraint='inter', candidates=['plain', '50 % of the way', 'reweighted'])
    """
    if scores is None:
        scores = {"plain": plain.predict(test.X), "reweighted": model.predict(test)}
    rankers = {
        "plain": Scored(scores["plain"]),
        **_along_path(model, train, test, shares),
        "reweighted": Scored(scores["reweighted"], method="reweighted"),
        **(_try_remedies(model, train, test, options.get("random_state", 0)) if remedies else {}),
    }
    options.setdefault("after", "reweighted")
    origin = observations.provenance(model, train, test)
    options["provenance"] = {**options.get("provenance", {}), **origin}
    return collect(test, rankers, model=model, **options)


def collect_sweep(
    frontier: Frontier,
    methods: Iterable[Method],
    train: Queries,
    test: Queries,
    *,
    constraint: str,
    after: Point,
    **options: Any,
) -> Evidence:
    """Measure the best points of a sweep, which are fitted again.

    Parameters
    ----------
    frontier : Frontier, the result of `sweep`
    methods : the methods of the sweep
    train, test : Queries, one of its splits
    constraint : str, one of the constraints that it measured
    after : Point
        The point that is compared with the first point when the page opens.
    **options
        Those of `collect`; `random_state` is the seed of the split.

    Notes
    -----
    The first point, `after`, and up to six points of the Pareto front are fitted again. Of
    rankings that are drawn at random, one draw is shown. All other points have estimates only.
    """
    seed = options.get("random_state", 0)
    known = {run_label(method.name, method.settings): method for method in methods}
    rankers = {}
    for point in (frontier.points[0], *frontier.front(constraint)[:_MAX_FITTED], after):
        name = _point_name(frontier, point)
        if point.label not in known or name in rankers:
            continue
        rankers[name] = _score(known[point.label], train, test, seed)
    options |= {"constraint": constraint, "after": _point_name(frontier, after)}
    return collect(test, rankers, frontier=frontier, **options)


def collect_audits(
    audits: Iterable[Audit],
    *,
    constraint: str | None = None,
    tolerance: float | None = None,
    frontier: Frontier | None = None,
    title: str = "",
) -> Evidence:
    """What audits alone show: everything except rankings, positions and paired changes.

    Parameters
    ----------
    audits : sequence of Audit, of the same queries
        The first is compared with the last when the page opens.
    constraint : str, optional
        The violation that the report is about; by default "inter" if it was measured, otherwise
        the first that was.
    tolerance, frontier, title
        As in `collect`.
    """
    results = list(audits)
    if not results:
        raise InputError("There is no audit to report on. Pass at least one.")
    first = results[0]
    size = attrgetter("groups", "n_queries", "n_items")
    for result in results[1:]:
        if size(result) != size(first):
            raise InputError(
                f"The audits {first.name!r} and {result.name!r} are of different queries or "
                "groups. Audit all rankers on the same held-out queries."
            )
    measured = first.violation
    label = constraint or ("inter" if "inter" in measured else next(iter(measured), ""))
    if any(label not in result.violation for result in results):
        raise InputError(
            f"The violation {label!r} is not in every audit. Audit with the same constraints."
        )
    candidates = [
        Candidate(name=name, method=name, **_audited(result, label))
        for number, result in enumerate(results, start=1)
        for name in [result.name or f"ranker {number}"]
    ]
    return _evidence(
        Options(title=title, tolerance=tolerance, confidence=first.confidence, n_resamples=0),
        candidates=(*candidates, *_frontier_candidates(frontier, label)),
        constraint=label,
        definition=label,
        groups=first.groups,
        before=0,
        after=len(results) - 1,
        n_queries=first.n_queries,
    )


def _evidence(options: Options, **facts: Any) -> Evidence:
    """Evidence with its caveats."""
    audited, key = facts["candidates"][facts["before"]].audit, ("gap", facts["constraint"])
    estimates = audited.estimates if audited else ()
    gaps = [e for e in estimates if (e.measure, e.constraint) == key and not np.isnan(e.value)]
    evidence = Evidence(
        title=options.title,
        tolerance=options.tolerance,
        confidence=float(options.confidence),
        n_resamples=int(options.n_resamples),
        attributes=tuple(map(str, options.attributes)),
        provenance=tuple((str(key), str(text)) for key, text in options.provenance.items()),
        gap=groups_of_largest_gap(gaps),
        **facts,
    )
    return add_caveats(evidence)


def _compared(options: Options, names: list[str]) -> tuple[str, str]:
    """The names of the two rankers that the page compares first."""
    if not names:
        raise InputError("There is no ranker to report on. Pass at least one with its scores.")
    before, after = options.before or names[0], options.after or names[-1]
    for name in {before, after}.difference(names):
        raise InputError(f"There is no ranker {name!r}. Choose one of {', '.join(names)}.")
    return before, after


# --- candidates ----------------------------------------------------------------------------------


def _as_scored(name: str, ranker: Any) -> Scored:
    scored = ranker if isinstance(ranker, Scored) else Scored(ranker)
    return replace(scored, scores=as_numbers(scored.scores, f"the scores of {name!r}", None))


def _rankings(
    observer: Observer, scored: Mapping[str, Scored], items: Sequence[Any] | None
) -> tuple[tuple[ShownQuery, ...], dict[str, dict[str, Any]]]:
    """The queries that are shown, and the order and scores of their first items by ranker."""
    queries = observer.queries
    shown = observations.choose_queries(queries, observer.gaps(observer.first))
    tops = {name: observations.top_rows(queries, r.scores, shown) for name, r in scored.items()}
    listed = observations.list_queries(observer, shown, tops.values(), items)
    rankings: dict[str, dict[str, Any]] = {}
    for name, ranker in scored.items():
        pairs = zip(listed, tops[name], strict=True)
        rankings[name] = {
            "tops": tuple(tuple(map(rows.index, top)) for (_, rows), top in pairs),
            "scores": _table(ranker.scores[top] for top in tops[name]),
        }
    return tuple(query for query, _ in listed), rankings


def _score(method: Method, train: Queries, test: Queries, seed: int, note: str = "") -> Scored:
    """Fit a method and score the held-out queries, without warnings about missed targets."""
    with warnings.catch_warnings(action="ignore", category=PairityWarning):
        scores = method(train, test, seed)
    if isinstance(scores, Rankings):
        scores = scores.sample(test, seed)
        note = note or "It draws its order at random; one draw is shown."
    return Scored(scores, method.name, None, method.needs_group, note)


def _try_remedies(model: FairRanker, train: Queries, test: Queries, seed: int) -> dict[str, Scored]:
    """What may reach further than a fit that missed its tolerance; one that fails is left out."""
    tried, known = {}, list_remedies(model, train, test)
    with Progress(len(known), "Trying remedies", model.progress) as progress:
        for number, (name, method, note) in enumerate(known):
            progress.advance(number, name)
            try:
                tried[name] = replace(_score(method, train, test, seed, note), method=REMEDY)
            except Exception as error:  # a remedy must not cost the report
                message = f"The remedy {name!r} is not in the report, because it failed: {error}"
                warnings.warn(message, PairityWarning, stacklevel=3)
    return tried


def _along_path(
    model: FairRanker, train: Queries, test: Queries, shares: Sequence[float]
) -> dict[str, Scored]:
    """Rankers between the plain ranker and the model, trained with x · λ*."""
    if not len(shares):
        return {}
    path = model.path(**train, values=list(shares), test=test, keep_models=True)
    return {
        f"{100 * point.x:.0f} % of the way": Scored(
            point.model.predict(test.X),
            method="reweighted",
            weights=point.pair_weights,
            note=f"Trained with {point.x:g} times the multipliers λ of the reweighted ranker.",
        )
        for point in path.points
    }


def _frontier_candidates(
    frontier: Frontier | None, label: str, known: Collection[str] = ()
) -> Iterator[Candidate]:
    """The other points of a sweep, as candidates with estimates only."""
    if frontier is None:
        return
    if label not in frontier.constraints:
        raise InputError(
            f"The report is about the violation {label!r}, but the sweep measured "
            f"{', '.join(map(repr, frontier.constraints))}. Add it to the sweep's constraints."
        )
    for point in frontier.points:
        name, estimates = _point_name(frontier, point), point.test or point.validation
        if name not in known and estimates:
            mean = f", the mean of {len(point.runs)} seeds" if len(point.runs) > 1 else ""
            values, note = tuple(estimates.values()), f"From a sweep{mean}."
            yield Candidate(name, point.method, point.needs_group, values, note=note)


def _point_name(frontier: Frontier, point: Point) -> str:
    """The method, with the settings that distinguish it from others."""
    settings = frontier.distinct_settings(point)
    return f"{point.method}, {settings}" if settings else point.method


def _audited(result: Audit, label: str) -> dict[str, Any]:
    """The main estimates of an audit, and the audit without estimates that reports do not show."""
    main = [result.estimate("auc"), result.estimate(f"ndcg@{max(result.k)}")]
    main += [e for e in result.estimates if e.measure in ("violation", "noise_floor")]
    kept = [e for e in result.estimates if not e.measure.startswith(_NOT_SHOWN)]
    shown = tuple(e for e in kept if not e.measure.startswith("gap") or e.constraint == label)
    return {"estimates": tuple(main), "audit": replace(result, estimates=shown)}


def _table(rows: Iterable[Any]) -> Table:
    """Rows of numbers with six significant digits, which is enough for a page."""
    return tuple(tuple(float(f"{value:.6g}") for value in row) for row in rows)
