"""Training of a PyTorch module on weighted pairs, and its scores."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.features import Features
from pairity.data.queries import Queries
from pairity.exceptions import InputError, PairityError, TrainingError
from pairity.pairs.cells import cell_counts
from pairity.pairs.losses import as_loss
from pairity.rankers._products import row_blocks

_LEAST_STEPS, _LARGEST_BATCH = 20, 32  # steps per epoch and queries per step of "auto"
_PREDICT_ENTRIES = 10_000_000  # entries of X that are scored at once: 40 MB as float32
_CONSTANT = 1e-7  # a deviation this small relative to the mean is rounding of float32


@dataclass(frozen=True, eq=False)
class Weighted:
    """Queries with contiguous rows, and the weights that make their loss a mean."""

    queries: Queries
    bounds: NDArray[np.int64]
    weights: Array

    @classmethod
    def of(cls, queries: Queries, weights: Array, name: str) -> Weighted:
        """Select the queries with pairs of positive weight."""
        padded = queries.pad(weights)
        combined = padded if padded.ndim == 2 else padded.sum(axis=0)
        weight = (cell_counts(queries) * combined).sum(axis=(1, 2)) * queries.training_weight
        if not weight.sum() > 0.0:
            raise InputError(
                f"The preference pairs of the {queries.n_queries} {name} queries have a total "
                f"weight of {weight.sum():g}. Check the weights, or hold out another share."
            )
        if not weight.all():
            queries = queries.take(weight != 0.0)
        sizes = np.bincount(queries.query, minlength=queries.n_queries)
        own = slice(queries.n_codes)
        return cls(queries, np.r_[0, np.cumsum(sizes)], padded[..., own, own] / weight.sum())

    def part(self, chosen: NDArray[np.int64]) -> tuple[Queries, NDArray[np.int64], Array]:
        """Return some queries without features, their rows, and the weights of their codes."""
        starts, sizes = self.bounds[chosen], np.diff(self.bounds)[chosen]
        query = np.repeat(np.arange(len(chosen)), sizes)
        rows = np.arange(len(query)) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        queries = replace(self.queries, X=None)
        part = replace(
            queries._rows(rows),
            query=query,
            query_ids=queries.query_ids[chosen],
            query_weight=None if queries.query_weight is None else queries.query_weight[chosen],
        )
        return part, rows, self.weights[..., : part.n_codes, : part.n_codes].copy()


@dataclass(eq=False)
class Trainer:
    """One training run with the settings of a `TorchRanker`."""

    torch: Any
    module: Any
    settings: Any
    data: Weighted
    held_out: Weighted | None
    device: Any
    loss_curve: list[float] = field(default_factory=list)
    validation_curve: list[float] = field(default_factory=list)
    n_epochs: int = 0
    best_epoch: int = 0
    n_steps: int = 0

    def __post_init__(self) -> None:
        self.loss = as_loss(self.settings.loss)
        self.value: Any = getattr(self.loss, "value", lambda *_: np.nan)

    def score_one_query(self, when: str) -> None:
        """Check that the module can score one query. Lazy layers get their shape here."""
        X = self.data.queries.X[: int(self.data.bounds[1])]
        self.module.eval()
        try:
            scores = predict(self.torch, self.module, X, self.device)
        except PairityError:
            raise
        except Exception as error:
            raise InputError(
                f"The module cannot score features of shape {X.shape}: {type(error).__name__}: "
                f"{error}"
            ) from error
        _require_finite(scores, f"{when} training, scores are")

    def run(self, optimizer: Any, rng: np.random.RandomState) -> None:
        """Train, and leave the module with the parameters to return."""
        n_queries, batch_queries = self.data.queries.n_queries, self.settings.batch_queries
        if batch_queries == "auto":
            batch_queries = min(max(n_queries // _LEAST_STEPS, 1), _LARGEST_BATCH)
        n_batches = 1 if batch_queries is None else -(-n_queries // int(batch_queries))
        single = self._batch(np.arange(n_queries)) if n_batches == 1 else None
        epochs, patience = int(self.settings.epochs), self.settings.patience
        schedule = self.torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 1.0 - bool(self.settings.decay) * step / (epochs * n_batches)
        )
        best, best_state, n_stale = np.inf, None, 0
        for self.n_epochs in range(1, epochs + 1):
            self.module.train()
            if self.settings.standardise:
                self.module[0].eval()  # statistics of the data, not of the batch
            losses = []
            parts = np.array_split(rng.permutation(n_queries), n_batches)
            for batch in [single] if single else map(self._batch, parts):
                losses.append(self._step(optimizer, batch, n_batches))
                schedule.step()
            value = self._record(float(np.sum(losses)))
            n_stale += 1
            if value < best:
                best, n_stale, self.best_epoch = value, 0, self.n_epochs
                if self.held_out is not None:
                    best_state = copy.deepcopy(self.module.state_dict())
            if patience is not None and n_stale >= patience:
                break
        if best_state is None:
            self.best_epoch = self.n_epochs
        else:
            self.module.load_state_dict(best_state)

    def _record(self, loss: float) -> float:
        """Append to the curves after an epoch, and return the loss to compare epochs by."""
        if hasattr(self.loss, "value"):
            self.loss_curve.append(loss)
        if self.held_out is None:
            return loss
        self.module.eval()
        queries = self.held_out.queries
        scores = predict(self.torch, self.module, queries.X, self.device)
        self.validation_curve.append(float(self.value(queries, scores, self.held_out.weights)))
        return self.validation_curve[-1]

    def _batch(self, chosen: NDArray[np.int64]) -> tuple[Queries, Array, Any]:
        part, rows, weights = self.data.part(chosen)
        X = self.data.queries.X[rows]
        return part, weights, _tensor(self.torch, X, self.module, self.device)

    def _step(self, optimizer: Any, batch: tuple[Queries, Array, Any], n_batches: int) -> float:
        """Take one step of the optimizer; return the batch's share of the mean loss before it."""
        part, weights, X = batch
        losses: list[float] = []

        def closure() -> float:
            optimizer.zero_grad()
            scores = _forward(self.torch, self.module, X)
            if not scores.requires_grad:
                raise InputError(
                    "The module's scores do not depend on its parameters, so they cannot be "
                    "trained. Remove detach() and no_grad() from its forward()."
                )
            values = _numbers(self.torch, scores)
            _require_finite(values, f"Training diverged in epoch {self.n_epochs}: scores are")
            gradient, _ = self.loss.derivatives(part, values, weights, iteration=self.n_steps)
            scores.backward(self.torch.from_numpy(n_batches * gradient).to(scores))
            losses.append(float(self.value(part, values, weights)))
            return n_batches * losses[-1]

        optimizer.step(closure)
        self.n_steps += 1
        return losses[0]


