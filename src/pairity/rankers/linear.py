"""LinearRanker: the reference procedure H, a linear score fitted to convergence."""

from __future__ import annotations

import io
import warnings
import zipfile
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.typing import Array
from pairity.data.features import Features
from pairity.data.queries import Queries, require_preferences
from pairity.exceptions import ConvergenceWarning, InputError, ModelFileError
from pairity.pairs.cells import total_weight
from pairity.pairs.logistic import pairwise_logistic, subtract_margin
from pairity.rankers._estimators import PairRanker
from pairity.rankers._linear_data import MOST_WHITENED, LinearData, linear_data
from pairity.rankers._products import one_blas_thread, times

_ROUNDING = 1e-7  # below about this gradient the loss no longer tells two points apart
_MANY_CHANGES = 40  # of more, the response is told roughly: else it would cost more than it saves
_ARRAYS = ("coef", "beta", "scale")  # of a saved ranker


class LinearRanker(PairRanker):
    r"""A linear score that minimises the weighted pairwise logistic loss.

    .. math::

        \min_\beta \;
        \frac{\sum W_{g_i g_j} \log(1 + e^{m - \beta^\top (x_i - x_j)})}{\sum W_{g_i g_j}}
        + \frac{\alpha}{2} \sum_f (\sigma_f \beta_f)^2

    over the preference pairs (i, j), with m the margin times the steps between their labels, and
    σ_f the standard deviation of feature f, so that the penalty is on standardised features while
    `coef_` is in the user's units. There is no intercept: pairs do not see one.

    Parameters
    ----------
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    margin : float, default=0.0
        By how much the preferred item is to be ahead, for each label of the query from the other
        item's up to its own. From about 4 on, the loss is nearly a hinge (Ranking SVM), which
        minds pairs that are won by far or lost by far less than the logistic loss does.
    tol : float, default=1e-6
        The fit has converged when the gradient, in coordinates in which the Hessian is about the
        identity, is nowhere larger: the coefficients are then that close to the minimum, in
        units of their own curvature.
    max_iter : int, default=1000

    Attributes
    ----------
    coef_ : float64 array of shape (n_features,)
    loss_ : float, the mean loss with its penalty at the minimum
    n_iter_ : int
    n_evaluations_ : int, passes over the data

    Notes
    -----
    The problem is convex, so there is nothing to seed: the result is the minimum, whatever the
    start, to `tol`. L-BFGS runs in coordinates whitened by an approximate Hessian, estimated from
    a part of the queries; it needs a few passes over X, which is neither copied as a whole nor
    standardised in memory, and may be sparse.

    Examples
    --------
    >>> import numpy as np
    >>> from pairity import LinearRanker
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> ranker = LinearRanker().fit(X, [0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> bool(ranker.coef_[0] > 0)
    True
    """

    learnt = "coef_"
    streams = True
    file_name = "ranker.npz"
    spreads = True

    def __init__(
        self,
        alpha: float = 1e-4,
        *,
        margin: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> None:
        self.alpha = alpha
        self.margin = margin
        self.tol = tol
        self.max_iter = max_iter

    def fit_pairs(  # type: ignore[override]
        self, queries: Queries, weights: Array, *, previous: Any = None
    ) -> Self:
        """Fit on weighted pairs; see `pairity.rankers.base.Ranker`."""
        data = linear_data(queries, self.margin)
        require_preferences(queries)
        return self.fit_data(data, weights, previous=previous)

    def fit_data(self, data: LinearData, table: Array, *, previous: Any = None) -> Self:
        """As `fit_pairs`, on rows that lie wherever `data` knows to find them."""
        self._check_parameters()
        self.n_features_in_ = data.n_features
        scale = data.deviations()
        start = np.zeros(self.n_features_in_)
        if getattr(previous, "coef_", start[:0]).shape == start.shape:
            start = np.where(np.isfinite(scale), previous.coef_ * np.nan_to_num(scale), 0.0)
        with one_blas_thread:
            problem = _Problem(data, table, scale, self.alpha)
            found = _minimise(problem, start, self.tol, self.max_iter)
        if not found.converged:
            warnings.warn(
                f"LinearRanker stopped after {found.n_iter} iterations with a largest gradient of "
                f"{found.gradient:.1e} (tol is {self.tol:g}). Raise max_iter, raise alpha, or "
                "look for features of wildly different size.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.coef_ = found.beta / scale
        self._beta = found.beta
        self.loss_ = found.loss
        self.n_iter_ = found.n_iter
        self.n_evaluations_ = problem.n_evaluations
        self._scale = scale
        return self

    def response(self, queries: Queries, table: Array, changes: Array) -> Array:
        r"""How the scores of `queries` move when the weight table moves.

        At the minimum the gradient is zero; differentiating that in the table gives
        :math:`d\beta = -H^{-1} \, \partial_W \nabla L \cdot dW`, solved by conjugate gradients.
        The ranker must have been fitted with `table`, on these queries or on more of their kind.

        Parameters
        ----------
        changes : array of shape (n_changes, n_groups, n_groups)
            Directions in which the table moves.

        Returns
        -------
        array of shape (n_changes, n_items)
        """
        with one_blas_thread:
            data = linear_data(queries, self.margin)
            problem = _Problem(data, table, self._scale, self.alpha)
            whitening = problem.whitening(self._beta)
            # Pairs of unknown group keep their weight: it does not move.
            pulls = data.gradients(self._beta / self._scale, changes, fill=0.0)
            moved = np.empty_like(pulls)
            n_steps = 10 if len(changes) <= _MANY_CHANGES else 1
            for at, (change, pull) in enumerate(zip(changes, pulls, strict=True)):
                drop = data.total_weight(change, fill=0.0) / problem.whole
                right = pull / self._scale / problem.whole + drop * self.alpha * self._beta
                moved[at] = problem.solve(
                    self._beta, -right, whitening, rtol=0.05, max_iter=n_steps
                )
            return data.scores(moved / self._scale)

    def _scores(self, features: Any) -> Array:
        with one_blas_thread:
            return times(features, self.coef_)

    def _to_native(self) -> tuple[dict[str, Any], bytes]:
        file = io.BytesIO()
        np.savez(file, coef=self.coef_, beta=self._beta, scale=self._scale)
        state = {
            "loss": to_plain(float(self.loss_)),
            "n_iter": int(self.n_iter_),
            "n_evaluations": int(self.n_evaluations_),
        }
        return state, file.getvalue()

    def _from_native(self, state: Entry, data: bytes) -> None:
        arrays = _read_arrays(data, self.n_features_in_)
        self.coef_, self._beta, self._scale = (arrays[name] for name in _ARRAYS)
        self.loss_ = state.read("loss", float)
        self.n_iter_ = state.count("n_iter")
        self.n_evaluations_ = state.count("n_evaluations")

    def _check_parameters(self) -> None:
        alpha: Any = self.alpha
        if not isinstance(alpha, Real) or not 0.0 <= float(alpha) < np.inf:
            raise InputError(f"alpha is {alpha!r}, but a penalty must be a number, 0 or more.")
        margin: Any = self.margin
        if not isinstance(margin, Real) or not 0.0 <= float(margin) < np.inf:
            raise InputError(f"margin is {margin!r}, but it must be a number, 0 or more.")
        tol: Any = self.tol
        if not isinstance(tol, Real) or not 0.0 < float(tol) < np.inf:
            raise InputError(f"tol is {tol!r}; give a positive number such as 1e-6.")
        max_iter: Any = self.max_iter
        if not isinstance(max_iter, Integral) or int(max_iter) < 1:
            raise InputError(f"max_iter is {max_iter!r}; give a whole number of at least 1.")


def _read_arrays(data: bytes, n_features: int) -> dict[str, Array]:
    """The arrays of a saved ranker; objects, and more than the file can hold, are refused."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            fits = sum(part.file_size for part in parts.infolist()) <= len(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            right = fits and sorted(file.files) == sorted(_ARRAYS)
            arrays = {name: file[name] for name in _ARRAYS} if right else {}
    except Exception as error:  # zipfile and NumPy raise a dozen kinds
        raise ModelFileError(
            f"{LinearRanker.file_name} is no file of NumPy arrays that can be read ({error}). Get "
            "the model again from where it was saved."
        ) from error
    shapes = {(array.shape, array.dtype.str) for array in arrays.values()}
    if shapes != {((n_features,), "<f8")} or not np.isfinite(arrays["coef"]).all():
        raise ModelFileError(
            f"{LinearRanker.file_name} does not hold {', '.join(_ARRAYS)} with one number for each "
            f"of {n_features} features. Get the model again from where it was saved."
        )
    return arrays


class _Problem:
    """The mean weighted loss and its penalty, in the coefficients of standardised features."""

    def __init__(
        self,
        data: LinearData,
        table: Array,
        scale: Array,
        alpha: float,
    ) -> None:
        self.data = data
        self.table = table
        self.scale = scale
        self.alpha = float(alpha)
        self.whole = data.total_weight(table)
        self.n_evaluations = 0
        if self.whole == 0.0:
            raise InputError("All preference pairs weigh 0: nothing to fit. Check the weights.")

    def evaluate(self, beta: Array) -> tuple[float, Array]:
        """Objective and gradient."""
        self.n_evaluations += 1
        loss, of_coef = self.data.loss_and_gradient(beta / self.scale, self.table)
        gradient = of_coef / self.scale / self.whole + self.alpha * beta
        return loss / self.whole + 0.5 * self.alpha * float(beta @ beta), gradient

    def whitening(self, beta: Array) -> _Whitening:
        """Coordinates in which the Hessian at `beta` is about the identity."""
        sample = self.data.sample(self.table)
        return _Whitening.of(sample, self.table, self.scale, self.alpha, beta, self.data.margin)

    def solve(
        self,
        at: Array,
        right: Array,
        whitening: _Whitening,
        *,
        rtol: float,
        max_iter: int,
    ) -> Array:
        """The exact Hessian at `at`, inverted on `right` by conjugate gradients."""

        def hessian(direction: Array) -> Array:
            beta = whitening.to_beta(direction)
            along = self.data.hessian_product(at / self.scale, self.table, beta / self.scale)
            return whitening.gradient(along / self.scale / self.whole + self.alpha * beta)

        operator = LinearOperator((len(right), len(right)), matvec=hessian, dtype=np.float64)
        solved, _ = cg(operator, whitening.gradient(right), rtol=rtol, maxiter=max_iter)
        return whitening.to_beta(solved)


@dataclass(frozen=True, eq=False)
class _Whitening:
    """Coordinates in which the Hessian is about the identity: β = start + L^-T u.

    `factor` is L, the lower Cholesky factor of an approximate Hessian, or its diagonal where
    there are too many features for a matrix.
    """

    factor: Array

    @classmethod
    def of(
        cls,
        part: Any,
        table: Array,
        scale: Array,
        alpha: float,
        beta: Array,
        margin: float,
    ) -> _Whitening:
        """Estimate the Hessian at `beta` from a part of the queries.

        The pairs of a query act nearly like a rank-one-centred diagonal: H ≈ diag(h) - h hᵀ / Σh
        with h the kernel's diagonal, which needs one pass and no pair of features.
        """
        n_features = len(scale)
        summed = part.total(partial(_curvature, table, scale, beta, margin))
        hessian = summed / total_weight(part, table)
        if n_features > MOST_WHITENED:
            curvature = np.maximum(hessian, 0.0)
            return cls(np.sqrt(curvature + alpha + 1e-8 * (1.0 + curvature.max())))
        ridge = alpha + 1e-8 * (1e-300 + float(np.trace(hessian)) / n_features)
        while True:
            try:
                shifted = hessian + ridge * np.eye(n_features)
                return cls(cholesky(shifted, lower=True))
            except LinAlgError:
                ridge = 10.0 * ridge + 1e-12

    def to_beta(self, u: Array) -> Array:
        """L^-T u."""
        if self.factor.ndim == 1:
            return u / self.factor
        return np.asarray(solve_triangular(self.factor, u, lower=True, trans="T"))

    def gradient(self, of_beta: Array) -> Array:
        """The gradient in u from the gradient in β: L^-1 g."""
        if self.factor.ndim == 1:
            return of_beta / self.factor
        return np.asarray(solve_triangular(self.factor, of_beta, lower=True))


@dataclass(frozen=True, eq=False)
class _Minimum:
    beta: Array
    loss: float
    gradient: float
    n_iter: int
    converged: bool


def _minimise(problem: _Problem, start: Array, tol: float, max_iter: int) -> _Minimum:
    """L-BFGS in whitened coordinates, scaled so that its first, unit step is Newton's.

    Below a gradient of about `_ROUNDING` the loss no longer tells two points apart; a tighter `tol`
    is reached by Newton steps on the gradient alone, as far as rounding lets them.
    """
    whitening = problem.whitening(start)
    loss, of_beta = problem.evaluate(start)
    first = whitening.gradient(of_beta)
    length = float(np.linalg.norm(first))
    if np.abs(first).max() <= tol:
        return _Minimum(start, loss, float(np.abs(first).max()), 0, True)

    def in_steps(v: Array) -> tuple[float, Array]:
        if not v.any():
            return loss, length * first
        value, of_beta = problem.evaluate(start + whitening.to_beta(length * v))
        return value, length * whitening.gradient(of_beta)

    found = minimize(
        in_steps,
        np.zeros_like(start),
        jac=True,
        method="L-BFGS-B",
        options={
            "gtol": length * max(tol, _ROUNDING), "ftol": 0.0, "maxcor": 20, "maxls": 15,
            "maxiter": max_iter, "maxfun": 3 * max_iter,
        },
    )  # fmt: skip
    beta, loss = start + whitening.to_beta(length * found.x), float(found.fun)
    gradient = float(np.abs(found.jac).max()) / length
    n_iter = int(found.nit)
    while tol < gradient <= 100 * _ROUNDING and n_iter < max_iter:
        whitened = problem.whitening(beta)
        of_beta = problem.evaluate(beta)[1]
        step = problem.solve(beta, -of_beta, whitened, rtol=1e-4, max_iter=50)
        value, of_beta = problem.evaluate(beta + step)
        closer = float(np.abs(whitening.gradient(of_beta)).max())
        if closer >= gradient:
            break
        beta, loss, gradient, n_iter = beta + step, value, closer, n_iter + 1
    return _Minimum(beta, loss, gradient, n_iter, gradient <= max(tol, _ROUNDING))


def _curvature(
    table: Array,
    scale: Array,
    beta: Array,
    margin: float,
    part: Queries,
) -> Array:
    """The sum behind a `_Whitening`: the approximate Hessian of these queries, or its diagonal."""
    scores = subtract_margin(part, part.X @ (beta / scale), margin)
    h = pairwise_logistic(part, scores, table, with_loss=False).hessian
    per_query = np.bincount(part.query, h, part.n_queries)
    inverse = np.divide(1.0, per_query, out=np.zeros_like(per_query), where=per_query > 0)
    if len(scale) > MOST_WHITENED:
        means = _query_sums(part, part.X, h)
        curvature = _column_sums_of_squares(part.X, h) - _column_sums_of_squares(means, inverse)
        return np.asarray(curvature / scale / scale)
    dense = part.X.toarray() if isinstance(part.X, sp.csr_array) else part.X
    standard = (dense - dense.mean(axis=0)) / scale  # the mean plays no part but in rounding
    sums = _query_sums_dense(part, standard * h[:, None])
    hessian = standard.T @ (standard * h[:, None]) - sums.T @ (sums * inverse[:, None])
    return np.asarray(hessian)


def _query_sums_dense(queries: Queries, rows: Array) -> Array:
    layout = queries.layout
    return np.add.reduceat(rows[layout.order], layout.bounds[:-1], axis=0)


def _query_sums(queries: Queries, X: Features, weight: Array) -> sp.csr_array:
    """Per query, the weighted sum of its rows, sparse."""
    member = sp.csr_array(
        (weight, (queries.query, np.arange(queries.n_items))),
        shape=(queries.n_queries, queries.n_items),
    )
    return sp.csr_array(member @ sp.csr_array(X))


def _column_sums_of_squares(X: Features, weight: Array) -> Array:
    squares = sp.csr_array(X).multiply(sp.csr_array(X))
    return np.asarray(squares.T @ weight)
