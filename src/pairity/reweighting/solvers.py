"""Solvers: how λ moves from round to round.

A solver receives the multipliers λ that were used, the delta that they led to, and its own state.
It returns the next λ and state, or None if it has nothing better to try. It sees neither the data
nor the ranker, only K² numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from pairity._utils.typing import Array
from pairity._utils.validation import require_number
from pairity.constraints import Contrasts
from pairity.exceptions import InputError
from pairity.reweighting.weights import FARTHEST

if TYPE_CHECKING:
    from pairity.reweighting.algorithm import Round  # which imports Solver from here
    from pairity.reweighting.response import Outlook

    MaybeOutlook: TypeAlias = Outlook | None


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

    def step(self, current: Round, state: Any, outlook: MaybeOutlook) -> tuple[Array | None, Any]:
        """Return the next λ, or None to give up, and the next state.

        Parameters
        ----------
        current : Round
            The round that has just ended. A round that is not `usable` cannot be kept.
        state : the state that `start` or the last step returned
        outlook : Outlook or None
            What the ranker of this round tells about other λ, if it has a `response`.
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

    def step(self, current: Round, state: None, _: MaybeOutlook) -> tuple[Array, None]:
        """One step along delta; entries that are not compared stay."""
        return current.lambda_ - self.eta * np.nan_to_num(current.delta), state


@dataclass(frozen=True)
class DampedStep:
    r"""Damped Gauss-Newton steps on the gaps; a bracket once a single gap has changed its sign.

    The gaps are r = DΔ, each compared entry of Δ minus its counterpart; the largest one is the
    violation. They are functions of the exponents e, which are λ in units that change a pair's
    weight by the same amount. If the ranker can predict how Δ follows λ (`LinearRanker` can), that
    is the model of the gaps; otherwise each gap is assumed to rise with its own exponents.
    Broyden's rule corrects either model by what the rounds show.

    A step minimises, within a trust radius around the best round,

    .. math:: \sum_m \left(\frac{|r_m(e)|}{R}\right)^{2p} + \kappa^2 \lVert e \rVert^2

    of the expected gaps by Levenberg-Marquardt, with R the largest gap of the best round, first
    with p = 1 and from there with p = 3, which puts large gaps first. The better one is taken. κ
    selects the shortest of the exponents that serve about equally well. A round that lowers the
    largest gap becomes the new best one, and the radius grows if the model was right; any other
    round is taken back and shortens it.

    As soon as the root of a single gap (of two groups) is bracketed, λ moves to where a mixture of
    the scores at both ends has no gap: the ranker follows λ smoothly, even where the gap is steep
    or jumps (`_Search._between`). Before a search for this root gives up, it tries the largest
    multipliers: a gap may respond to no others, if the features are nearly one dimension.

    Gaps are brought to `inside` within a wide tolerance and not to zero, since a gap that is not
    corrected costs no utility.

    Parameters
    ----------
    slope : float
        The expected change of a gap per unit of the exponent, before anything is known.
    radius : float
        The longest first step of any one entry, in units of the exponent. It may be half as long
        again for a single gap, where the next round corrects a step that goes too far.
    narrowest : float
        Bracket or radius below which the search ends.
    patience : int
        Number of consecutive rounds without progress (2 % of the largest gap) before giving up.
    patience_in_noise : int
        The same with 20 %, if the ranker predicts its response, and the violation of the best
        round exceeds the noise floor by less than its standard error and the tolerance by more
        than a half.
    inside : float
        How far inside the tolerance to aim. If the tolerance is no wider, the aim is zero, or a
        quarter of it for a single gap, because a gap that changes its sign was corrected too much.
    budget : int
        Number of retrainings after which it gives up.
    """

    slope: float = 0.06
    radius: float = 2.0
    narrowest: float = 2e-4
    patience: int = 6
    patience_in_noise: int = 1
    inside: float = 0.02
    budget: int = 10

    def __post_init__(self) -> None:
        for parameter in fields(self):
            require_number(getattr(self, parameter.name), parameter.name, positive=True)

    def start(self, delta: Array, scale: Array, tolerance: float = 0.0) -> _Search:
        """A search without any round."""
        contrasts = Contrasts.of(delta)
        units = np.where(np.ravel(scale) > 0, np.ravel(scale), 1.0)
        least = _NEAR_SIDE * tolerance if len(contrasts.first) == 1 else 0.0
        aim = max(tolerance - self.inside, least)
        prior = self.slope * contrasts.matrix()
        radius = (_BOLDER if len(contrasts.first) == 1 else 1.0) * self.radius
        return _Search(contrasts, units, radius, aim, prior, prior, near=_NEAR * tolerance)

    def step(
        self, current: Round, state: _Search, outlook: MaybeOutlook
    ) -> tuple[Array | None, _Search]:
        """The next λ, from the best one so far."""
        point = np.ravel(current.lambda_) / state.units
        gaps = state.contrasts.gaps(current.delta)
        if not len(state.best) and len(gaps) == 1:  # aim at the nearer end of the tolerance
            state = replace(state, aim=0.0, centre=np.clip(gaps, -state.aim, state.aim))
        state = state.learn(point, gaps - state.centre, outlook, current.usable)
        if state.best is point:
            noise = current.noise_floor + current.error
            in_noise = state.foresight is not None and state.near < current.violation <= noise
            state = replace(state, in_noise=in_noise)
        patience = self.patience_in_noise if state.in_noise else self.patience
        following = None
        if state.n_rounds <= self.budget and state.stalled < patience:
            following, state = state.next_point(self.narrowest)
        if following is None:
            return None, state
        return (following * state.units).reshape(current.lambda_.shape), state


