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

from pairity._utils.typing import Array
from pairity.constraints import Contrasts
from pairity.exceptions import InputError

Foresight = Callable[[Array], Array]  # a change of λ to the change of Δ it is thought to bring

FARTHEST = 12.0  # exp(12): a weight ratio of 160,000; farther out nothing changes any more


_DECIMALS = 12  # of an exponent; beyond these is only the order in which sums were added up


def settle(lambda_: Array, scale: Array) -> Array:
    """λ within reach and without its last digits.

    Violations of the same scores differ by rounding where they are added up on several machines.
    So that the weights do not, and with them the trees of a booster, their exponents are rounded.
    """
    exponent = np.divide(lambda_, scale, out=np.zeros(lambda_.shape), where=scale > 0)
    return np.asarray(np.clip(exponent, -FARTHEST, FARTHEST).round(_DECIMALS) * scale)


class Solver(Protocol):
    """Moves λ; `start` begins a run, `step` answers one round."""

    def start(self, violation: Array, scale: Array, tolerance: float = 0.0) -> Any:
        """State before the first step.

        `violation` shows by its NaN which entries are compared; `scale` has, per entry of λ, the
        change that moves the exponent of a pair's weight by one; the loop ends with the first
        round whose gaps are within `tolerance`.
        """
        ...

    def step(
        self,
        lambda_: Array,
        violation: Array,
        state: Any,
        foresee: Callable[[], Foresight] | None = None,
    ) -> tuple[Array | None, Any]:
        """The next λ, or None to give up.

        `foresee` prepares a `Foresight` around `lambda_`, where the ranker can tell.
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

    def start(self, violation: Array, scale: Array, tolerance: float = 0.0) -> None:
        """Nothing to remember."""

    def step(
        self,
        lambda_: Array,
        violation: Array,
        state: None,
        foresee: Callable[[], Foresight] | None = None,  # noqa: ARG002
    ) -> tuple[Array, None]:
        """One step along the violation; entries that are not compared stay."""
        return lambda_ - self.eta * np.nan_to_num(violation), state


@dataclass(frozen=True)
class DampedStep:
    r"""Root finding on the gaps: a bracket where there is one gap, else a search.

    The gaps are r = DΔ, each compared entry of Δ less its counterpart; the largest is what is
    reported. They are functions of the exponents e, that is of λ in units that change a pair's
    weight by the same amount. How they follow, the ranker foresees where it can (`LinearRanker`
    does); otherwise r is taken to rise evenly with its own entries. Broyden's rule corrects
    either by what the rounds show.

    With one gap (two groups) the search runs along its slope: the root is bracketed and closed in
    on by regula falsi with the Illinois rule, so that a hard violation which jumps across zero is
    pinned down rather than crossed for ever. With several gaps, the next point is the one within
    a trust radius whose largest gap is foreseen to be least, found by damped Newton steps,
    -Jᵀ(JJᵀ + μ)⁻¹ r with large gaps counting for more, on slopes J taken over wide and narrow
    differences, since the hard violation has steps. A point that raises the largest gap is taken
    back and the radius shortened. Where nothing moves, a few long strides along the paper's path,
    λ = -c Δ, are tried before giving up.

    A wide tolerance is there to be used: gaps are brought to `inside` within it from where they
    were, not to zero, since what is not corrected costs no utility.

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
        Rounds in a row without progress (2 % of the largest gap) after which to give up.
    inside : float
        How far inside the tolerance to aim; all the way to zero where it is no wider.
    """

    slope: float = 0.03
    radius: float = 3.0
    narrowest: float = 1e-4
    patience: int = 8
    inside: float = 0.02

    def __post_init__(self) -> None:
        for name in ("slope", "radius", "narrowest", "patience", "inside"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)!r}; give a positive number.")

    def start(self, violation: Array, scale: Array, tolerance: float = 0.0) -> _Search:
        """A search that has seen nothing yet."""
        contrasts = Contrasts.of(violation)
        units = np.where(np.ravel(scale) > 0, np.ravel(scale), 1.0)
        prior = self.slope * contrasts.matrix()
        aim = max(0.0, tolerance - self.inside)
        return _Search(contrasts, units, prior, prior, self.radius, aim)

    def step(
        self,
        lambda_: Array,
        violation: Array,
        state: _Search,
        foresee: Callable[[], Foresight] | None = None,
    ) -> tuple[Array | None, _Search]:
        """The next λ, from the best one so far."""
        gaps = state.contrasts.gaps(violation)
        if state.best is None:
            state = replace(state, path=-np.nan_to_num(np.ravel(violation)) / state.units)
            if len(gaps) == 1:
                state = replace(state, aim=0.0, centre=np.clip(gaps, -state.aim, state.aim))
        state = state.learn(np.ravel(lambda_) / state.units, gaps - state.centre, foresee)
        following, state = state.next_point(self.narrowest, self.patience)
        if following is None:
            return None, state
        return (following * state.units).reshape(lambda_.shape), state


@dataclass(frozen=True, eq=False)
class _Search:
    """A search in the exponents, as it stands after a round.

    `best` and `gaps` are the best exponents so far and theirs; `told` is what the ranker foresees
    from there, and `jacobian` what has to be added to that: all of the response where the ranker
    tells nothing, `prior` before anything is known. `path` is the direction of the
    paper's update, and `strides` how far along it is still to be looked. Gaps of up to `aim` count
    as none. With a single gap, it is `centre` that is aimed at and all gaps are taken from there;
    `below` and `above` are the ends of a bracket, and `streak` counts how often the same end has
    moved.
    """

    contrasts: Contrasts
    units: Array
    prior: Array
    jacobian: Array
    radius: float
    aim: float = 0.0
    centre: Array = field(default_factory=lambda: np.zeros(1))
    told: Foresight | None = None
    best: Array | None = None
    gaps: Array = field(default_factory=lambda: np.empty(0))
    path: Array = field(default_factory=lambda: np.empty(0))
    strides: tuple[float, ...] = (10.0, 30.0)
    at_first: float = 0.0
    stalled: int = 0
    below: tuple[Array, float] | None = None
    above: tuple[Array, float] | None = None
    streak: int = 0

    def learn(self, at: Array, gaps: Array, foresee: Callable[[], Foresight] | None) -> _Search:
        """Take in the round that has just ended."""
        new = self._with_end(at, float(gaps[0])) if len(gaps) == 1 else self
        ask = None if new.bracketed else foresee
        if self.best is None:
            return replace(new, at_first=self._largest(gaps))._moved(at, gaps, self.jacobian, ask)
        move = at - self.best
        size = float(np.abs(move).max())
        foreseen = self.foreseen(at)
        learnt = self.jacobian + np.outer(gaps - foreseen, move) / float(move @ move)  # Broyden
        before, after = self._largest(self.gaps), self._largest(gaps)
        new = replace(new, stalled=0 if after < 0.98 * before else self.stalled + 1)
        if after > before:
            if len(gaps) == 1 and self.told is not None:
                learnt = self.jacobian  # what was told of a single slope holds nearby
            return replace(new, jacobian=learnt, radius=min(self.radius, size) / 3.0)
        good = before - after > 0.5 * (before - self._largest(foreseen)) or after == before
        new = replace(new, radius=(3.0 if len(gaps) == 1 else 2.0) * size if good else size)
        return new._moved(at, gaps, learnt, ask)

    def _moved(
        self, at: Array, gaps: Array, jacobian: Array, ask: Callable[[], Foresight] | None
    ) -> _Search:
        """The search with a new best point, and what is foreseen from there."""
        if ask is None:
            return replace(self, best=at, gaps=gaps, told=None, jacobian=jacobian)
        return replace(self, best=at, gaps=gaps, told=ask(), jacobian=np.zeros_like(jacobian))

    def foreseen(self, at: Array) -> Array:
        """The gaps expected at these exponents."""
        assert self.best is not None  # noqa: S101 - learn came first
        move = at - self.best
        gaps = self.gaps + self.jacobian @ move
        if self.told is not None:
            change = self.told((move * self.units).reshape(self.contrasts.shape))
            gaps = gaps + self.contrasts.gaps(change)
        return np.asarray(gaps)

    @property
    def bracketed(self) -> bool:
        """Whether a single gap has been seen on both sides of zero."""
        return self.below is not None and self.above is not None

    def next_point(self, narrowest: float, patience: int) -> tuple[Array | None, _Search]:
        """Where to look next, or None where nothing better is in sight."""
        if self.below is not None and self.above is not None:
            return self._between(self.below, self.above, narrowest), self
        target = None if self.stalled >= patience else self._trusted(narrowest)
        weak = self._largest(self.gaps) > 0.8 * self.at_first
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
        """Regula falsi; by the Illinois rule an end that stays put counts for less each time.

        Between two points the gap is nearer to a straight line in the weights than in their
        exponents, W = 2σ(e) = 1 + tanh(e/2).
        """
        if np.abs(above[0] - below[0]).max() < narrowest:
            return None
        low, high = below[1], above[1]
        discount = 0.5 ** (abs(self.streak) - 1)
        if self.streak > 0:
            low *= discount
        else:
            high *= discount
        share = min(max(low / (low - high), 0.02), 0.98) if low != high else 0.5
        left, right = np.tanh(0.5 * below[0]), np.tanh(0.5 * above[0])
        return np.asarray(2.0 * np.arctanh(left + share * (right - left)))

    def _trusted(self, narrowest: float) -> Array | None:
        """The most promising point within the trust radius."""
        assert self.best is not None  # noqa: S101 - learn came first
        if self.radius < narrowest or not self.gaps.any():
            return None
        if len(self.gaps) == 1:
            move = self._along_the_slope()
        else:
            target = self._lowest(self.radius)
            if self._looks > 1 and not self._enough(self.foreseen(target)):
                found = (target, self._lowest(0.3 * self.radius))
                target = min(found, key=lambda at: self._largest(self.foreseen(at)))
            move = target - self.best
        if self.jacobian is self.prior and move.any():  # a guess is no reason to creep
            move *= max(1.0, min(0.5, self.radius) / np.abs(move).max())
        target = np.clip(self.best + move, -FARTHEST, FARTHEST)
        return target if np.abs(target - self.best).max() >= narrowest else None

    def _along_the_slope(self) -> Array:
        """Newton's step for a single gap, within the radius."""
        assert self.best is not None  # noqa: S101 - learn came first
        (slope,) = self._slopes(self.best, 0.5)
        flat = np.abs(slope).max() < 1e-3 * np.abs(self.prior).max()
        if flat:  # what does not respond may yet, farther
            (slope,) = self.prior
        damping = 1e-4
        move = -slope * self.gaps[0] / (slope @ slope)
        while np.abs(move).max() / (1.0 + damping) > self.radius:
            damping *= 2.0
        move /= 1.0 + damping
        return np.asarray(move * self.radius / np.abs(move).max() if flat else move)

    def _lowest(self, width: float) -> Array:
        """Where the largest gap is foreseen least, by damped steps ever closer around."""
        assert self.best is not None  # noqa: S101 - learn came first
        low = np.maximum(self.best - self.radius, -FARTHEST)
        high = np.minimum(self.best + self.radius, FARTHEST)
        at, gaps = self.best, self.gaps
        second = (np.inf, at)  # the least among what is not foreseen to be lower
        for _ in range(self._looks):
            slopes = self._slopes(at, width)
            beyond = self._beyond(gaps)
            there = [
                np.clip(at + share * step, low, high)
                for step in (_downhill(beyond, slopes, width, power) for power in _POWERS)
                for share in (1.0, 0.6, 0.35, 0.2, 0.1)
            ]
            seen = [self.foreseen(point) for point in there]
            size = [
                (self._largest(gap), np.abs(to - self.best).max())
                for gap, to in zip(seen, there, strict=True)
            ]
            least = min(range(len(there)), key=size.__getitem__)  # of equals the nearest
            if self._largest(seen[least]) < self._largest(gaps):
                at, gaps = there[least], seen[least]
                if self._enough(gaps):
                    break
            else:
                second = min(
                    second, (self._largest(seen[least]), there[least]), key=lambda one: one[0]
                )
                width *= 0.5
        return second[1] if at is self.best else at

    @property
    def _looks(self) -> int:
        """How many steps to search ahead: with many groups, looking costs more than retraining."""
        if self.told is None:
            return 1
        return min(max(1, _MOST_SLOPES // int(self.prior.any(axis=0).sum())), _LOOKS)

    def _enough(self, foreseen: Array) -> bool:
        """Whether the gaps are foreseen so low that retraining tells more than looking on."""
        return self._largest(foreseen) < 0.05 * self._largest(self.gaps)

    def _slopes(self, at: Array, width: float) -> Array:
        """The foreseen gaps' central differences by exponent."""
        slopes = np.zeros_like(self.prior)
        for entry in np.flatnonzero(self.prior.any(axis=0)):
            step = np.zeros(len(at))
            step[entry] = width
            change = self.foreseen(at + step) - self.foreseen(at - step)
            slopes[:, entry] = change / (2.0 * width)
        return slopes

    def _beyond(self, gaps: Array) -> Array:
        """By how much the gaps are larger than what is aimed at."""
        return np.asarray(gaps - np.clip(gaps, -self.aim, self.aim))

    def _largest(self, gaps: Array) -> float:
        return float(np.abs(self._beyond(gaps)).max())


_LOOKS = 8  # steps per search of the foreseen gaps
_MOST_SLOPES = 160  # differences per search, about: those of 5 groups in all steps
_POWERS = (4.0, 16.0)  # how much more large gaps count: moderately, and almost alone


def _downhill(gaps: Array, slopes: Array, width: float, power: float) -> Array:
    """The damped Newton step within `width`; the higher the power, the more large gaps count."""
    weight = np.sqrt((np.abs(gaps) / np.abs(gaps).max()) ** power + 0.01)
    left, sizes, right = np.linalg.svd(weight[:, None] * slopes, full_matrices=False)
    if sizes[0] == 0.0:
        return np.zeros(slopes.shape[1])
    along = left.T @ (weight * gaps)
    damping = (1e-2 * sizes[0]) ** 2
    while True:
        step = -(right.T @ (sizes / (sizes**2 + damping) * along))
        if np.abs(step).max() <= width:
            return np.asarray(step)
        damping *= 2.0


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
