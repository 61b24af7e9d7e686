"""How a PyTorch module is trained on weighted pairs, and scores items."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from pairity.pairs.losses import Loss

_LEAST_STEPS, _LARGEST_BATCH = 20, 32
_PREDICT_ENTRIES = 10_000_000  # of X that are scored at once
_CONSTANT = 1e-7  # a spread this small against the mean is float32's rounding


@dataclass(frozen=True, eq=False)
class Weighted:
    """Queries whose rows stand together, and the table that makes their loss a mean."""

    queries: Queries
    bounds: NDArray[np.int64]
    table: Array

    @classmethod
    def of(cls, queries: Queries, table: Array, name: str) -> Weighted:
        """Of the queries whose pairs weigh something."""
        padded = queries.pad(table)
        weight = (cell_counts(queries) * padded).sum(axis=(1, 2)) * queries.weight_of_query
        if not weight.sum() > 0.0:
            raise InputError(
                f"The preference pairs of the {queries.n_queries} {name} queries weigh "
                f"{weight.sum():g} together. Check the weights, or hold out another share."
            )
        if not weight.all():
            queries = queries.take(weight != 0.0)
        sizes = np.bincount(queries.query, minlength=queries.n_queries)
        own = slice(queries.n_codes)
        return cls(queries, np.r_[0, np.cumsum(sizes)], padded[own, own] / weight.sum())

    def part(self, chosen: NDArray[np.int64]) -> tuple[Queries, NDArray[np.int64], Array]:
        """Some queries without their features, their rows, and the table with their codes."""
        begin, sizes = self.bounds[chosen], np.diff(self.bounds)[chosen]
        query = np.repeat(np.arange(len(chosen)), sizes)
        rows = np.arange(len(query)) + np.repeat(begin - np.cumsum(sizes) + sizes, sizes)
        whole = self.queries
        part = replace(
            whole,
            X=None,
            y=whole.y[rows],
            query=query,
            query_ids=whole.query_ids[chosen],
            group=whole.group[rows],
            item_weight=None if whole.item_weight is None else whole.item_weight[rows],
            query_weight=None if whole.query_weight is None else whole.query_weight[chosen],
        )
        return part, rows, self.table[: part.n_codes, : part.n_codes].copy()


class Trainer:
    """One training run."""

    def __init__(
        self,
        torch: Any,
        module: Any,
        loss: Loss,
        data: Weighted,
        held_out: Weighted | None,
        device: Any,
    ) -> None:
        self.torch, self.module, self.loss, self.device = torch, module, loss, device
        self.data, self.held_out = data, held_out
        self.has_value = hasattr(loss, "value")
        self.loss_curve: list[float] = []
        self.validation_curve: list[float] = []
        self.n_epochs = self.best_epoch = self.n_steps = 0

    def score_one_query(self, when: str) -> None:
        """See whether the module can; lazy layers find their shape here."""
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
        _require_finite(scores, f"{when} the training, scores are")

    def run(
        self,
        optimizer: Any,
        epochs: int,
        batch_queries: Any,
        decay: bool,
        patience: int | None,
        standardised: bool,
        rng: np.random.RandomState,
    ) -> None:
        """Train, and leave the module with the parameters that are to be kept."""
        n_queries = self.data.queries.n_queries
        if batch_queries == "auto":
            batch_queries = min(max(n_queries // _LEAST_STEPS, 1), _LARGEST_BATCH)
        n_batches = 1 if batch_queries is None else -(-n_queries // int(batch_queries))
        everything = self._batch(np.arange(n_queries)) if n_batches == 1 else None
        schedule = self.torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 1.0 - decay * step / (epochs * n_batches)
        )
        best, kept, stale = np.inf, None, 0
        for self.n_epochs in range(1, epochs + 1):
            losses = []
            self.module.train()
            if standardised:
                self.module[0].eval()  # the statistics of the data, not of the batch
            if everything is None:
                parts = np.array_split(rng.permutation(n_queries), n_batches)
            for at in range(n_batches):
                batch = self._batch(parts[at]) if everything is None else everything
                losses.append(self._step(optimizer, batch, n_batches))
                schedule.step()
            now = float(np.sum(losses))
            if self.has_value:
                self.loss_curve.append(now)
            if self.held_out is not None:
                now = self._held_out_loss(self.held_out)
                self.validation_curve.append(now)
            if not now < best:
                stale += 1
            else:
                best, stale, self.best_epoch = now, 0, self.n_epochs
                if self.held_out is not None:
                    kept = copy.deepcopy(self.module.state_dict())
            if patience is not None and stale >= patience:
                break
        if kept is None:
            self.best_epoch = self.n_epochs
        else:
            self.module.load_state_dict(kept)

    def _batch(self, chosen: NDArray[np.int64]) -> tuple[Queries, Array, Any]:
        part, rows, table = self.data.part(chosen)
        X = self.data.queries.X[rows]
        return part, table, _tensor(self.torch, X, self.module, self.device)

    def _step(self, optimizer: Any, batch: tuple[Queries, Array, Any], n_batches: int) -> float:
        """One step of the optimizer; the batch's share in the mean loss before it."""
        part, table, X = batch
        losses: list[float] = []

        def closure() -> float:
            optimizer.zero_grad()
            scores = _forward(self.torch, self.module, X)
            if not scores.requires_grad:
                raise InputError(
                    "The module's scores do not follow from its parameters, so there is nothing "
                    "to train. Leave out detach() and no_grad() in its forward()."
                )
            values = _numbers(self.torch, scores)
            _require_finite(values, f"The training diverged in epoch {self.n_epochs}: scores are")
            gradient, _ = self.loss.derivatives(part, values, table, iteration=self.n_steps)
            scores.backward(self.torch.from_numpy(n_batches * gradient).to(scores))
            losses.append(self._value(part, values, table))
            return n_batches * losses[-1]

        optimizer.step(closure)
        self.n_steps += 1
        return losses[0]

    def _value(self, queries: Queries, scores: Array, table: Array) -> float:
        value: Any = getattr(self.loss, "value", None)
        return float("nan") if value is None else float(value(queries, scores, table))

    def _held_out_loss(self, held: Weighted) -> float:
        self.module.eval()
        scores = predict(self.torch, self.module, held.queries.X, self.device)
        return self._value(held.queries, scores, held.table)