def as_device(torch: Any, name: Any) -> Any:
    """Return the device of that name; "auto" means a GPU if there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            "device must be 'auto' or a device of torch, such as 'cpu' or 'cuda:0' (got "
            f"{show(name)})."
        ) from error


def dtype_of(torch: Any, module: Any) -> Any:
    """Return the floating-point type of the module."""
    types = (tensor.dtype for tensor in module.parameters() if tensor.is_floating_point())
    return next(types, torch.get_default_dtype())


def _tensor(torch: Any, X: Features, module: Any, device: Any) -> Any:
    dense = X.toarray() if isinstance(X, sp.csr_array) else X
    return torch.from_numpy(np.ascontiguousarray(dense)).to(device, dtype_of(torch, module))


def _forward(torch: Any, module: Any, X: Any) -> Any:
    """Return scores of shape (n_items,)."""
    scores = module(X)
    if not isinstance(scores, torch.Tensor):
        raise InputError(
            f"The module returned {type(scores).__name__} instead of a tensor. Its forward() must "
            "return one score per item."
        )
    if tuple(scores.shape) not in ((len(X),), (len(X), 1)):
        raise InputError(
            f"The module returned shape {tuple(scores.shape)} for features of shape "
            f"{tuple(X.shape)}. Return one score per item: ({len(X)},) or ({len(X)}, 1)."
        )
    return scores.reshape(len(X))


def _numbers(torch: Any, scores: Any) -> Array:
    return np.asarray(scores.detach().to("cpu", torch.float64).numpy())


def predict(torch: Any, module: Any, X: Features, device: Any) -> Array:
    """Return scores, computed in blocks of rows to bound the memory."""
    scores = np.empty(X.shape[0])
    with torch.no_grad():
        for part in row_blocks(X, _PREDICT_ENTRIES):
            features = _tensor(torch, X[part], module, device)
            scores[part] = _numbers(torch, _forward(torch, module, features))
    return scores


def moments(X: Features) -> tuple[Array, Array]:
    """Return mean and variance of every feature; a constant feature has variance 1."""
    if isinstance(X, sp.csr_array):
        mean, variance = mean_variance_axis(X, axis=0)
    else:
        mean, variance = X.mean(axis=0), X.var(axis=0)
    constant = variance <= (_CONSTANT * mean) ** 2 + np.finfo(np.float32).tiny
    return mean, np.where(constant, 1.0, variance)


def _require_finite(scores: Array, subject: str) -> None:
    n_bad = int((~np.isfinite(scores)).sum())
    if n_bad:
        raise TrainingError(
            f"{subject} NaN or infinity for {n_bad} of {len(scores)} items. Lower the learning "
            "rate, standardise the features, or check the module."
        )
