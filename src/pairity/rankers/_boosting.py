"""What the adapters of boosters share: their shell, the objective they call, their data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pairity._utils.allreduce import current_peers, sum_over_peers
from pairity._utils.json_codec import Entry, Place, build, encode
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.parquet_features import LITTLE_MEMORY, ParquetFeatures, is_lack_of_memory
from pairity.data.queries import Queries, require_preferences
from pairity.exceptions import InputError, MissingExtraError, ModelFileError, NoMemoryError
from pairity.pairs.cells import total_weight
from pairity.pairs.enumeration import n_weighted_pairs
from pairity.pairs.losses import Loss
from pairity.rankers._estimators import PairRanker, remember_features

Follow = Callable[[int, int, Callable[[], Array]], Array]

_SETS = ("eval_set", "eval_qid", "eval_group")


def import_engine(library: str, adapter: str, *, extra: str | None = None) -> Any:
    """An engine's library, or an error that says how to install it."""
    try:
        return import_module(library)
    except ImportError as error:
        name = library.partition(".")[0]
        raise MissingExtraError(
            f'{adapter} needs {name}. Install it with: pip install "pairity[{extra or name}]"'
        ) from error


class EngineRanker(PairRanker):
    """A ranker around an engine's own estimator; the two are saved together."""

    raw_features = True
    engine: ClassVar[tuple[str, str]]  # library and class

    def _encode_settings(self) -> dict[str, Any]:
        settings = super()._encode_settings()
        if self.estimator is not None and type(self.estimator) is self._engine_class():
            params = {name: encode(value, {}) for name, value in self._engine_params().items()}
            settings["estimator"] = {"class": self.engine[1], "params": params}
        return settings

    @classmethod
    def _decode_settings(cls, entry: Entry) -> dict[str, Any]:
        given, rest = entry.get("estimator"), dict(entry.values)
        if not isinstance(given, dict) or set(given) != {"class", "params"}:
            return super()._decode_settings(entry)
        own = entry.entry("estimator")
        if own.read("class", str) != cls.engine[1]:
            raise own.refuse("class", f"{show(given['class'])} where {cls.engine[1]} is needed")
        stated = own.entry("params")
        params = stated.settings(tuple(stated.values), {})
        settings = super()._decode_settings(Entry({**rest, "estimator": None}, entry.place))
        settings["estimator"] = cls._make_estimator(params, own.place)
        return settings

    @classmethod
    def _make_estimator(cls, params: dict[str, Any], place: Place) -> Any:
        return build(cls._engine_class(), params, place)

    @classmethod
    def _engine_class(cls) -> Any:
        library, name = cls.engine
        return getattr(import_engine(library, cls.__name__), name)

    def _engine_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.estimator.get_params()
        return params


def plain_dict(results: Any) -> Any:
    """Evaluation results, which engines keep in ordered dicts, as dicts."""
    if isinstance(results, dict):
        return {name: plain_dict(each) for name, each in results.items()}
    return results


def unreadable(name: str, error: object) -> ModelFileError:
    """An error about an engine's file that the engine cannot read."""
    return ModelFileError(
        f"{name} cannot be read by its engine ({' '.join(str(error).split())[:300]}). Get the "
        "model again from where it was saved; if it is as it was, install the version of the "
        "engine that its manifest names."
    )


