"""export_pairs: writes the weighted preference pairs to a file, for training in other tools."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.extras import import_extra
from pairity._utils.files import atomic_write, require_output_file
from pairity._utils.typing import Array
from pairity._utils.validation import require_count
from pairity.data.queries import Queries
from pairity.exceptions import InputError
from pairity.pairs.enumeration import iter_weighted_pairs
from pairity.reweighting.weights import PairWeights

Rows = NDArray[np.int64]
Blocks = Iterator[tuple[Rows, Rows, Array]]

_FORMATS = {".parquet": "parquet", ".pairs": "catboost", ".tsv": "catboost"}


def export_pairs(
    queries: Queries,
    weights: PairWeights,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the usual name
    rows: Rows | None = None,
    block: int = 1_000_000,
) -> None:
    """Write the preference pairs of some queries with their weights, in blocks.

    The weight of a pair is its entry in the table (1 if a group is missing) times the weights of
    its items and its query, divided by the mean over all pairs, as in `CatBoostPairRanker`. Pairs
    of weight zero are left out. If pairs have a mirrored weight, they are also written in the
    opposite order, with that weight.

    Parameters
    ----------
    queries : Queries
        Its features are not used.
    weights : PairWeights
        Must have all groups of the queries; they are matched by name.
    path : str or path
        The file is written atomically: an existing one stays until the new one is complete.
    format : {"parquet", "catboost"}, optional
        The default depends on the suffix: ``.parquet``, or ``.pairs`` and ``.tsv`` for CatBoost.

        "parquet" has the columns query (the query id, as text if Parquet has no such type),
        winner and loser (row numbers from 0), winner_group and loser_group (null if missing) and
        weight. The weight table is in the file's metadata, as JSON, under ``pairity.pair_weights``.

        "catboost" is CatBoost's pairs description: winner, loser and weight, separated by tabs,
        without a header. CatBoost requires that the rows of a query are contiguous in its data.
    rows : int64 array of shape (n_items,), optional
        The row number to write for each item; by default its position in the queries.
    block : int
        About how many pairs are in memory at a time. A block contains all pairs of its preferred
        items.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pairity import PairWeights, Queries
    >>> from pairity.reweighting.export import export_pairs
    >>> queries = Queries.from_arrays(
    ...     None, [0, 1, 0], qid=[7, 7, 7], sensitive_features=["f", "f", "m"]
    ... )
    >>> weights = PairWeights([[1.0, 3.0], [0.5, 1.0]], ("f", "m"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "train.pairs")
    ...     export_pairs(queries, weights, path)
    ...     print(path.read_text().expandtabs(4))
    1   0   0.5
    1   2   1.5
    <BLANKLINE>
    """
    path = Path(path)
    require_output_file(path)
    write = _writer(path, format)
    require_count(block, "block")
    table = _table(queries, weights)
    rows = np.arange(queries.n_items) if rows is None else np.asarray(rows, dtype=np.int64)
    if rows.shape != (queries.n_items,):
        raise InputError(
            f"rows has shape {rows.shape}, but there are {queries.n_items} items. Pass one row "
            "number per item."
        )
    write(path, rows, iter_weighted_pairs(queries, table, block=int(block)), queries, weights)


def _writer(path: Path, chosen: str | None) -> Callable[..., None]:
    chosen = chosen or _FORMATS.get(path.suffix.lower())
    if chosen is None:
        raise InputError(
            f"The suffix of {str(path)!r} names no format. Use {', '.join(_FORMATS)}, or pass "
            "format='parquet' or format='catboost'."
        )
    if chosen not in _FORMATS.values():
        raise InputError(f"format is {chosen!r}; choose 'parquet' or 'catboost'.")
    return _write_parquet if chosen == "parquet" else _write_catboost


def _table(queries: Queries, weights: PairWeights) -> Array:
    """The weight table, or both, in the order of the queries' groups."""
    missing = [name for name in queries.groups if name not in weights.groups]
    if missing:
        raise InputError(
            f"The queries have the group {missing[0]!r}, but the weights have only the groups "
            f"{', '.join(map(repr, weights.groups))}. Use the same groups in both."
        )
    order = [weights.groups.index(name) for name in queries.groups]
    return weights.tables[..., order, :][..., order]


def _write_catboost(path: Path, rows: Rows, blocks: Blocks, *_: object) -> None:
    line = "{}\t{}\t{!r}\n".format
    with atomic_write(path) as file:
        for winner, loser, weight in blocks:
            lines = map(line, rows[winner].tolist(), rows[loser].tolist(), weight.tolist())
            file.write("".join(lines).encode())


def _write_parquet(
    path: Path, rows: Rows, blocks: Blocks, queries: Queries, weights: PairWeights
) -> None:
    pa, parquet = (
        import_extra(name, "Writing Parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet")
    )
    ids = _ids(pa, queries)
    names = pa.array([*queries.groups, None], pa.string())
    types = {"query": ids.type, "winner": pa.int64(), "loser": pa.int64()}
    types |= {"winner_group": pa.string(), "loser_group": pa.string(), "weight": pa.float64()}
    schema = pa.schema(
        [pa.field(name, kind, nullable=name.endswith("_group")) for name, kind in types.items()],
        {"pairity.pair_weights": weights.to_json()},
    )
    with atomic_write(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for winner, loser, weight in blocks:
            columns = [
                ids.take(pa.array(queries.query[winner])),
                pa.array(rows[winner]),
                pa.array(rows[loser]),
                names.take(pa.array(queries.group[winner])),
                names.take(pa.array(queries.group[loser])),
                pa.array(weight),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _ids(pa: Any, queries: Queries) -> Any:
    """The query ids as an Arrow array: numbers as numbers, all others as text."""
    try:
        ids = pa.array(queries.query_ids)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        ids = None  # tuples, for example, or numbers mixed with text
    if ids is None or pa.types.is_nested(ids.type) or pa.types.is_float16(ids.type):
        ids = pa.array([str(query) for query in queries.query_ids.tolist()], pa.string())
    return ids