@contextmanager
def own_randomness(torch: Any, seed: int, device: Any) -> Iterator[None]:
    """Seed torch inside the block, and leave its random state as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def find_device(torch: Any, name: Any) -> Any:
    """The device of that name; with "auto", a GPU where there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"device is {show(name)}. Give 'cpu', 'auto', or a device of torch's such as 'cuda:0'."
        ) from error


def dtype_of(torch: Any, module: Any) -> Any:
    """The kind of numbers that the module computes with."""
    kinds = (each.dtype for each in module.parameters() if each.is_floating_point())
    return next(kinds, torch.get_default_dtype())


def _tensor(torch: Any, X: Features, module: Any, device: Any) -> Any:
    dense = X.toarray() if isinstance(X, sp.csr_array) else X
    return torch.from_numpy(np.ascontiguousarray(dense)).to(device, dtype_of(torch, module))


def _forward(torch: Any, module: Any, X: Any) -> Any:
    """Scores of shape (n_items,)."""
    scores = module(X)
    if not isinstance(scores, torch.Tensor):
        raise InputError(
            f"The module returned {type(scores).__name__} rather than a tensor. Its forward() must "
            "return one score per item."
        )
    if tuple(scores.shape) not in ((len(X),), (len(X), 1)):
        raise InputError(
            f"The module returned shape {tuple(scores.shape)} for features of shape "
            f"{tuple(X.shape)}. Return one score per item: ({len(X)},) or ({len(X)}, 1)."
        )
    return scores.reshape(len(X))


def _numbers(torch: Any, scores: Any) -> Array:
    numbers: Array = scores.detach().to("cpu", torch.float64).numpy()
    return numbers


def predict(torch: Any, module: Any, X: Features, device: Any) -> Array:
    """Scores, of so many rows at a time that they take little memory."""
    n_items, n_features = X.shape
    rows = max(1, _PREDICT_ENTRIES // n_features)
    scores = np.empty(n_items)
    with torch.no_grad():
        for begin in range(0, n_items, rows):
            part = slice(begin, begin + rows)
            features = _tensor(torch, X[part], module, device)
            scores[part] = _numbers(torch, _forward(torch, module, features))
    return scores


def moments(X: Features) -> tuple[Array, Array]:
    """Mean and variance of every feature, a variance of 1 where it is constant."""
    if isinstance(X, sp.csr_array):
        mean, variance = mean_variance_axis(X, axis=0)
    else:
        mean, variance = X.mean(axis=0), X.var(axis=0)
    constant = variance <= (_CONSTANT * mean) ** 2 + np.finfo(np.float32).tiny
    return mean, np.where(constant, 1.0, variance)


def _require_finite(scores: Array, what: str) -> None:
    bad = ~np.isfinite(scores)
    if bad.any():
        raise TrainingError(
            f"{what} NaN or infinity for {int(bad.sum())} of {len(scores)} items. Lower the "
            "learning rate, standardise the features, or look at the module."
        )