class BoosterRanker(EngineRanker):
    """A ranker that hands an engine's training call an objective of ours."""

    streams = True

    spreads = True

    def __init__(self, estimator: Any = None, *, loss: Any = None) -> None:
        self.estimator = estimator
        self.loss = loss

    def fit_pairs(
        self,
        queries: Queries,
        weights: Array,
        *,
        previous: Any = None,  # noqa: ARG002 - the binned data are kept with the queries
        **fit_params: Any,
    ) -> Self:
        """Train on weighted pairs; see `pairity.rankers.base.Ranker`.

        `fit_params` are those of the engine's own `fit`, such as its evaluation sets: (X, y) with
        ``eval_qid``, or ``eval_group``.
        """
        return self._prepare_and_train(queries, partial(_fixed, weights), None, fit_params)

    def fit_following(
        self,
        queries: Queries,
        follow: Follow,
        *,
        measured_on: Queries | None = None,
        **fit_params: Any,
    ) -> Self:
        """Train once, asking for the weight table before every tree.

        Parameters
        ----------
        follow : callable
            Given the number of trees so far, the number there will be, and a function that
            returns their scores, the weight table for the next.
        measured_on : Queries, optional
            The items whose scores `follow` is given; those of `queries` by default.
        """
        if not self.follows:
            raise InputError(
                "schedule='interleaved' moves lambda by the scores of the trees so far, but "
                f"{self._boosting()!r} changes what it has learnt with every step. Use "
                "schedule='retrain', or boost trees that stay as they are."
            )
        return self._prepare_and_train(queries, follow, measured_on, fit_params)

    @property
    def follows(self) -> bool:
        """Whether weights may change while it trains: only where trees stay as they are."""
        return self._boosting() not in ("dart", "gblinear")

    def _read_evaluations(self, state: Entry) -> None:
        """What the metrics were, from a saved model."""
        results = state.setting("evals_result")
        if not isinstance(results, dict):
            raise state.refuse("evals_result", show(results))
        self.evals_result_ = results

    def _prepare_and_train(
        self, queries: Any, follow: Follow, measured_on: Queries | None, fit_params: Any
    ) -> Self:
        if not isinstance(queries, Queries):  # on the workers of a cluster
            from pairity.rankers._distributed import train_together

            if measured_on is not None:
                raise InputError(
                    "schedule='interleaved' measures on the training queries where these are Dask "
                    "collections, and validation data are given. Use schedule='retrain'."
                )
            train_together(queries, self, follow, fit_params)
            return self
        if queries.X is None:
            raise InputError("The queries have no features. Build them with X.")
        require_preferences(queries)
        remember_features(self, queries.X, queries.y)
        with memory_told(self.engine[0], isinstance(queries.X, ParquetFeatures)):
            self._train(queries, follow, measured_on, fit_params)
        return self

    @abstractmethod
    def _train(
        self, queries: Queries, follow: Follow, measured_on: Queries | None, fit_params: Any
    ) -> None:
        """Set ``model_`` and what goes with it."""

    @abstractmethod
    def _boosting(self) -> str:
        """What the engine calls its way of boosting."""


_TAKES_LESS = {
    "lightgbm": (
        "LightGBM takes a byte for each entry of the table, twice unless force_col_wise=True, and "
        "20 for each entry of the rows that bins are found from: lower subsample_for_bin, and "
        "num_leaves or max_bin, each leaf having a histogram of 16 bytes a bin."
    ),
    "xgboost": (
        "XGBoost takes 16 bytes for each bin of each leaf, and in finding bins some kilobytes for "
        "each: lower max_bin, or max_depth."
    ),
}


@contextmanager
def memory_told(library: str, in_files: bool) -> Iterator[None]:
    """Tell what takes less where an engine's training runs out of memory."""
    try:
        yield
    except Exception as error:
        if isinstance(error, NoMemoryError) or not is_lack_of_memory(error):
            raise
        instead = "Or leave the features in Parquet files: pairity.data.read_parquet."
        if in_files:
            instead = LITTLE_MEMORY
        told = (str(error).strip().splitlines() or ["no more is said"])[0]
        raise NoMemoryError(
            f"Memory ran out in training ({type(error).__name__}: {told[:200]}). "
            f"{_TAKES_LESS[library]} {instead}"
        ) from error


def _fixed(table: Array, *_: Any) -> Array:
    """The weight table of every tree, where it does not change."""
    return table


def own_estimator(given: Any, kind: Any, adapter: str) -> Any:
    """The engine's ranking model that an adapter was given, or a new one."""
    if given is None:
        return kind()
    if not isinstance(given, kind) or hasattr(given, "client"):  # Dask's own: see as_ranker
        raise InputError(
            f"{adapter} trains {kind.__name__}, not {type(given).__name__}. Pass "
            f"{kind.__name__}(...) with the same parameters."
        )
    return given


def refuse_objective(objective: Any, known: Sequence[Any], adapter: str, kind: str) -> None:
    """Refuse an objective that pair weights cannot reach."""
    instead = f'choose the loss of a pair with {adapter}({kind}(...), loss="logistic")'
    if callable(objective):
        raise InputError(
            f"The {kind} has an objective of its own, but pairity trains it through the "
            f"objective. Leave it out, and {instead}."
        )
    if objective not in known:
        names = " or ".join(repr(name) for name in known)
        raise InputError(
            f"{kind}(objective={objective!r}) has no weights for pairs. Use {names}, or {instead}."
        )


