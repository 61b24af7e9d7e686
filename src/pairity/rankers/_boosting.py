"""The part that LightGBMRanker and XGBoostRanker share: training calls, binned data, refusals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pairity._utils.allreduce import current_peers, sum_over_peers
from pairity._utils.json_codec import Entry, encode
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.parquet_features import LITTLE_MEMORY, ParquetFeatures, is_lack_of_memory
from pairity.data.queries import Queries
from pairity.exceptions import InputError, NoMemoryError
from pairity.pairs.losses import Loss
from pairity.rankers._engines import EngineRanker
from pairity.rankers._evaluation_sets import SET_PARAMETERS, read_evaluation_sets
from pairity.rankers._objective import Follow

_MEMORY_ADVICE = {
    "lightgbm": (
        "LightGBM needs a byte for each entry of the table (two unless force_col_wise=True) and 20 "
        "bytes for each entry of the rows that it finds bins from: lower subsample_for_bin. Each "
        "leaf has a histogram of 16 bytes per bin: lower num_leaves or max_bin."
    ),
    "xgboost": (
        "XGBoost needs 16 bytes for each bin of each leaf, and some kilobytes per bin to find the "
        "bins: lower max_bin or max_depth."
    ),
}


class Training(NamedTuple):
    """One call of an engine's training.

    ``follow`` and ``measured_on`` are those of `BoosterRanker.fit_following`, and ``previous`` is a
    fitted ranker whose number of trees is used, without early stopping.
    """

    follow: Follow
    fit_params: dict[str, Any]
    measured_on: Queries | None = None
    previous: Any = None


class BoosterRanker(EngineRanker):
    """A ranker that passes pairity's objective to an engine's training call."""

    streams = True
    spreads = True

    def __init__(self, estimator: Any = None, *, loss: Any = None) -> None:
        self.estimator = estimator
        self.loss = loss

    def fit_pairs(
        self, queries: Queries, weights: Array, *, previous: Any = None, **fit_params: Any
    ) -> Self:
        """Train on weighted pairs; see `pairity.rankers.Ranker`.

        `fit_params` are those of the engine's own `fit`, such as its evaluation sets: (X, y) with
        ``eval_qid`` or ``eval_group``. With evaluation sets, this trains as many trees as
        `previous` kept, and does not stop early: metrics may fall because the weights moved.
        """
        if fit_params.get("eval_set") is None or not isinstance(previous, type(self)):
            previous = None
        training = Training(lambda *_: weights, fit_params, previous=previous)
        return self._prepare_and_train(queries, training)

    def fit_following(
        self,
        queries: Queries,
        follow: Follow,
        *,
        measured_on: Queries | None = None,
        **fit_params: Any,
    ) -> Self:
        """Train once, with pair weights that may change before every tree.

        Parameters
        ----------
        queries : Queries
        follow : callable
            Receives the number of trees so far, the final number of trees, and a function that
            returns the current scores; returns the weights for the next tree.
        measured_on : Queries, optional
            The items whose scores `follow` receives. By default these are the items of `queries`,
            whose scores it always receives with ``training=True``.
        **fit_params
            As in `fit_pairs`.
        """
        if not self.follows:
            raise InputError(
                "schedule='interleaved' updates lambda from the scores of the trees so far, but "
                f"{self._boosting()!r} changes earlier trees in every step. Use "
                "schedule='retrain', or a booster that keeps its trees."
            )
        return self._prepare_and_train(queries, Training(follow, fit_params, measured_on))

    @property
    def follows(self) -> bool:
        """Whether weights may change during training, which requires that trees stay fixed."""
        return self._boosting() not in ("dart", "gblinear")

    def _prepare_and_train(self, queries: Any, training: Training) -> Self:
        if not isinstance(queries, Queries):  # on the workers of a cluster
            from pairity.rankers._distributed import train_on_workers

            if training.measured_on is not None:
                raise InputError(
                    "schedule='interleaved' measures Dask collections on the training queries, but "
                    "validation data were passed. Use schedule='retrain'."
                )
            train_on_workers(queries, self, training)
            return self
        self._begin_fit(queries)
        with _memory_advice(self.engine[0], isinstance(queries.X, ParquetFeatures)):
            self._train(queries, training)
        return self

    @abstractmethod
    def _train(self, queries: Queries, training: Training) -> None:
        """Set ``model_`` and the other attributes of a fit."""

    @abstractmethod
    def _boosting(self) -> str:
        """Return the engine's name for its kind of boosting."""

    def _require_objective(self, objective: Any, *known: str) -> None:
        """Refuse an objective that pair weights cannot reach."""
        adapter, kind = type(self).__name__, self.engine[1]
        instead = f'choose the loss of a pair with {adapter}({kind}(...), loss="logistic")'
        if callable(objective):
            raise InputError(
                f"The {kind} has a custom objective, but pairity trains it through the objective. "
                f"Remove it, and {instead}."
            )
        if objective not in known:
            raise InputError(
                f"{kind}(objective={objective!r}) has no weights for pairs. Use "
                f"{' or '.join(map(repr, known))}, or {instead}."
            )

    def _refuse_unused(self, params: dict[str, Any], names: Iterable[str], loss: Loss) -> None:
        """Refuse parameters of an engine's own objective that would have no effect."""
        engine = type(self).__name__.removesuffix("Ranker")
        for name in names:
            if name in params:
                raise InputError(
                    f"{name}={params[name]!r} is a setting of {engine}'s own objective, "
                    f"which pairity replaces by {loss!r}, and that has no such setting. Remove it."
                )

    def _bin_once(
        self, queries: Queries, settings: Any, fit_params: dict[str, Any], make: Callable[..., Any]
    ) -> Binned:
        """Return the binned data of these queries, built once and cached with them.

        Parameters
        ----------
        queries : Queries
        settings : everything that the data depend on, compared with ==
        fit_params : dict, with the evaluation sets
        make : callable
            Receives queries with rows in the order of the query numbers, and the training data or
            None; returns an engine's data.
        """
        engine, sets = self.engine[0], {name: fit_params.get(name) for name in SET_PARAMETERS}
        key = settings, [id(value) for value in sets.values()]

        def build() -> Binned:
            evaluation = read_evaluation_sets(**sets, train=queries)
            ordered, rows = queries.by_query()
            data = make(ordered, None)
            evaluation_data = [make(held_out, data) for held_out in evaluation]
            return Binned(data, evaluation_data, ordered.between(0, ordered.n_queries), rows, sets)

        size = current_peers().size
        if size > 1 and sum_over_peers(queries.has_cached(engine, key)) < size:
            queries.forget(engine)  # peers find bins jointly, so all of them must build
        return queries.cached(engine, key, build)

    def _encode_evaluations(self) -> dict[str, Any]:
        """Return the part of a saved state that all boosters have."""
        # Engines store evaluation results in ordered dicts.
        results = {name: dict(metrics) for name, metrics in self.evals_result_.items()}
        return {"best_iteration": int(self.best_iteration_), "evals_result": encode(results, {})}

    def _read_state(self, state: Entry) -> None:
        self.best_iteration_ = state.count("best_iteration")
        self.evals_result_: dict[str, Any] = state.setting("evals_result")
        if not isinstance(self.evals_result_, dict):
            raise state.refuse("evals_result", show(self.evals_result_))


@contextmanager
def _memory_advice(library: str, in_files: bool) -> Iterator[None]:
    """Add advice on memory if an engine's training runs out of it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NoMemoryError) or not is_lack_of_memory(error):
            raise
        elsewhere = "Or leave the features in Parquet files: pairity.read_parquet."
        message = (str(error).strip().splitlines() or ["no message"])[0]
        raise NoMemoryError(
            f"Memory ran out in training ({type(error).__name__}: {message[:200]}). "
            f"{_MEMORY_ADVICE[library]} {LITTLE_MEMORY if in_files else elsewhere}"
        ) from error


@dataclass(frozen=True, eq=False)
class Binned:
    """An engine's data, with the queries in its order of rows."""

    data: Any
    evaluation: list[Any]
    queries: Queries
    rows: NDArray[np.int64]
    keys: Any  # keeps alive the objects whose ids are in the key of the cache
