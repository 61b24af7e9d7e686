"""Protected groups: from one or several columns to codes 0..K-1 and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from pairity.columns import Column, as_column, as_columns, missing, require_length
from pairity.exceptions import InputError

MOST_NUMERIC_GROUPS = 20
MOST_GROUPS = 100
JOIN = " × "


def encode_groups(
    sensitive_features: Any, n_rows: int
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Group codes and names; an item without a group gets the code ``len(names)``.

    Several columns give their intersection: an item is in ``female × over 50`` when the first
    column says ``female`` and the second ``over 50``; it has no group when any of them is missing.

    Returns
    -------
    codes : int32 array of shape (n_rows,)
    names : tuple of str, of length K, sorted (categories keep their own order)
    """
    columns = as_columns(sensitive_features, "sensitive_features")
    if not columns:
        raise InputError("sensitive_features has no column. Give at least one.")
    encoded = []
    for name, column in columns:
        label = f"sensitive_features column {name!r}" if name else "sensitive_features"
        require_length(column, n_rows, label)
        order = _category_order(sensitive_features, name)
        encoded.append(_encode_column(column, label, order))
    codes, names = encoded[0]
    for other_codes, other_names in encoded[1:]:
        codes, names = _intersect(codes, names, other_codes, other_names)
    if len(names) > MOST_GROUPS:
        raise InputError(
            f"sensitive_features makes {len(names)} groups, more than {MOST_GROUPS}. Join the "
            "small ones, or use fewer columns."
        )
    return codes, names


def quantile_groups(
    values: Any, n_groups: int = 4, *, labels: Sequence[str] | None = None
) -> NDArray[np.object_]:
    """Turn a continuous attribute into groups of about the same size.

    Parameters
    ----------
    values : column of shape (n_items,)
        Numbers; a missing one stays missing (None).
    n_groups : int
        How many groups to cut into. Ties fall in the lower group, so that heavily tied values
        may give fewer.
    labels : sequence of str, optional
        Names from the lowest to the highest group. By default they say their range:
        ``≤ 3``, ``3 to 5``, ``> 29``, each with its upper end included.

    Returns
    -------
    object array of shape (n_items,): a name, or None where the value is missing

    Examples
    --------
    >>> from pairity import quantile_groups
    >>> quantile_groups([18, 25, 31, 47, 52, 70], 2).tolist()
    ['≤ 31', '≤ 31', '≤ 31', '> 31', '> 31', '> 31']
    """
    column = as_column(values, "values")
    if n_groups < 2:
        raise InputError(f"n_groups is {n_groups}, but a comparison needs at least 2 groups.")
    absent = missing(column)
    try:
        numbers = column[~absent].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("values must be numbers to be cut into quantiles.") from error
    if not np.isfinite(numbers).all():
        raise InputError("values has infinite entries. Remove them or mark them as missing.")
    if len(numbers) == 0:
        raise InputError("values has no entry that is not missing.")
    levels = np.arange(1, n_groups) / n_groups
    cuts = np.unique(np.quantile(numbers, levels, method="inverted_cdf"))
    cuts = cuts[cuts < numbers.max()]
    names = _range_names(cuts) if labels is None else [str(label) for label in labels]
    if len(names) != len(cuts) + 1:
        raise InputError(
            f"labels has {len(names)} names, but the values fall into {len(cuts) + 1} groups "
            f"(cut at {', '.join(f'{cut:g}' for cut in cuts) or 'nothing: all are tied'}). "
            "Give one name per group, or fewer n_groups."
        )
    result = np.full(len(column), None, dtype=object)
    result[~absent] = np.array(names, dtype=object)[np.searchsorted(cuts, numbers, side="left")]
    return result


def _range_names(cuts: NDArray[np.float64]) -> list[str]:
    if len(cuts) == 0:
        return ["all"]
    shown = [f"{cut:g}" for cut in cuts]
    between = [f"{low} to {high}" for low, high in zip(shown, shown[1:], strict=False)]
    return [f"≤ {shown[0]}", *between, f"> {shown[-1]}"]


def _category_order(table: Any, name: str) -> list[Any] | None:
    """The categories of an ordered or plain categorical column, in their own order."""
    native = nw.from_native(table, pass_through=True, eager_only=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        native = native[name]
    if isinstance(native, nw.Series) and native.dtype in (nw.Categorical, nw.Enum):
        return list(native.cat.get_categories().to_list())
    return None


def _encode_column(
    column: Column, label: str, order: list[Any] | None
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    absent = missing(column)
    present = column[~absent]
    if present.dtype.kind in "fiu":
        distinct, inverse = np.unique(present, return_inverse=True)
        _refuse_continuous(distinct, label)
        values = list(distinct)
    else:
        values, inverse = _factorize(present, label, order)
    names = tuple(_group_name(value) for value in values)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{label} has different values that are both written {twice!r}.")
    codes = np.full(len(column), len(names), dtype=np.int32)
    codes[~absent] = inverse
    return codes, names


def _factorize(
    present: Column, label: str, order: list[Any] | None
) -> tuple[list[Any], NDArray[np.intp]]:
    try:
        found = set(present.tolist())
    except TypeError as error:
        raise InputError(f"{label} holds values that cannot be hashed, such as lists.") from error
    if found and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in found):
        _refuse_continuous(np.array(sorted(found), dtype=float), label)
    if order is not None:
        values = [value for value in order if value in found]
    else:
        try:
            values = sorted(found)
        except TypeError:
            values = sorted(found, key=str)
    position = {value: at for at, value in enumerate(values)}
    return values, np.fromiter((position[v] for v in present.tolist()), np.intp, len(present))


def _refuse_continuous(distinct: NDArray[Any], label: str) -> None:
    if len(distinct) > MOST_NUMERIC_GROUPS:
        raise InputError(
            f"{label} has {len(distinct)} different numbers (from {distinct[0]:g} to "
            f"{distinct[-1]:g}): a continuous attribute, not groups. Cut it into groups first, "
            "for example with pairity.quantile_groups(values, 4), or pass names as strings."
        )


def _group_name(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, np.generic):
        return str(value.item())
    return str(value)


def _intersect(
    codes: NDArray[np.int32],
    names: tuple[str, ...],
    other_codes: NDArray[np.int32],
    other_names: tuple[str, ...],
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    absent = (codes == len(names)) | (other_codes == len(other_names))
    joint = codes[~absent].astype(np.int64) * len(other_names) + other_codes[~absent]
    used, inverse = np.unique(joint, return_inverse=True)
    joined = tuple(
        f"{names[at // len(other_names)]}{JOIN}{other_names[at % len(other_names)]}" for at in used
    )
    result = np.full(len(codes), len(joined), dtype=np.int32)
    result[~absent] = inverse
    return result, joined