def refuse_idle(params: dict[str, Any], names: Sequence[str], loss: Any, kind: str) -> None:
    """Refuse parameters of an engine's own objective that would have no effect."""
    for name in names:
        if name in params:
            raise InputError(
                f"{name}={params[name]!r} is a setting of {kind}'s own objective, which pairity "
                f"replaces by {loss!r}, and that has no such setting. Leave it out."
            )


class Objective:
    """Derivatives of a weighted pairwise loss, for one training run.

    Weights are taken relative to their mean: whatever an engine compares with fixed numbers (an L2
    penalty, the least weight of a leaf) then does not depend on how W is scaled.

    Parameters
    ----------
    queries : Queries
        With the rows of each query together.
    loss : Loss
    follow : callable
        Given the number of trees so far, the number there will be, and a function that returns
        their scores in the caller's order, the weight table for the next tree.
    n_trees : int, the number there will be
    rows : int array of shape (n_items,), optional
        The caller's row of each item, where it is another.
    measure : callable, optional
        Returns the scores that `follow` may ask for; by default those of `queries`.
    """

    def __init__(
        self,
        queries: Queries,
        loss: Loss,
        follow: Follow,
        *,
        n_trees: int = 0,
        rows: NDArray[np.int64] | None = None,
        measure: Callable[[], Array] | None = None,
    ) -> None:
        self.queries, self.rows, self.loss = queries, rows, loss
        self.follow, self.n_total, self.measure = follow, n_trees, measure
        self.n_trees = 0
        self._relative: tuple[Array, Array] | None = None

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """Gradient and diagonal Hessian at the scores of the trees so far."""
        table = self.follow(self.n_trees, self.n_total, lambda: self._measured(scores))
        derivatives = self.loss.derivatives(
            self.queries, scores, self._as_relative(table), iteration=self.n_trees
        )
        self.n_trees += 1
        return derivatives

    def _as_relative(self, table: Array) -> Array:
        """The table divided by the mean weight of the pairs that weigh something."""
        if self._relative is not None and np.array_equal(table, self._relative[0]):
            return self._relative[1]
        padded = self.queries.pad(table)
        total = total_weight(self.queries, padded)
        if not total > 0.0:
            raise InputError("The pair weights add up to nothing. Give a table with some weight.")
        relative = padded * (n_weighted_pairs(self.queries, padded) / total)
        self._relative = (table, relative)
        return relative

    def _measured(self, scores: Array) -> Array:
        if self.measure is not None:
            return self.measure()
        if self.rows is None:
            return scores
        in_callers_order = np.empty(len(scores))
        in_callers_order[self.rows] = scores
        return in_callers_order


def read_evaluation_sets(
    eval_set: Any, eval_qid: Any = None, eval_group: Any = None
) -> list[Queries]:
    """An engine's ``eval_set``, as queries whose rows stand together.

    Parameters
    ----------
    eval_set : sequence of (X, y), or one such pair
    eval_qid : sequence of query ids, one column per set
    eval_group : sequence of query sizes, one list per set, where ids are not given
    """
    if eval_set is None:
        if eval_qid is not None or eval_group is not None:
            raise InputError("eval_qid and eval_group go with eval_set. Give that as well.")
        return []
    if (eval_qid is None) == (eval_group is None):
        raise InputError(
            "eval_set needs to know which rows share a query. Give eval_qid (one column of query "
            "ids per set) or eval_group (one list of query sizes per set), and not both."
        )
    given = eval_group if eval_qid is None else eval_qid
    if _is_pair(eval_set) and not all(map(_is_pair, eval_set)):
        eval_set = [eval_set]
        given = given if len(given) == 1 and np.ndim(given[0]) == 1 else [given]
    if not isinstance(eval_set, (list, tuple)) or not all(map(_is_pair, eval_set)):
        raise InputError("eval_set is a list of pairs (X, y), one for each set. Give it as such.")
    if len(given) != len(eval_set):
        raise InputError(
            f"eval_set has {len(eval_set)} sets, but queries are given for {len(given)}. Give "
            "them for each, in a list."
        )
    return [
        _read_set(k, X, y, queries, sizes=eval_qid is None)
        for k, ((X, y), queries) in enumerate(zip(eval_set, given, strict=True))
    ]


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2


def _read_set(number: int, X: Any, y: Any, queries: Any, *, sizes: bool) -> Queries:
    try:
        if sizes:
            queries = _from_sizes(queries, len(y))
        return Queries.from_arrays(X, y, qid=queries, raw=True).by_query()[0]
    except InputError as error:
        raise type(error)(f"In set {number} of eval_set: {error}") from error


