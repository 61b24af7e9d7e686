"""Solvers: how λ moves from round to round.

A solver receives the multipliers λ that were used, the delta that they led to, and its own state.
It returns the next λ and state, or None if it has nothing better to try. It sees neither the data
nor the ranker, only K² numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np

from pairity._utils.typing import Array
from pairity._utils.validation import require_number
from pairity.constraints import Contrasts
from pairity.exceptions import InputError

Foresight = Callable[[Array], Array]  # from a change of λ to the expected change of delta
Foresee = Callable[[], Foresight] | None  # computes a foresight around λ, if the ranker can

FARTHEST = 12.0  # largest exponent: exp(12) is a weight ratio of 160,000, beyond it nothing changes
_DECIMALS = 12  # of an exponent; further digits depend only on the order of summation


def settle(lambda_: Array, scale: Array) -> Array:
    """Limit λ to `FARTHEST` and round it.

    When violations are added up on several machines, those of equal scores differ by rounding.
    The exponents are rounded so that the weights, and with them the trees of a booster, do not.
    """
    exponent = np.divide(lambda_, scale, out=np.zeros(lambda_.shape), where=scale > 0)
    return np.asarray(np.clip(exponent, -FARTHEST, FARTHEST).round(_DECIMALS) * scale)


class Solver(Protocol):
    """Moves λ: `start` begins a run, `step` answers one round."""

    def start(self, delta: Array, scale: Array, tolerance: float = 0.0) -> Any:
        """Return the state before the first step.

        Parameters
        ----------
        delta : array
            Its NaN show which entries are not compared.
        scale : array
            For each entry of λ, the change that moves the exponent of a pair's weight by one.
        tolerance : float
            The loop ends with the first round whose gaps are within it.
        """
        ...

    def step(
        self, lambda_: Array, delta: Array, state: Any, foresee: Foresee = None
    ) -> tuple[Array | None, Any]:
        """Return the next λ, or None to give up, and the next state.

        `foresee` computes a `Foresight` around `lambda_`, if the ranker can.
        """
        ...


@dataclass(frozen=True)
class PlainStep:
    """Algorithm 1 as in the paper: λ ← λ - η Δ.

    Parameters
    ----------
    eta : float
        Step size η.
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        require_number(self.eta, "eta", positive=True)

    def start(self, delta: Array, scale: Array, tolerance: float = 0.0) -> None:
        """There is no state."""

    def step(
        self,
        lambda_: Array,
        delta: Array,
        state: None,
        foresee: Foresee = None,  # noqa: ARG002
    ) -> tuple[Array, None]:
        """One step along delta; entries that are not compared stay."""
        return lambda_ - self.eta * np.nan_to_num(delta), state