_BOLDER = 1.5  # times the radius, for a single gap
_NEAR_SIDE = 0.25  # of a narrow tolerance: where a single gap is brought, not to cross zero
_SATURATION = 0.35  # how much less than foreseen a long step moves, per unit of a single gap
_CLOSED = 0.1  # share of a single gap; a step that is expected to leave no more is to close it
_FAR = 0.02  # a single gap that is smaller has moved, or is not worth the largest multipliers
_MOST_HALVINGS = 12  # of the share of a mixture of two rankers
_MOST_STEPS = 20  # on the expected gaps, in one step of λ; they cost no training
_POWERS = (1.0, 3.0)  # of the gaps in least squares: a higher one puts large gaps first
_EFFORT = 0.015  # κ
_FLAT = 1e-3  # of the prior slope, below which a slope without a foresight is not believed
_WIDEST = 6.0  # trust radius at which a ranker that expects no progress is asked again
_HOPELESS = 0.99  # a step that is expected to leave more of the largest gap is not taken
_PROGRESS = 0.98  # a round that leaves more of the largest gap than this made no progress
_PROGRESS_IN_NOISE = 0.8  # the same, where the violation can hardly be told from noise
_NEAR = 1.5  # times the tolerance: a violation that further rounds are likely to bring within it


class End(NamedTuple):
    """An end of the bracket of a single gap."""

    point: Array  # exponents
    gap: float
    outlook: MaybeOutlook


