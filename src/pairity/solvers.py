"""How lambda moves from round to round.

A solver is given the multipliers λ that were used, the violation Δ they led to, and its own state;
it returns the next λ and state, or None where it has nothing better to try. It sees neither data
nor ranker: K² numbers in, K² numbers out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairity.constraints import Contrasts
from pairity.exceptions import InputError

Array = NDArray[np.float64]
Jacobian = Callable[[], Array]

FARTHEST = 12.0  # exp(12): a weight ratio of 160,000; farther out nothing changes any more


class Solver(Protocol):
    """Moves λ; `start` begins a run, `step` answers one round."""

    def start(self, violation: Array, scale: Array) -> Any:
        """State before the first step.

        `violation` shows by its NaN which entries are compared; `scale` has, per entry of λ, the
        change that moves the exponent of a pair's weight by one.
        """
        ...

    def step(
        self, lambda_: Array, violation: Array, state: Any, jacobian: Jacobian | None = None
    ) -> tuple[Array | None, Any]:
        """The next λ, or None to give up.

        `jacobian` computes dΔ/dλ at `lambda_`, flat by flat, where the ranker can tell.
        """
        ...


@dataclass(frozen=True)
class PlainStep:
    """Algorithm 1 as the paper has it: λ ← λ - η Δ.

    Parameters
    ----------
    eta : float
        Step size η.
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.eta < np.inf:
            raise InputError(f"eta is {self.eta!r}; give a positive number such as 1.")

    def start(self, violation: Array, scale: Array) -> None:
        """Nothing to remember."""

    def step(
        self,
        lambda_: Array,
        violation: Array,
        state: None,
        jacobian: Jacobian | None = None,  # noqa: ARG002
    ) -> tuple[Array, None]:
        """One step along the violation; entries that are not compared stay."""
        return lambda_ - self.eta * np.nan_to_num(violation), state


@dataclass(frozen=True)
class DampedStep:
    r"""Root finding on the gaps: a bracket where there is one gap, else a damped Newton step.

    The gaps are r = DΔ, each compared entry of Δ less its counterpart; the largest is what is
    reported. They are functions of the exponents e, that is of λ in units that change a pair's
    weight by the same amount. How they respond, J = dr/de, the ranker tells where it can
    (`LinearRanker` does); otherwise r is taken to rise evenly with its own entries at first, and
    Broyden's rule learns from the rounds.

    With one gap (two groups) the search runs along Jᵀ: the root is bracketed and closed in on by
    regula falsi with the Illinois rule, so that a hard violation which jumps across zero is pinned
    down rather than crossed for ever. With several gaps, a Levenberg-Marquardt step
    -Jᵀ(JJᵀ + μ)⁻¹ r within a trust radius keeps λ from running away where the model cannot meet
    all constraints at once; large gaps count for more, since the largest is what is reported. A
    step that raises the gaps is taken back and shortened. Where the response is too weak to be
    told from the steps of the hard violation, a few long strides along the paper's path,
    λ = -c Δ, are tried before giving up.

    Parameters
    ----------
    slope : float
        How much a gap is expected to move per unit of the exponent, where nothing is known.
    radius : float
        The longest first step of any one entry, in units of the exponent. Weights saturate entry
        by entry: one that jumps far out no longer responds, and the search would be stuck there.
    narrowest : float
        Bracket or radius below which nothing more is to be found.
    patience : int
        Rounds in a row without progress (2 % of the gaps) after which to give up.
    """

    slope: float = 0.03
    radius: float = 3.0
    narrowest: float = 1e-4
    patience: int = 8

    def __post_init__(self) -> None:
        for name in ("slope", "radius", "narrowest", "patience"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)!r}; give a positive number.")

    def start(self, violation: Array, scale: Array) -> _Search:
        """A search that has seen nothing yet."""
        contrasts = Contrasts.of(violation)
        units = np.where(np.ravel(scale) > 0, np.ravel(scale), 1.0)
        prior = self.slope * contrasts.matrix()
        return _Search(contrasts, units, prior, prior, self.radius)

    def step(
        self, lambda_: Array, violation: Array, state: _Search, jacobian: Jacobian | None = None
    ) -> tuple[Array | None, _Search]:
        """The next λ, from the best one so far."""
        gaps = state.contrasts.gaps(violation)
        if state.best is None:
            state = replace(state, path=-np.nan_to_num(np.ravel(violation)) / state.units)
        state = state.learn(np.ravel(lambda_) / state.units, gaps, jacobian)
        following, state = state.next_point(self.narrowest, self.patience)
        if following is None:
            return None, state
        return (following * state.units).reshape(lambda_.shape), state


