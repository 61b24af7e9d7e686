"""LinearRanker: the reference ranker, a linear score fitted to convergence."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from pairity._utils.json_codec import Entry, to_plain
from pairity._utils.threads import run_all
from pairity._utils.typing import Array
from pairity._utils.validation import require_count, require_number
from pairity.data.checks import require_preferences
from pairity.data.queries import Queries
from pairity.exceptions import ConvergenceWarning, InputError, ModelFileError
from pairity.pairs.cells import pairs_by_cell, total_weight
from pairity.pairs.logistic import pairwise_hessian_product, pairwise_logistic
from pairity.rankers._estimators import PairRanker, require_stored_size
from pairity.rankers._linear_data import MOST_WHITENED, LinearData, linear_data
from pairity.rankers._products import one_blas_thread, times

# Below about this gradient, rounding hides the difference between the losses of two points.
_ROUNDING = 1e-7
_N_BLOCKS = 8  # of the sample that curvature is estimated from, on any number of threads
_MOST_EXACT = 64  # features up to which `response` computes the exact Hessian
_ARRAYS = ("coef", "beta", "scale")  # of a saved ranker


class LinearRanker(PairRanker):
    r"""A linear score that minimises the weighted pairwise logistic loss.

    .. math::

        \min_\beta \;
        \frac{\sum W_{g_i g_j} \log(1 + e^{m - \beta^\top (x_i - x_j)})}{\sum W_{g_i g_j}}
        + \frac{\alpha}{2} \sum_f (\sigma_f \beta_f)^2

    over the preference pairs (i, j). m is the margin times the number of steps between their
    labels, and σ_f is the standard deviation of feature f, so that the penalty is on standardised
    features while `coef_` is in the user's units. There is no intercept, because it cancels in
    every pair.

    Parameters
    ----------
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    margin : float, default=0.0
        The amount by which the preferred item should be ahead, for each step between the labels of
        a pair. From about 4 on, the loss is nearly a hinge (Ranking SVM), which depends less than
        the logistic loss on pairs that are won or lost by far.
    tol : float, default=1e-6
        The fit has converged if no entry of the gradient is larger, in coordinates in which the
        Hessian is about the identity. The coefficients are then that close to the minimum, in
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
    The problem is convex, so there is no seed: the result is the minimum up to `tol`, from any
    start. L-BFGS runs in coordinates whitened by an approximate Hessian, which is estimated from
    some of the queries. It needs a few passes over X, which may be sparse and is neither copied
    nor standardised in memory.

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
    memorises = False
    file_name = "ranker.npz"
    spreads = True

    def __init__(
        self, alpha: float = 1e-4, *, margin: float = 0.0, tol: float = 1e-6, max_iter: int = 1000
    ) -> None:
        self.alpha = alpha
        self.margin = margin
        self.tol = tol
        self.max_iter = max_iter

    def fit_pairs(  # type: ignore[override]
        self, queries: Queries, weights: Array, *, previous: Any = None
    ) -> Self:
        """Fit on weighted pairs; see `pairity.rankers.Ranker`."""
        data = linear_data(queries, self.margin)
        require_preferences(queries)
        require_number(self.alpha, "alpha")
        require_number(self.margin, "margin")
        require_number(self.tol, "tol", positive=True)
        require_count(self.max_iter, "max_iter")
        self.n_features_in_ = data.n_features
        scale = data.deviations()
        start = np.zeros(self.n_features_in_)
        if getattr(previous, "coef_", start[:0]).shape == start.shape:
            start = np.where(np.isfinite(scale), previous.coef_ * np.nan_to_num(scale), 0.0)
        with one_blas_thread:
            problem = _Problem(data, weights, scale, float(self.alpha))
            beta, loss, gradient, n_iter = _minimise(problem, start, self.tol, self.max_iter)
        if not gradient <= max(self.tol, _ROUNDING):
            warnings.warn(
                f"LinearRanker stopped after {n_iter} iterations with a largest gradient of "
                f"{gradient:.1e} (tol is {self.tol:g}). Raise max_iter or alpha, or check for "
                "features of very different scale.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.coef_, self._beta, self._scale = beta / scale, beta, scale
        self.loss_, self.n_iter_, self.n_evaluations_ = loss, n_iter, problem.n_evaluations
        return self

    def response(self, queries: Queries, weights: Array) -> tuple[Array, Array]:
        r"""Return how the scores of `queries` follow the pair weights.

        At the minimum the gradient is zero. Differentiating this in the weights gives
        :math:`d\beta = -H^{-1} \, \partial_W \nabla L \cdot dW`. The ranker must have been fitted
        with `weights`, on these queries or a superset of them.

        Returns
        -------
        directions : array of shape (n_directions, n_items)
        coefficients : array of shape (2, n_groups, n_groups, n_directions)
            The derivative of the scores in the weight of a cell, in the observed order and in the
            mirrored one, is ``coefficients[order, k, l] @ directions``.
        """
        with one_blas_thread:
            data = linear_data(queries, self.margin)
            problem = _Problem(data, weights, self._scale, float(self.alpha))
            counts = queries.total(pairs_by_cell)
            right = data.cell_gradients(self._beta / self._scale) / self._scale
            right += self.alpha * self._beta * counts[..., None]
            flat = -right.reshape(-1, data.n_features) / problem.total
            derivatives = problem.apply_inverse_hessian(self._beta, flat)
            directions, coefficients = derivatives, np.eye(len(flat))
            if data.n_features < len(flat):
                directions, coefficients = np.eye(data.n_features), derivatives
            shape = (2, *counts.shape, len(directions))
            return data.scores(directions / self._scale), coefficients.reshape(shape)

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
        self.coef_, self._beta, self._scale = _read_arrays(data, self.n_features_in_)
        self.loss_ = state.read("loss", float)
        self.n_iter_, self.n_evaluations_ = state.count("n_iter"), state.count("n_evaluations")


def _read_arrays(data: bytes, n_features: int) -> list[Array]:
    """Return `_ARRAYS` of a saved ranker; refuse objects and files that grow when unpacked."""
    name = LinearRanker.file_name
    try:
        require_stored_size(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            complete = sorted(file.files) == sorted(_ARRAYS)
            arrays = [file[key] for key in _ARRAYS] if complete else []
    except Exception as error:  # zipfile and NumPy raise many types
        raise ModelFileError(
            f"{name} cannot be read as a file of NumPy arrays ({error}). Get the model again from "
            "where it was saved."
        ) from error
    shapes = {(array.shape, array.dtype.str) for array in arrays}
    if shapes != {((n_features,), "<f8")} or not np.isfinite(arrays[0]).all():
        raise ModelFileError(
            f"{name} must contain {', '.join(_ARRAYS)}, each with one number for each of "
            f"{n_features} features. Get the model again from where it was saved."
        )
    return arrays


class _Problem:
    """The mean weighted loss and its penalty, in the coefficients of standardised features."""

    def __init__(self, data: LinearData, weights: Array, scale: Array, alpha: float) -> None:
        self.data, self.weights, self.scale, self.alpha = data, weights, scale, alpha
        self.total = total_weight(data.queries, weights)
        self.n_evaluations = 0
        if self.total == 0.0:
            raise InputError("All preference pairs have weight 0. Check the weights.")

    def evaluate(self, beta: Array) -> tuple[float, Array]:
        """Return the objective and its gradient."""
        self.n_evaluations += 1
        loss, of_coef = self.data.loss_and_gradient(beta / self.scale, self.weights)
        gradient = of_coef / self.scale / self.total + self.alpha * beta
        return loss / self.total + 0.5 * self.alpha * float(beta @ beta), gradient

    def whitening(self, beta: Array) -> _Whitening:
        """Return coordinates in which the Hessian at `beta` is about the identity."""
        sample = self.data.sample(self.weights)
        summed = sample.total(partial(_curvature, self.weights, self.scale, beta, self.data.margin))
        return _Whitening.of(summed / total_weight(sample, self.weights), self.alpha)

    def apply_inverse_hessian(self, beta: Array, rows: Array) -> Array:
        """Apply the inverse of the Hessian at `beta` to several vectors.

        With many features the Hessian is approximate; see `_curvature`.
        """
        if len(beta) > _MOST_EXACT:
            whitening = self.whitening(beta)
            return np.array([whitening.to_beta(whitening.gradient(row)) for row in rows])
        sample = self.data.sample(self.weights)
        summed = sample.total(partial(_hessian, self.weights, beta / self.scale, self.data.margin))
        hessian = summed / total_weight(sample, self.weights) / self.scale / self.scale[:, None]
        return np.asarray(rows @ np.linalg.pinv(hessian + self.alpha * np.eye(len(beta))))

    def solve(self, beta: Array, right: Array, whitening: _Whitening) -> Array:
        """Apply the inverse of the exact Hessian at `beta` to `right`, by conjugate gradients."""
        coef = beta / self.scale

        def hessian(direction: Array) -> Array:
            change = whitening.to_beta(direction)
            along = self.data.hessian_product(coef, self.weights, change / self.scale)
            return whitening.gradient(along / self.scale / self.total + self.alpha * change)

        operator = LinearOperator((len(right), len(right)), matvec=hessian, dtype=np.float64)
        solved, _ = cg(operator, whitening.gradient(right), rtol=1e-4, maxiter=50)
        return whitening.to_beta(solved)


@dataclass(frozen=True, eq=False)
class _Whitening:
    """Coordinates in which the Hessian is about the identity: β = start + L^-T u.

    `factor` is L, the lower Cholesky factor of an approximate Hessian, or its diagonal if there
    are too many features for a matrix.
    """

    factor: Array

    @classmethod
    def of(cls, hessian: Array, alpha: float) -> _Whitening:
        """Whiten by an approximate Hessian, or its diagonal, plus the penalty."""
        if hessian.ndim == 1:
            curvature = np.maximum(hessian, 0.0)
            return cls(np.sqrt(curvature + alpha + 1e-8 * (1.0 + curvature.max())))
        ridge = alpha + 1e-8 * (1e-300 + float(np.trace(hessian)) / len(hessian))
        while True:
            try:
                return cls(cholesky(hessian + ridge * np.eye(len(hessian)), lower=True))
            except LinAlgError:
                ridge = 10.0 * ridge + 1e-12

    def to_beta(self, u: Array) -> Array:
        """Return L^-T u."""
        if self.factor.ndim == 1:
            return u / self.factor
        return np.asarray(solve_triangular(self.factor, u, lower=True, trans="T"))

    def gradient(self, of_beta: Array) -> Array:
        """Return the gradient in u from the gradient in β: L^-1 g."""
        if self.factor.ndim == 1:
            return of_beta / self.factor
        return np.asarray(solve_triangular(self.factor, of_beta, lower=True))


def _minimise(
    problem: _Problem, start: Array, tol: float, max_iter: int
) -> tuple[Array, float, float, int]:
    """Run L-BFGS in whitened coordinates, scaled so that its first, unit step is Newton's.

    Below a gradient of about `_ROUNDING`, the losses of two points no longer differ. Newton steps
    on the gradient alone then reach a tighter `tol`, as far as rounding permits. Returns the
    minimum, its loss, its largest gradient in whitened coordinates, and the number of iterations.
    """
    whitening = problem.whitening(start)
    loss, of_beta = problem.evaluate(start)
    first = whitening.gradient(of_beta)
    length = float(np.linalg.norm(first))
    if np.abs(first).max() <= tol:
        return start, loss, float(np.abs(first).max()), 0

    def scaled(v: Array) -> tuple[float, Array]:
        if not v.any():
            return loss, length * first
        value, of_beta = problem.evaluate(start + whitening.to_beta(length * v))
        return value, length * whitening.gradient(of_beta)

    result = minimize(
        scaled,
        np.zeros_like(start),
        jac=True,
        method="L-BFGS-B",
        options={
            "gtol": length * max(tol, _ROUNDING), "ftol": 0.0, "maxcor": 20, "maxls": 15,
            "maxiter": max_iter, "maxfun": 3 * max_iter,
        },
    )  # fmt: skip
    beta, loss = start + whitening.to_beta(length * result.x), float(result.fun)
    gradient, n_iter = float(np.abs(result.jac).max()) / length, int(result.nit)
    while tol < gradient <= 100 * _ROUNDING and n_iter < max_iter:
        whitened = problem.whitening(beta)
        of_beta = problem.evaluate(beta)[1]
        step = problem.solve(beta, -of_beta, whitened)
        value, of_beta = problem.evaluate(beta + step)
        closer = float(np.abs(whitening.gradient(of_beta)).max())
        if closer >= gradient:
            break
        beta, loss, gradient, n_iter = beta + step, value, closer, n_iter + 1
    return beta, loss, gradient, n_iter


def _hessian(weights: Array, coef: Array, margin: float, part: Queries) -> Array:
    """Return the exact Hessian of the loss, summed over the pairs of some queries."""
    X = part.X.toarray() if isinstance(part.X, sp.csr_array) else part.X
    scores = X @ coef
    product = partial(pairwise_hessian_product, part, scores, weights, margin=margin)
    return np.array([product(column) for column in X.T]) @ X


def _curvature(weights: Array, scale: Array, beta: Array, margin: float, part: Queries) -> Array:
    """Return the approximate Hessian, summed over the pairs of some queries, or its diagonal.

    The pairs of a query act nearly like a diagonal, centred by a matrix of rank one:
    H ≈ diag(h) - h hᵀ / Σh with h the kernel's diagonal, which needs one pass and no pairs.
    """
    scores = part.X @ (beta / scale)
    h = pairwise_logistic(part, scores, weights, margin=margin, with_loss=False).hessian
    of_query = np.bincount(part.query, h, part.n_queries)
    inverse = np.divide(1.0, of_query, out=np.zeros_like(of_query), where=of_query > 0)
    if len(scale) > MOST_WHITENED:
        X, rows = sp.csr_array(part.X), np.arange(part.n_items)
        member = sp.csr_array((h, (part.query, rows)), shape=(part.n_queries, part.n_items))
        sparse_sums = sp.csr_array(member @ X)
        squares = X.multiply(X).T @ h - sparse_sums.multiply(sparse_sums).T @ inverse
        return np.asarray(squares) / scale / scale
    order, bounds = part.layout.order, part.layout.bounds
    standard = part.cached("standardised", scale.tobytes(), lambda: _standardise(part, scale))
    cuts = np.unique(np.searchsorted(bounds, np.linspace(0, part.n_items, _N_BLOCKS + 1)))

    def of_block(first: int, last: int) -> Array:
        rows = slice(bounds[first], bounds[last])
        weighted = standard[rows] * h[order[rows], None]
        sums = np.add.reduceat(weighted, bounds[first:last] - bounds[first], axis=0)
        squares = sums.T @ (sums * inverse[first:last, None])
        return np.asarray(standard[rows].T @ weighted - squares)

    return np.asarray(sum(run_all([partial(of_block, *pair) for pair in pairwise(cuts)])))


def _standardise(part: Queries, scale: Array) -> Array:
    """Return the features of queries one after the other; centring reduces rounding errors."""
    dense = part.X.toarray() if isinstance(part.X, sp.csr_array) else part.X
    return np.asarray((dense - dense.mean(axis=0)) / scale)[part.layout.order]