@dataclass(frozen=True, eq=False)
class _Search:
    """The state of a search in the exponents after a round.

    Attributes
    ----------
    contrasts : Contrasts, from delta to the gaps
    units : array, the change of each entry of λ that moves its exponent by one
    radius : float, the trust radius
    aim : float, gaps up to this size count as none
    prior : array, the Jacobian of the gaps before anything is known
    centre : array, the aim of a single gap, from which all gaps are then measured
    jacobian : array, what is added to the foresight: the full response if there is no foresight
    foresight : what the ranker expects around `best`, or None
    best, gaps : arrays, the best exponents so far, empty before the first round, and their gaps
    n_rounds : int, the number of rounds so far, the plain ranker's included
    stalled : int, the number of consecutive rounds without progress
    near : float, a violation from which the tolerance is not far
    in_noise : bool, whether the best violation is not near, and can hardly be told from noise
    newest, opposite : End
        The last end of a bracket of a single gap, and the other end, whose gap has the other sign.
        Without an opposite end, `newest` has the smallest gap so far.
    same : bool, whether the last point did not cross the root
    farthest : bool, whether the largest exponents were tried
    ahead : array or None
        A point beyond one that was no better, where a single gap without a foresight (that of
        trees moves in jumps) may change its sign.
    """

    contrasts: Contrasts
    units: Array
    radius: float
    aim: float
    jacobian: Array
    prior: Array
    foresight: Any = None
    centre: Array = field(default_factory=lambda: np.zeros(1))
    best: Array = field(default_factory=lambda: np.empty(0))
    gaps: Array = field(default_factory=lambda: np.empty(0))
    n_rounds: int = 0
    stalled: int = 0
    near: float = 0.0
    in_noise: bool = False
    newest: End | None = None
    opposite: End | None = None
    same: bool = False
    farthest: bool = False
    ahead: Array | None = None

    def learn(self, point: Array, gaps: Array, outlook: MaybeOutlook, usable: bool) -> _Search:
        """Take in the round that has just ended."""
        new = replace(self, n_rounds=self.n_rounds + 1)
        if len(gaps) == 1:
            new = new._with_end(End(point, float(gaps[0]), outlook))
        if not len(self.best):
            return new._moved(point, gaps, self.jacobian, outlook)
        expected = self.expected(point)
        learned = self._corrected(point, gaps).jacobian
        before, after = self._largest(self.gaps), self._largest(gaps)
        share = _PROGRESS_IN_NOISE if self.in_noise else _PROGRESS
        enclosed = self.opposite is None and new.opposite is not None
        progress = enclosed or (usable and after < share * before)
        new = replace(new, stalled=0 if progress else self.stalled + 1)
        size = float(np.abs(point - self.best).max())
        if after > before or not usable:
            further = outlook is None and usable and len(gaps) == 1 and new.opposite is None
            ahead = 3.0 * point - 2.0 * self.best if further else None
            radius = min(self.radius, size) / 3.0
            return replace(new, jacobian=learned, radius=radius, ahead=ahead)
        good = before - after >= 0.5 * (before - self._largest(expected)) or after == before
        new = replace(new, radius=max(self.radius, 2.0 * size) if good else self.radius)
        return new._moved(point, gaps, learned, outlook)

    def _moved(self, point: Array, gaps: Array, jacobian: Array, outlook: MaybeOutlook) -> _Search:
        """The search with a new best point, and the foresight from there."""
        foresight = None
        if outlook is not None and self.opposite is None:
            share = 1.0
            if len(gaps) == 1:
                share -= _SATURATION * abs(gaps[0])
                share *= self._correctness(point, gaps)
            foresight = outlook.foresight().of_gaps(share * self.contrasts.matrix())
            jacobian = np.zeros_like(jacobian)
        return replace(
            self, best=point, gaps=gaps, foresight=foresight, jacobian=jacobian, ahead=None
        )

    def _correctness(self, point: Array, gaps: Array) -> float:
        """How much a single gap moved, for each unit foreseen, in a step that was to close it."""
        if not len(self.best):
            return 1.0
        expected, before = float(self.expected(point)[0]), float(self.gaps[0])
        if abs(expected) > _CLOSED * abs(before):
            return 1.0
        return float(np.clip((before - gaps[0]) / (before - expected), 0.5, 2.0))

    def expected(self, point: Array) -> Array:
        """The gaps expected at these exponents."""
        move = point - self.best
        gaps = self.gaps + self.jacobian @ move
        if self.foresight is not None:
            gaps = gaps + self.foresight((move * self.units).reshape(self.contrasts.shape))
        return np.asarray(gaps)

    def slopes(self, point: Array) -> Array:
        """The derivatives of the expected gaps in the exponents."""
        if self.foresight is None:
            return self.jacobian
        move = ((point - self.best) * self.units).reshape(self.contrasts.shape)
        slopes = self.foresight.jacobian(move) * self.units
        return self.jacobian + np.where(self.prior.any(axis=0), slopes, 0.0)  # compared entries

    def next_point(self, narrowest: float) -> tuple[Array | None, _Search]:
        """The next exponents to try, or None if no better ones are expected."""
        if not self.gaps.any():
            return None, self
        if self.newest is not None and self.opposite is not None:
            return self._between(self.newest, self.opposite, narrowest), self
        if self.ahead is not None:
            return np.clip(self.ahead, -FARTHEST, FARTHEST), self
        if self.radius < narrowest:
            return self._farthest()
        state, target = self, self._lowest()
        if self._hopeless(target):
            state = replace(self, radius=max(self.radius, _WIDEST if self.stalled < 2 else 0.0))
            target = state._lowest()
        if not state._hopeless(target) and np.abs(target - self.best).max() >= narrowest:
            return target, state
        return state._farthest()

    def _farthest(self) -> tuple[Array | None, _Search]:
        """The largest exponents, where a single gap that did not move may change its sign."""
        if self.newest is None or self.farthest or abs(self.newest.gap) < _FAR:
            return None, self
        direction = -np.sign(self.newest.gap) * np.sign(self.prior[0])
        return FARTHEST * direction, replace(self, farthest=True)

    def _hopeless(self, target: Array) -> bool:
        """Whether the ranker expects hardly any progress; without a foresight nothing is known."""
        expected = self._largest(self.expected(target))
        return self.foresight is not None and expected > _HOPELESS * self._largest(self.gaps)

    def _corrected(self, point: Array, gaps: Array) -> _Search:
        """The search whose model has these gaps at a point, by Broyden's rule."""
        move = point - self.best
        wrong = gaps - self.expected(point)
        jacobian = self.jacobian + np.outer(wrong, move) / (float(move @ move) or 1.0)
        if self.foresight is None and np.abs(jacobian).max() < _FLAT * np.abs(self.prior).max():
            jacobian = self.prior  # the gaps may respond farther out
        return replace(self, jacobian=jacobian)

    def _with_end(self, end: End) -> _Search:
        """The search with this point as an end of the bracket, if it is a better one."""
        newest, opposite = self.newest, self.opposite
        if newest is None:
            return replace(self, newest=end)
        same = (end.gap > 0) == (newest.gap > 0)
        if opposite is None and same:
            return replace(self, newest=min(end, newest, key=lambda known: abs(known.gap)))
        return replace(self, newest=end, opposite=opposite if same else newest, same=same)

    def _between(self, newest: End, opposite: End, narrowest: float) -> Array | None:
        """The point of the bracket at which a mixture of the scores of both ends has no gap.

        After a point that did not cross the root, the next one goes twice as far, so that the root
        is soon enclosed from both sides. None if an end of the bracket serves best.
        """
        line = opposite.point - newest.point
        share, least = self._share(newest, opposite), narrowest / np.abs(line).max()
        if share in (0.0, 1.0) or least > 0.5:
            return None
        share = min(2.0 * share, max(share, 0.5)) if self.same else share
        return np.asarray(newest.point + min(max(share, least), 1.0 - least) * line)

    def _share(self, newest: End, opposite: End) -> float:
        """The share of the opposite end in the mixture with the smallest gap.

        It is 0 if no mixture has a smaller gap than an end, as at a jump.
        """
        if newest.outlook is None or opposite.outlook is None:
            return newest.gap / (newest.gap - opposite.gap)  # as if the gap were linear
        mixed = newest.outlook.mixed(opposite.outlook)
        ends = np.array([newest.gap, opposite.gap])
        # What the sample of the outlook shows at the ends differs from what was measured.
        wrong = ends - [self._single(mixed(share)) for share in (0.0, 1.0)]
        shares = np.array([0.0, 1.0])
        for _ in range(_MOST_HALVINGS):
            middle = float(shares.mean())
            gap = self._single(mixed(middle)) + (1.0 - middle) * wrong[0] + middle * wrong[1]
            replaced = int((gap > 0) == (ends[1] > 0))
            shares[replaced], ends[replaced] = middle, gap
        lowest, known = np.abs(ends).min(), min(abs(newest.gap), abs(opposite.gap))
        return float(shares[np.argmin(np.abs(ends))]) if lowest < _HOPELESS * known else 0.0

    def _single(self, delta: Array) -> float:
        return float((self.contrasts.gaps(delta) - self.centre)[0])

    def _lowest(self) -> Array:
        """The exponents within the trust radius whose largest expected gap is smallest."""
        near = self._descend(_POWERS[0], self.best)
        candidates = near, self._descend(_POWERS[1], near)
        return min(candidates, key=lambda point: self._largest(self.expected(point)))

    def _descend(self, power: float, point: Array) -> Array:
        """Levenberg-Marquardt steps on powers of the expected gaps, each cut at the radius."""
        low = np.maximum(self.best - self.radius, -FARTHEST)
        high = np.minimum(self.best + self.radius, FARTHEST)
        largest = self._largest(self.gaps)
        effort = (_EFFORT * largest) ** 2

        def residuals(gaps: Array) -> Array:
            return np.asarray(gaps * np.abs(gaps / largest) ** (power - 1.0))

        def cost(gaps: Array, point: Array) -> float:
            return float(np.sum(residuals(gaps) ** 2) + effort * (point @ point))

        gaps, damping = self._beyond(self.expected(point)), effort
        for _ in range(_MOST_STEPS):
            stress = power * np.abs(gaps / largest) ** (power - 1.0)
            slopes = stress[:, None] * self.slopes(point)
            slopes = np.where(gaps[:, None] != 0.0, slopes, 0.0)
            curvature = slopes @ slopes.T
            gradient = slopes.T @ residuals(gaps) + effort * point
            before, lower = cost(gaps, point), False
            while not lower and damping < 1e3:
                ridge = effort + damping  # (S'S + ridge)⁻¹ by the smaller matrix SS' + ridge
                inner = np.linalg.solve(curvature + ridge * np.eye(len(gaps)), slopes @ gradient)
                step = (slopes.T @ inner - gradient) / ridge
                candidate = np.clip(point + step, low, high)
                expected = self._beyond(self.expected(candidate))
                lower = cost(expected, candidate) < before
                damping *= 0.1 if lower else 10.0
            if not lower:
                break
            point, gaps = candidate, expected
            if cost(gaps, point) > 0.99 * before:
                break
        return point

    def _beyond(self, gaps: Array) -> Array:
        """By how much the gaps exceed the aim."""
        return np.asarray(gaps - np.clip(gaps, -self.aim, self.aim))

    def _largest(self, gaps: Array) -> float:
        return float(np.abs(self._beyond(gaps)).max())


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