@dataclass(frozen=True, eq=False)
class _Search:
    """A search in the exponents, as it stands after a round.

    `best` and `gaps` are the best exponents so far and theirs; `jacobian` is what is known of the
    response there, `prior` what was supposed before anything was. `path` is the direction of the
    paper's update, and `strides` how far along it is still to be looked. With a single gap,
    `below` and `above` are the ends of a bracket, and `streak` counts how often the same end has
    moved.
    """

    contrasts: Contrasts
    units: Array
    prior: Array
    jacobian: Array
    radius: float
    best: Array | None = None
    gaps: Array = field(default_factory=lambda: np.empty(0))
    path: Array = field(default_factory=lambda: np.empty(0))
    strides: tuple[float, ...] = (10.0, 30.0)
    at_first: float = 0.0
    stalled: int = 0
    below: tuple[Array, float] | None = None
    above: tuple[Array, float] | None = None
    streak: int = 0

    def learn(self, at: Array, gaps: Array, jacobian: Jacobian | None) -> _Search:
        """Take in the round that has just ended."""
        new = self._with_end(at, float(gaps[0])) if len(gaps) == 1 else self

        def told(otherwise: Array) -> Array:
            if jacobian is None or new.bracketed:
                return otherwise
            return np.asarray(self.contrasts.matrix() @ jacobian() * self.units)

        if self.best is None:
            given = told(self.jacobian)
            return replace(new, best=at, gaps=gaps, jacobian=given, at_first=_size(gaps))
        move = at - self.best
        size = float(np.abs(move).max())
        learnt = _broyden(self.jacobian, move, gaps - self.gaps)
        before, after = _size(self.gaps), _size(gaps)
        new = replace(new, stalled=0 if after < 0.98 * before else self.stalled + 1)
        if after > before:
            kept = learnt if jacobian is None else self.jacobian  # what was told holds nearby
            return replace(new, jacobian=kept, radius=min(self.radius, size) / 3.0)
        foreseen = _size(self.gaps + self.jacobian @ move)
        good = before - after > 0.5 * (before - foreseen) or after == before
        return replace(
            new,
            best=at,
            gaps=gaps,
            jacobian=told(learnt),
            radius=3.0 * size if good else size,
        )

    @property
    def bracketed(self) -> bool:
        """Whether a single gap has been seen on both sides of zero."""
        return self.below is not None and self.above is not None

    def next_point(self, narrowest: float, patience: int) -> tuple[Array | None, _Search]:
        """Where to look next, or None where nothing better is in sight."""
        if self.below is not None and self.above is not None:
            return self._between(self.below, self.above, narrowest), self
        target = None if self.stalled >= patience else self._trusted(narrowest)
        weak = _size(self.gaps) > 0.8 * self.at_first
        if weak and self.strides and (target is None or self.stalled >= patience // 2):
            stride = np.clip(self.strides[0] * self.path, -FARTHEST, FARTHEST)
            rest = replace(self, strides=self.strides[1:])
            if self.best is not None and np.abs(stride - self.best).max() < narrowest:
                return rest.next_point(narrowest, patience)
            # where it pays, the search begins anew from there
            return stride, replace(rest, radius=1.0)
        return target, self

    def _with_end(self, at: Array, gap: float) -> _Search:
        below, above = self.below, self.above
        end = above if gap > 0 else below
        if end is None or self.bracketed or abs(gap) < abs(end[1]):
            below, above = (below, (at, gap)) if gap > 0 else ((at, gap), above)
        same = self.streak != 0 and (self.streak > 0) == (gap > 0)
        streak = abs(self.streak) + 1 if same else 1
        return replace(self, below=below, above=above, streak=streak if gap > 0 else -streak)

    def _between(
        self, below: tuple[Array, float], above: tuple[Array, float], narrowest: float
    ) -> Array | None:
        """Regula falsi; by the Illinois rule an end that stays put counts for less each time."""
        if np.abs(above[0] - below[0]).max() < narrowest:
            return None
        low, high = below[1], above[1]
        discount = 0.5 ** (abs(self.streak) - 1)
        if self.streak > 0:
            low *= discount
        else:
            high *= discount
        share = min(max(low / (low - high), 0.02), 0.98) if low != high else 0.5
        return np.asarray(below[0] + share * (above[0] - below[0]))

    def _trusted(self, narrowest: float) -> Array | None:
        """The Levenberg-Marquardt step within the trust radius."""
        assert self.best is not None  # noqa: S101 - learn came first
        if self.radius < narrowest or not self.gaps.any():
            return None
        largest = np.abs(self.gaps).max()
        weight = np.sqrt((np.abs(self.gaps) / largest) ** (_POWER - 2.0) + 0.01)
        flat = np.abs(self.jacobian).max() < 1e-3 * np.abs(self.prior).max()
        jacobian = self.prior if flat else self.jacobian  # what does not respond may yet, farther
        left, sizes, right = np.linalg.svd(weight[:, None] * jacobian, full_matrices=False)
        along = left.T @ (weight * self.gaps)
        damping = (1e-2 * sizes[0]) ** 2
        while True:
            move = -(right.T @ (sizes / (sizes**2 + damping) * along))
            if np.abs(move).max() <= self.radius:
                break
            damping *= 2.0
        size = np.abs(move).max()
        if flat:
            move *= self.radius / size
        elif self.jacobian is self.prior:  # a guess is no reason to creep
            move *= max(1.0, min(0.5, self.radius) / size)
        target = np.clip(self.best + move, -FARTHEST, FARTHEST)
        return target if np.abs(target - self.best).max() >= narrowest else None


def _broyden(jacobian: Array, move: Array, change: Array) -> Array:
    """The nearest Jacobian that explains what the last step changed."""
    return np.asarray(jacobian + np.outer(change - jacobian @ move, move) / float(move @ move))


_POWER = 6.0  # the norm of the gaps that steps lower: near the largest gap, yet smooth


def _size(gaps: Array) -> float:
    largest = np.abs(gaps).max()
    if largest == 0.0:
        return 0.0
    return float(largest * np.sum((np.abs(gaps) / largest) ** _POWER) ** (1.0 / _POWER))


SOLVERS: dict[str, type] = {"damped": DampedStep, "plain": PlainStep}


def as_solver(solver: Any) -> Solver:
    """A solver from its name, or as it is."""
    if isinstance(solver, str):
        if solver in SOLVERS:
            made: Solver = SOLVERS[solver]()
            return made
        raise InputError(
            f"There is no solver named {solver!r}. Choose 'damped', 'plain', or a solver object "
            "such as PlainStep(eta=0.5)."
        )
    if isinstance(solver, type) or not hasattr(solver, "step") or not hasattr(solver, "start"):
        raise InputError(
            f"{solver!r} is not a solver. Pass 'damped', 'plain', or a solver object such as "
            "PlainStep(eta=0.5)."
        )
    return solver  # type: ignore[no-any-return]