@dataclass(frozen=True)
class DampedStep:
    r"""Root finding on the gaps: a bracket if there is one gap, otherwise a search.

    The gaps are r = DΔ, each compared entry of Δ minus its counterpart; the largest one is the
    violation. They are functions of the exponents e, which are λ in units that change a pair's
    weight by the same amount. If the ranker can predict how the gaps follow (`LinearRanker` can),
    the search uses that; otherwise it assumes that r rises linearly with its own entries.
    Broyden's rule corrects either model by what the rounds show.

    With one gap (two groups) the search runs along its slope: the root is bracketed and enclosed
    by regula falsi with the Illinois rule, so that a hard violation which jumps across zero is
    located and not crossed again and again. With several gaps, the next point is the one within
    a trust radius whose largest gap is expected to be smallest. It is found by damped Newton
    steps, -Jᵀ(JJᵀ + μ)⁻¹ r with larger weight for large gaps, on slopes J from wide and narrow
    differences, since the hard violation has steps. A point that raises the largest gap is taken
    back and the radius is shortened. If nothing moves, a few long strides along the paper's path,
    λ = -c Δ, are tried before giving up.

    Gaps are brought to `inside` within a wide tolerance and not to zero, since a gap that is not
    corrected costs no utility.

    Parameters
    ----------
    slope : float
        The expected change of a gap per unit of the exponent, before anything is known.
    radius : float
        The longest first step of any one entry, in units of the exponent. Weights saturate entry
        by entry: one that jumps far out no longer responds, and the search would stay there.
    narrowest : float
        Bracket or radius below which the search ends.
    patience : int
        Number of consecutive rounds without progress (2 % of the largest gap) before giving up.
    inside : float
        How far inside the tolerance to aim; the aim is zero if the tolerance is no wider.
    """

    slope: float = 0.03
    radius: float = 3.0
    narrowest: float = 1e-4
    patience: int = 8
    inside: float = 0.02

    def __post_init__(self) -> None:
        for parameter in fields(self):
            require_number(getattr(self, parameter.name), parameter.name, positive=True)

    def start(self, delta: Array, scale: Array, tolerance: float = 0.0) -> _Search:
        """A search without any round."""
        contrasts = Contrasts.of(delta)
        units = np.where(np.ravel(scale) > 0, np.ravel(scale), 1.0)
        prior = self.slope * contrasts.matrix()
        aim = max(0.0, tolerance - self.inside)
        return _Search(contrasts, units, prior, prior, self.radius, aim)

    def step(
        self, lambda_: Array, delta: Array, state: _Search, foresee: Foresee = None
    ) -> tuple[Array | None, _Search]:
        """The next λ, from the best one so far."""
        gaps = state.contrasts.gaps(delta)
        if not state.started:
            state = replace(state, path=-np.nan_to_num(np.ravel(delta)) / state.units)
            if len(gaps) == 1:
                state = replace(state, aim=0.0, centre=np.clip(gaps, -state.aim, state.aim))
        state = state.learn(np.ravel(lambda_) / state.units, gaps - state.centre, foresee)
        following, state = state.next_point(self.narrowest, self.patience)
        if following is None:
            return None, state
        return (following * state.units).reshape(lambda_.shape), state


_SEARCH_STEPS = 8  # steps per search of the expected gaps
_MOST_SLOPES = 160  # central differences per search, about those of 5 groups in all steps
_POWERS = (4.0, 16.0)  # the weight of large gaps: moderate, and almost exclusive
_SHARES = (1.0, 0.6, 0.35, 0.2, 0.1)  # of a damped step, all of which are tried
_PROGRESS = 0.98  # a round that leaves more of the largest gap than this made no progress