def _from_sizes(sizes: Any, n_rows: int) -> NDArray[np.int64]:
    counts = np.asarray(sizes)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise InputError("eval_group is not a list of query sizes. Give whole numbers.")
    if counts.sum() != n_rows:
        raise InputError(
            f"eval_group adds up to {counts.sum()} rows, but the set has {n_rows}. Give the "
            "number of rows of each query, in the order of the rows."
        )
    return np.repeat(np.arange(len(counts)), counts)


def _require_same_columns(number: int, held: Queries, queries: Queries) -> None:
    """Not every engine notices that an evaluation set has other columns."""
    wrong = ""
    if held.X.shape[1] != queries.X.shape[1]:
        wrong = f"X has {held.X.shape[1]} features, but the training data {queries.X.shape[1]}"
    elif held.feature_names and queries.feature_names:
        both = zip(held.feature_names, queries.feature_names, strict=True)
        for at, (here, wanted) in enumerate(both):
            if here != wanted:
                wrong = f"column {at} of X is {here!r}, but {wanted!r} in the training data"
                break
    if wrong:
        raise InputError(
            f"In set {number} of eval_set: {wrong}. Give the same columns in the same order."
        )


@dataclass(frozen=True, eq=False)
class Binned:
    """An engine's data, with the queries in its order of rows."""

    data: Any
    evaluation: list[Any]
    queries: Queries
    rows: NDArray[np.int64]
    held: Any  # what the cache tells evaluation sets apart by must not be freed and reused


def build_once(
    engine: str,
    queries: Queries,
    settings: Any,
    fit_params: dict[str, Any],
    make: Callable[[Queries, Any], Any],
) -> Binned:
    """The binned data of these queries, built once and kept with them.

    Parameters
    ----------
    settings : what the data depend on, to be compared with ==
    make : callable
        Given queries whose rows stand together, and the training data or None, an engine's data.
    """
    sets = {name: fit_params.get(name) for name in _SETS}
    given = settings, [id(each) for each in sets.values()]

    def build() -> Binned:
        held_out = read_evaluation_sets(**sets)
        for number, held in enumerate(held_out):
            _require_same_columns(number, held, queries)
        ordered, rows = queries.by_query()
        data = make(ordered, None)
        evaluation = [make(held, data) for held in held_out]
        return Binned(data, evaluation, ordered.between(0, ordered.n_queries), rows, sets)

    size = current_peers().size
    if size > 1 and sum_over_peers(queries.has_cached(engine, given)) < size:
        queries.forget(engine)  # bins are found together: by all, or by none
    return queries.cached(engine, given, build)


class Measured:
    """Scores of other items as training goes on, for an objective that follows them.

    Parameters
    ----------
    n_items : int
    count : callable
        From a booster to the number of its trees.
    predict : callable
        Given a booster and a first tree, what the trees from there on add to the scores.

    Attributes
    ----------
    booster : the booster as it is; the engine's callback sets it after every tree
    """

    def __init__(
        self, n_items: int, count: Callable[[Any], int], predict: Callable[[Any, int], Any]
    ) -> None:
        self.scores, self.n_trees, self.booster = np.zeros(n_items), 0, None
        self.count, self.predict = count, predict

    def __call__(self) -> Array:
        """Scores by the trees there are; those seen before are not predicted again."""
        n_trees = 0 if self.booster is None else self.count(self.booster)
        if n_trees > self.n_trees:
            self.scores = self.scores + self.predict(self.booster, self.n_trees)
            self.n_trees = n_trees
        return self.scores


def refuse_unknown(fit_params: dict[str, Any], known: Sequence[str], engine: str) -> None:
    """Refuse what cannot be handed on to an engine, rather than ignore it."""
    for name in fit_params:
        if name not in known:
            raise InputError(
                f"{engine} cannot take {name!r} through pairity. It takes {', '.join(known)}."
            )


def query_sizes(queries: Queries) -> NDArray[np.int64]:
    """The number of rows of each query, in the order of the rows."""
    begins = np.flatnonzero(np.r_[True, queries.query[1:] != queries.query[:-1], True])
    return np.diff(begins)


def readable(X: Any) -> Any:
    """Sparse matrices as engines know them."""
    return sp.csr_matrix(X) if isinstance(X, sp.csr_array) else X
