"""Algorithm 1: measure, move lambda, weigh the pairs, retrain; pure functions.

λ has one entry per cell (k, l), or per group; a preference pair in cell (k, l) weighs W_kl. That
K × K table is all that is learnt about the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone

from pairity._utils.typing import Array
from pairity.constraints import (
    Constraint,
    Contrasts,
    largest_gap,
)
from pairity.data.queries import Queries
from pairity.exceptions import ConstraintError, InputError, PairityError, TrainingError
from pairity.pairs.cells import mean_auc
from pairity.rankers.base import Ranker
from pairity.reweighting.interleaving import DualAscent
from pairity.reweighting.solvers import Foresight, Solver, settle
from pairity.reweighting.weights import Weigher, make_weigher

_RESPONSE_ITEMS = 12_000  # items on which the response is estimated
_RESPONSE_STEP = 0.5  # exponents to either side


class Outcome(Enum):
    """How a fit ended; the value is a sentence for the user."""

    WITHIN_TOLERANCE = "The violation came within the tolerance."
    NO_ROUNDS = "No reweighting was asked for: this is the plain ranker."
    ROUNDS_EXHAUSTED = (
        "The rounds ran out before the violation came within the tolerance; the round least in "
        "violation was kept. More rounds may help."
    )
    UNREACHABLE = (
        "The tolerance seems not reachable by reweighting pairs, with this ranker and this data: "
        "no further change of the weights that was tried lowered the violation. The round least "
        "in violation was kept."
    )
    INTERRUPTED = "The fit was interrupted; the round least in violation so far was kept."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Round:
    """One round: the multipliers used, and what the ranker trained with them does.

    Attributes
    ----------
    number : int, 0 for the plain ranker
    lambda_ : array of shape (n_groups, n_groups) or (n_groups,)
    delta : array of the same shape, Δ on the queries it is measured on
    violation : float, the largest gap between compared entries of Δ
    auc : float, on the same queries
    seconds : float, for training and measuring
    """

    number: int
    lambda_: Array
    delta: Array
    violation: float
    auc: float
    seconds: float


class Recorded(Protocol):
    """Rounds kept as they end, and those that ended in an earlier run of the same fit."""

    def ended(self, number: int, lambda_: Array | None) -> tuple[Round, Any] | None:
        """A round that ended before, and its ranker."""
        ...

    def keep(self, ended: Round, model: Any) -> None:
        """Keep a round and its ranker."""
        ...


@dataclass(frozen=True, eq=False)
class Solution:
    """All rounds, the best ranker, its weight table, and how it ended."""

    rounds: tuple[Round, ...]
    best: Round
    model: Any
    table: Array
    outcome: Outcome


def foresight(
    model: Any, queries: Queries, constraint: Constraint, weigher: Weigher, lambda_: Array
) -> Foresight:
    """How Δ would follow λ from a fitted ranker that can tell how its scores follow the weights.

    The weights follow λ exactly, as far as each entry of λ moves its own; the scores are taken to
    move evenly with the weights; the hard violation, which has steps, is measured on the scores
    so moved, on a part of the queries.

    Returns
    -------
    callable, from a change of λ to the change of Δ
    """
    part = queries.thinned(max(1, queries.n_items // _RESPONSE_ITEMS))
    scores = part.each(partial(scores_of, model))
    now = constraint.delta(part, scores)
    entries = np.flatnonzero(np.isfinite(now))
    table = weigher.table(lambda_)
    units = np.zeros((len(entries), *lambda_.shape))
    for unit, entry in zip(units, entries, strict=True):
        unit.flat[entry] = 1.0
    steps = _RESPONSE_STEP * weigher.scale * units
    changes = np.array(
        [(weigher.table(lambda_ + step) - weigher.table(lambda_ - step)) / 2 for step in steps]
    )
    moves = model.response(part, table, changes)
    lengths = np.maximum(np.sum(changes**2, axis=(1, 2)), 1e-300)

    @lru_cache(maxsize=4096)  # a search comes back to the same values of an entry
    def share(at: int, change: float) -> float:
        weights = weigher.table(lambda_ + change * units[at])
        return float(np.sum((weights - table) * changes[at]) / lengths[at])

    def foreseen(change: Array) -> Array:
        shares = np.array([share(at, value) for at, value in enumerate(change.flat[entries])])
        moved = part.each(partial(_moved, shares), scores, moves)
        return np.nan_to_num(constraint.delta(part, moved) - now)

    return foreseen


def _moved(shares: Array, _queries: Queries, scores: Array, moves: Array) -> Array:
    return np.asarray(scores + shares @ moves)


def all_equal(queries: Queries) -> Array:
    """Scores that put no item above another."""
    return np.zeros(queries.n_items)


def reweight(
    queries: Queries,
    ranker: Ranker,
    constraint: Constraint,
    solver: Solver,
    *,
    max_rounds: int,
    tolerance: float,
    measured_on: Queries | None = None,
    enumeration: str = "preference",
    weighting: str = "indicator",
    schedule: str = "retrain",
    on_round: Callable[[Round], None] | None = None,
    fit_params: Mapping[str, Any] | None = None,
    checkpoint: Recorded | None = None,
) -> Solution:
    """Algorithm 1 around any ranker.

    Parameters
    ----------
    queries : Queries
        To train on.
    measured_on : Queries, optional
        Where the violation is measured; the training queries by default.
    schedule : {"retrain", "interleaved"}
        Whether the ranker is trained anew for every λ, or λ moves inside one run (`DualAscent`),
        which is repeated from where it ended only as long as that helps.
    on_round : callable, optional
        Told of every round as it ends.
    fit_params : mapping, optional
        Handed on to every fit of the ranker, such as an engine's evaluation sets.
    checkpoint : Recorded, optional
        Keeps rounds as they end; those that it has are not trained again.

    Notes
    -----
    A KeyboardInterrupt after the first round ends the loop with the best round so far.
    """
    target = queries if measured_on is None else measured_on
    unranked = constraint.delta(target, target.each(all_equal))
    if not len(Contrasts.of(unranked).first):
        raise ConstraintError(
            f"{constraint!r} compares nothing in the {target.n_queries} queries it is measured on. "
            "Measure it on more queries, or choose other groups."
        )
    weigher = make_weigher(constraint, queries, unranked.shape, enumeration, weighting)
    lambda_ = np.zeros(unranked.shape)
    state = solver.start(unranked, weigher.scale, tolerance)
    model: Any = None
    rounds: list[Round] = []
    best: tuple[Round, Any] | None = None
    outcome = Outcome.ROUNDS_EXHAUSTED if max_rounds else Outcome.NO_ROUNDS
    interleaved = schedule == "interleaved" and max_rounds > 0
    params = dict(fit_params or {})
    number = 0
    try:
        for number in range(int(interleaved), max_rounds + 1):  # round 0 is the plain ranker
            settled = None if interleaved else lambda_
            kept = None if checkpoint is None else checkpoint.ended(number, settled)
            if kept is None:
                began = time.perf_counter()
                fresh = clone(ranker, safe=False)
                with _named_failures(fresh, number, max_rounds, lambda_):
                    if interleaved:
                        follow = DualAscent(
                            constraint, target, weigher.table, lambda_, weigher.scale
                        )
                        fresh.fit_following(queries, follow, measured_on=measured_on, **params)
                        lambda_ = follow.lambda_
                    else:
                        fresh.fit_pairs(queries, weigher.table(lambda_), previous=model, **params)
                    scores = target.each(partial(scores_of, fresh))
                kept = _measured(number, lambda_, constraint, target, scores, began), fresh
                if checkpoint is not None:
                    checkpoint.keep(*kept)
            ended, model = kept
            lambda_, delta = ended.lambda_, ended.delta
            _require_same_entries(constraint, delta, unranked)
            rounds.append(ended)
            if best is None or ended.violation < best[0].violation:
                best = (ended, model)
            if on_round is not None:
                on_round(ended)
            if number == max_rounds:
                break
            if ended.violation <= tolerance:
                outcome = Outcome.WITHIN_TOLERANCE
                break
            if interleaved:
                if ended is not best[0]:
                    outcome = Outcome.UNREACHABLE
                    break
                continue
            foresee = None
            if hasattr(model, "response"):
                foresee = partial(foresight, model, queries, constraint, weigher, lambda_)
            following, state = solver.step(lambda_, delta, state, foresee)
            if following is not None:  # farther out, the weights no longer change
                following = settle(following, weigher.scale)
            if following is None or np.array_equal(following, lambda_):
                outcome = Outcome.UNREACHABLE
                break
            lambda_ = following
    except KeyboardInterrupt:
        if best is None:
            raise
        outcome = Outcome.INTERRUPTED
    except Exception as error:
        error.add_note(f"In round {number} of at most {max_rounds}; 0 is the plain ranker.")
        raise
    assert best is not None  # noqa: S101 - round 0 has ended
    if max_rounds and best[0].violation <= tolerance:
        outcome = Outcome.WITHIN_TOLERANCE
    return Solution(tuple(rounds), best[0], best[1], weigher.table(best[0].lambda_), outcome)


def _measured(
    number: int,
    lambda_: Array,
    constraint: Constraint,
    target: Queries,
    scores: Array,
    began: float,
) -> Round:
    """What has just been trained, measured."""
    delta = constraint.delta(target, scores)
    auc = mean_auc(target, scores)
    seconds = time.perf_counter() - began
    return Round(number, lambda_, delta, largest_gap(delta), auc, seconds)


def _require_same_entries(constraint: Constraint, delta: Array, unranked: Array) -> None:
    if not np.isfinite(delta[np.isfinite(unranked)]).all():
        raise ConstraintError(
            f"{constraint!r} compares other entries of these scores than of equal scores. "
            "Return NaN only where the data, whatever the scores, have nothing to compare."
        )


@contextmanager
def _named_failures(ranker: Any, number: int, max_rounds: int, lambda_: Array) -> Iterator[None]:
    """Put the round and λ in front of a ranker's own failure; our errors are clear as they are."""
    try:
        yield
    except (PairityError, MemoryError):
        raise
    except Exception as error:
        shown = np.array2string(lambda_, precision=4, separator=", ").replace("\n", "")
        raise TrainingError(
            f"{type(ranker).__name__} failed in round {number} of at most {max_rounds} (0 is the "
            f"plain ranker), with lambda = {shown}: {type(error).__name__}: {error}"
        ) from error


def scores_of(model: Any, target: Queries) -> Array:
    """What a fitted ranker predicts, checked: anybody may have written it."""
    scores = np.asarray(model.predict(target.X), dtype=np.float64)
    name = type(model).__name__
    if scores.shape != (target.n_items,):
        raise InputError(
            f"{name}.predict returned shape {scores.shape} for {target.n_items} items. Return one "
            "score per item."
        )
    if not np.isfinite(scores).all():
        raise InputError(
            f"{name}.predict returned {int((~np.isfinite(scores)).sum())} scores that are NaN or "
            f"infinity, of {target.n_items}. Scale the features, or regularise the ranker more."
        )
    return scores