@dataclass(frozen=True, eq=False)
class _Search:
    """The state of a search in the exponents after a round.

    Attributes
    ----------
    contrasts : Contrasts, from delta to the gaps
    units : array, the change of each entry of λ that moves its exponent by one
    prior : array, the Jacobian of the gaps before anything is known
    jacobian : array, what is added to the foresight: the full response if there is no foresight
    radius : float, the trust radius
    aim : float, gaps up to this size count as none
    centre : array, the aim of a single gap, from which all gaps are then measured
    foresight : what the ranker expects around `best`, or None
    best, gaps : arrays, the best exponents so far, empty before the first round, and their gaps
    path : array, the direction of the paper's update
    strides : tuple of float, the distances along it that are still to be tried
    initial : float, the largest gap of the first round
    stalled : int, the number of consecutive rounds without progress
    below, above : exponents and gap at the ends of a bracket of a single gap
    streak : int, how often in a row the same end of the bracket moved, negative for `below`
    """

    contrasts: Contrasts
    units: Array
    prior: Array
    jacobian: Array
    radius: float
    aim: float = 0.0
    centre: Array = field(default_factory=lambda: np.zeros(1))
    foresight: Foresight | None = None
    best: Array = field(default_factory=lambda: np.empty(0))
    gaps: Array = field(default_factory=lambda: np.empty(0))
    path: Array = field(default_factory=lambda: np.empty(0))
    strides: tuple[float, ...] = (10.0, 30.0)
    initial: float = 0.0
    stalled: int = 0
    below: tuple[Array, float] | None = None
    above: tuple[Array, float] | None = None
    streak: int = 0

    @property
    def started(self) -> bool:
        """Whether a round has been learned from."""
        return len(self.best) > 0

    def learn(self, point: Array, gaps: Array, foresee: Foresee) -> _Search:
        """Take in the round that has just ended."""
        new = self._with_end(point, float(gaps[0])) if len(gaps) == 1 else self
        ask = None if new.bracketed else foresee
        if not self.started:
            return replace(new, initial=self._largest(gaps))._moved(point, gaps, self.jacobian, ask)
        move = point - self.best
        size = float(np.abs(move).max())
        expected = self.expected(point)
        learned = self.jacobian + np.outer(gaps - expected, move) / float(move @ move)  # Broyden
        before, after = self._largest(self.gaps), self._largest(gaps)
        new = replace(new, stalled=0 if after < _PROGRESS * before else self.stalled + 1)
        if after > before:
            if len(gaps) == 1 and self.foresight is not None:
                learned = self.jacobian  # the foresight of a single slope holds nearby
            return replace(new, jacobian=learned, radius=min(self.radius, size) / 3.0)
        good = before - after > 0.5 * (before - self._largest(expected)) or after == before
        new = replace(new, radius=(3.0 if len(gaps) == 1 else 2.0) * size if good else size)
        return new._moved(point, gaps, learned, ask)

    def _moved(self, point: Array, gaps: Array, jacobian: Array, ask: Foresee) -> _Search:
        """The search with a new best point, and the foresight from there."""
        foresight = None if ask is None else ask()
        if foresight is not None:
            jacobian = np.zeros_like(jacobian)
        return replace(self, best=point, gaps=gaps, foresight=foresight, jacobian=jacobian)

    def expected(self, point: Array) -> Array:
        """The gaps expected at these exponents."""
        move = point - self.best
        gaps = self.gaps + self.jacobian @ move
        if self.foresight is not None:
            change = self.foresight((move * self.units).reshape(self.contrasts.shape))
            gaps = gaps + self.contrasts.gaps(change)
        return np.asarray(gaps)

    @property
    def bracketed(self) -> bool:
        """Whether a single gap has been seen on both sides of zero."""
        return self.below is not None and self.above is not None

    def next_point(self, narrowest: float, patience: int) -> tuple[Array | None, _Search]:
        """The next exponents to try, or None if no better ones are expected."""
        if self.below is not None and self.above is not None:
            return self._between(self.below, self.above, narrowest), self
        target = None if self.stalled >= patience else self._trusted(narrowest)
        weak = self._largest(self.gaps) > 0.8 * self.initial  # less than a fifth was gained
        if weak and self.strides and (target is None or self.stalled >= patience // 2):
            stride = np.clip(self.strides[0] * self.path, -FARTHEST, FARTHEST)
            rest = replace(self, strides=self.strides[1:])
            if np.abs(stride - self.best).max() < narrowest:
                return rest.next_point(narrowest, patience)
            return stride, replace(rest, radius=1.0)  # if it helps, the search starts anew there
        return target, self

    def _with_end(self, point: Array, gap: float) -> _Search:
        """The search with this point as an end of the bracket, if it is a better one."""
        below, above = self.below, self.above
        end = above if gap > 0 else below
        if end is None or self.bracketed or abs(gap) < abs(end[1]):
            below, above = (below, (point, gap)) if gap > 0 else ((point, gap), above)
        same = self.streak != 0 and (self.streak > 0) == (gap > 0)
        streak = abs(self.streak) + 1 if same else 1
        return replace(self, below=below, above=above, streak=streak if gap > 0 else -streak)

    def _between(
        self, below: tuple[Array, float], above: tuple[Array, float], narrowest: float
    ) -> Array | None:
        """Regula falsi; by the Illinois rule an end that does not move counts less each time.

        Between two points the gap is closer to linear in the weights than in their exponents,
        W = 2σ(e) = 1 + tanh(e/2).
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
        if self.radius < narrowest or not self.gaps.any():
            return None
        if len(self.gaps) == 1:
            move = self._along_the_slope()
        else:
            target = self._lowest(self.radius)
            if self._n_steps > 1 and not self._low_enough(self.expected(target)):
                candidates = (target, self._lowest(0.3 * self.radius))
                target = min(candidates, key=lambda point: self._largest(self.expected(point)))
            move = target - self.best
        if self.jacobian is self.prior and move.any():  # an assumed slope is uncertain
            move *= max(1.0, min(0.5, self.radius) / np.abs(move).max())
        target = np.clip(self.best + move, -FARTHEST, FARTHEST)
        return target if np.abs(target - self.best).max() >= narrowest else None

    def _along_the_slope(self) -> Array:
        """Newton's step for a single gap, within the radius."""
        (slope,) = self._slopes(self.best, 0.5)
        flat = np.abs(slope).max() < 1e-3 * np.abs(self.prior).max()
        if flat:  # the gap may respond farther out
            (slope,) = self.prior
        damping = 1e-4
        move = -slope * self.gaps[0] / (slope @ slope)
        while np.abs(move).max() / (1.0 + damping) > self.radius:
            damping *= 2.0
        move /= 1.0 + damping
        return np.asarray(move * self.radius / np.abs(move).max() if flat else move)

    def _lowest(self, width: float) -> Array:
        """The point whose largest expected gap is smallest, by damped steps of falling width."""
        low = np.maximum(self.best - self.radius, -FARTHEST)
        high = np.minimum(self.best + self.radius, FARTHEST)
        current, gaps = self.best, self.gaps
        fallback, fallback_size = current, np.inf  # the best point that is not expected to be lower
        for _ in range(self._n_steps):
            slopes = self._slopes(current, width)
            beyond = self._beyond(gaps)
            points = [
                np.clip(current + share * step, low, high)
                for step in (_downhill(beyond, slopes, width, power) for power in _POWERS)
                for share in _SHARES
            ]
            expected = [self.expected(point) for point in points]
            sizes = [self._largest(gaps_) for gaps_ in expected]
            distances = [np.abs(point - self.best).max() for point in points]
            least = min(range(len(points)), key=lambda i: (sizes[i], distances[i]))
            if sizes[least] < self._largest(gaps):
                current, gaps = points[least], expected[least]
                if self._low_enough(gaps):
                    break
            else:
                if sizes[least] < fallback_size:
                    fallback, fallback_size = points[least], sizes[least]
                width *= 0.5
        return fallback if current is self.best else current

    @property
    def _n_steps(self) -> int:
        """Steps to search ahead: with many groups, a search costs more than a retraining."""
        if self.foresight is None:
            return 1
        return min(max(1, _MOST_SLOPES // int(self.prior.any(axis=0).sum())), _SEARCH_STEPS)

    def _low_enough(self, expected: Array) -> bool:
        """Whether the expected gaps are so low that a retraining tells more than a search."""
        return self._largest(expected) < 0.05 * self._largest(self.gaps)

    def _slopes(self, point: Array, width: float) -> Array:
        """The central differences of the expected gaps by exponent."""
        slopes = np.zeros_like(self.prior)
        for entry in np.flatnonzero(self.prior.any(axis=0)):
            step = np.zeros(len(point))
            step[entry] = width
            change = self.expected(point + step) - self.expected(point - step)
            slopes[:, entry] = change / (2.0 * width)
        return slopes

    def _beyond(self, gaps: Array) -> Array:
        """By how much the gaps exceed the aim."""
        return np.asarray(gaps - np.clip(gaps, -self.aim, self.aim))

    def _largest(self, gaps: Array) -> float:
        return float(np.abs(self._beyond(gaps)).max())


def _downhill(gaps: Array, slopes: Array, width: float, power: float) -> Array:
    """The damped Newton step within `width`; a higher power gives large gaps more weight."""
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
    """Return the solver of a name, or the solver object itself."""
    if isinstance(solver, str) and solver in SOLVERS:
        solver = SOLVERS[solver]()
    usable = not isinstance(solver, type) and hasattr(solver, "step") and hasattr(solver, "start")
    if not usable:
        raise InputError(
            f"{solver!r} is not a solver. Pass 'damped', 'plain', or a solver object such as "
            "PlainStep(eta=0.5)."
        )
    return solver  # type: ignore[no-any-return]
