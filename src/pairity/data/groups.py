"""Protected groups: from one or several columns to codes 0..K-1 and their names."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data import columns
from pairity.data.columns import Attribute, Column, is_number, is_whole
from pairity.exceptions import InputError

MOST_NUMERIC_GROUPS = 20  # more distinct numbers are taken for a continuous attribute
MOST_GROUPS = 100  # K × K tables stay small, and the pairs of a cell numerous
JOIN = " × "

_METADATA = "pairity.data.groups"  # the key under which a dtype stores the names of groups
_WHOLE = 1e15  # below, a whole float is written without an exponent or rounding

Encoded = tuple[NDArray[np.int32], tuple[str, ...]]


def encode_groups(sensitive_features: Any, n_rows: int) -> Encoded:
    """Group codes and names; an item without a group has the code ``len(names)``.

    Several columns define their intersection: an item is in ``female × over 50`` if the first
    column is ``female`` and the second ``over 50``; it has no group if a value is missing.

    Returns
    -------
    codes : int32 array of shape (n_rows,)
    names : tuple of str, of length K, sorted (pandas categories and polars enumerations keep
        their own order)
    """
    if sensitive_features is None:
        return np.zeros(n_rows, dtype=np.int32), ()
    return encode_attributes(columns.as_columns(sensitive_features, "sensitive_features"), n_rows)


def encode_attributes(attributes: Sequence[Attribute], n_rows: int) -> Encoded:
    """Group codes and names from columns with their categories, see `encode_groups`."""
    if not attributes:
        raise InputError("sensitive_features has no column. Pass at least one.")
    encoded = []
    for name, column, categories in attributes:
        label = f"sensitive_features column {name!r}" if name else "sensitive_features"
        columns.require_length(column, n_rows, label)
        encoded.append(_known_codes(column) or _encode_column(column, label, categories))
    codes, names = reduce(_intersect, encoded)
    if len(names) > MOST_GROUPS:
        raise InputError(
            f"sensitive_features defines {len(names)} groups, more than {MOST_GROUPS}. Merge the "
            "small ones, or use fewer columns."
        )
    return codes, names


def name_groups(codes: NDArray[np.int32], names: tuple[str, ...]) -> NDArray[np.object_]:
    """The group name of each item, or None: the inverse of `encode_groups`.

    The array's dtype stores all names in order, so that encoding the array again gives the same
    codes, even if a group has no item or the names are not sorted.
    """
    return np.array([*names, None], dtype=np.dtype(object, metadata={_METADATA: names}))[codes]


def quantile_groups(
    values: Any, n_groups: int | Sequence[float] = 4, *, labels: Sequence[str] | None = None
) -> NDArray[np.object_]:
    """Convert a continuous attribute to groups of about equal size, or of given shares.

    Parameters
    ----------
    values : column of shape (n_items,)
        Numbers; a missing value has no group (None).
    n_groups : int, or sequence of shares between 0 and 1
        The number of groups, or the shares at which to cut: ``(0.4,)`` puts the lower 40 % in one
        group and the rest in another. Ties fall in the lower group, so heavily tied values may
        give fewer groups.
    labels : sequence of str, optional
        Names from the lowest to the highest group. By default a name is the group's range:
        ``≤ 3``, ``> 3 to 5``, ``> 5``.

    Returns
    -------
    object array of shape (n_items,): a name, or None if the value is missing

    Examples
    --------
    >>> from pairity import quantile_groups
    >>> quantile_groups([18, 25, 31, 47, 52, 70], 2).tolist()
    ['≤ 31', '≤ 31', '≤ 31', '> 31', '> 31', '> 31']
    """
    shares = _shares(n_groups)
    numbers = columns.to_floats(columns.as_column(values, "values"), "values")
    absent = np.isnan(numbers)
    if absent.all():
        raise InputError(f"values has {len(numbers)} entries, none a number. Pass some numbers.")
    remedy = "Remove them or mark them as missing."
    columns.refuse_entries(np.isinf(numbers), "values has {} infinite entries", numbers, remedy)
    ordered = np.sort(numbers[~absent])
    cuts = np.unique(ordered[[ceil(share * len(ordered)) - 1 for share in shares]])
    cuts = cuts[cuts < ordered[-1]]
    names = _range_names(cuts) if labels is None else _label_names(labels, cuts)
    codes = np.full(len(numbers), len(names), dtype=np.int32)
    codes[~absent] = np.searchsorted(cuts, numbers[~absent], side="left")
    return name_groups(codes, tuple(names))  # which keeps the order of the groups


def _shares(n_groups: Any) -> list[Fraction]:
    """The shares at which to cut, as exact fractions: 0.3 of ten values is three."""
    if isinstance(n_groups, Sequence | np.ndarray) and not isinstance(n_groups, str | bytes):
        shares = columns.as_numbers(n_groups, "n_groups").tolist()
        rising = all(low < high for low, high in pairwise([0.0, *shares, 1.0]))
        if not shares or len(shares) >= MOST_GROUPS or not rising:
            raise InputError(
                f"n_groups is {show(n_groups)}; shares must rise and lie between 0 and 1, at least "
                f"one and fewer than {MOST_GROUPS} of them."
            )
        return [Fraction(repr(share)) for share in shares]
    if not is_whole(n_groups) or not 2 <= n_groups <= MOST_GROUPS:
        raise InputError(
            f"n_groups is {show(n_groups)}, but a comparison needs at least 2 groups. Pass a "
            f"whole number from 2 to {MOST_GROUPS}."
        )
    return [Fraction(k, int(n_groups)) for k in range(1, int(n_groups))]


def _range_names(cuts: Array) -> list[str]:
    if len(cuts) == 0:
        return ["all"]
    texts = _numerals(cuts)
    between = [f"> {low} to {high}" for low, high in pairwise(texts)]
    return [f"≤ {texts[0]}", *between, f"> {texts[-1]}"]


def _numerals(cuts: Array) -> list[str]:
    """Different texts for different numbers, with as few digits as that needs."""
    if all(cut.is_integer() and abs(cut) < _WHOLE for cut in cuts.tolist()):
        return [str(int(cut)) for cut in cuts]
    versions = ([f"{cut:.{digits}g}" for cut in cuts] for digits in range(6, 18))
    return next(texts for texts in versions if len(set(texts)) == len(texts))


def _label_names(labels: Any, cuts: Array) -> list[str]:
    names = [str(label) for label in columns.as_column(labels, "labels")]
    if len(names) != len(cuts) + 1:
        raise InputError(
            f"labels has {len(names)} names, but the values fall into {len(cuts) + 1} groups "
            f"(cut at {', '.join(_numerals(cuts)) or 'nothing: all are tied'}). "
            "Pass one name per group, or fewer n_groups."
        )
    _require_different(names, "labels")
    return names


def _known_codes(column: Column) -> Encoded | None:
    """Codes and names of a column that `name_groups` made, unless it was changed since."""
    names: Any = dict(column.dtype.metadata or {}).get(_METADATA)
    if names is None:
        return None
    code = {name: number for number, name in enumerate((*names, None))}
    try:
        return np.fromiter((code[v] for v in column.tolist()), np.int32, len(column)), names
    except (KeyError, TypeError):
        return None


def _encode_column(column: Column, label: str, categories: list[Any] | None) -> Encoded:
    absent = columns.missing(column)
    present = column[~absent]
    if present.dtype.kind in "fiu":
        distinct, inverse = np.unique(present, return_inverse=True)
        values = list(distinct)
    else:
        values, inverse = _factorize(present, label, categories)
    if categories is None:
        _refuse_continuous(values, label)
    names = tuple(_group_name(value, label) for value in values)
    _require_different(names, label)
    codes = np.full(len(column), len(names), dtype=np.int32)
    codes[~absent] = inverse
    return codes, names


def _factorize(
    present: Column, label: str, categories: list[Any] | None
) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct values in order, and the position of each entry among them."""
    entries = list(present) if present.dtype.kind in "mM" else present.tolist()
    kinds = set(map(type, entries))
    if bool in kinds and any(map(is_number, kinds - {bool})):  # True equals 1: write it as 1
        entries = [int(entry) if entry is True or entry is False else entry for entry in entries]
    fact = f"{label} holds values that cannot be hashed and compared, such as lists"
    with columns.explain_errors(fact, "Pass strings, whole numbers, booleans or categories."):
        distinct = set(entries)
        ordered = _sorted(distinct) if categories is None else categories
        values = [value for value in ordered if value in distinct]
        position = {value: number for number, value in enumerate(values)}
        return values, np.fromiter((position[v] for v in entries), np.intp, len(entries))


def _sorted(values: set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # values of several types
        return sorted(values, key=lambda value: (str(value), type(value).__name__))


def _refuse_continuous(values: list[Any], label: str) -> None:
    """Refuse sorted numbers that are too many, or not whole, to be the names of groups."""
    if not all(is_number(type(v)) and not isinstance(v, bool) for v in values):
        return
    n_fractions = sum(not is_whole(v) for v in values)
    if n_fractions or len(values) > MOST_NUMERIC_GROUPS:
        detail = f", {n_fractions} of them not whole" if n_fractions else ""
        raise InputError(
            f"{label} has {len(values)} different numbers{detail} (from {show(values[0])} to "
            f"{show(values[-1])}): a continuous attribute, not groups. Convert it to groups first, "
            "for example with pairity.quantile_groups(values, 4), or pass names as strings."
        )


def _group_name(value: Any, label: str) -> str:
    own_text = any({"__str__", "__repr__"} & vars(kind).keys() for kind in type(value).__mro__[:-1])
    if not own_text or isinstance(value, (complex, np.complexfloating)):
        raise InputError(
            f"{label} holds {show(value)}, which cannot name a group. Pass strings, whole numbers, "
            "booleans or categories."
        )
    fact = f"{label} holds {show(value)}, which cannot be written as a name"
    with columns.explain_errors(fact, "Pass the groups as strings."):
        short = isinstance(value, (float, np.floating)) and abs(float(value)) < _WHOLE
        return str(int(value)) if short and is_whole(value) else str(value)


def _require_different(names: Sequence[str], label: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"{label} has two values that are both written {repeated[0]!r}. Give each group a "
            "distinct name, as a string."
        )


def _intersect(left: Encoded, right: Encoded) -> Encoded:
    (codes, names), (other_codes, other_names) = left, right
    absent = (codes == len(names)) | (other_codes == len(other_names))
    cells = codes[~absent].astype(np.int64) * len(other_names) + other_codes[~absent]
    used, inverse = np.unique(cells, return_inverse=True)
    joined = tuple(
        f"{names[cell // len(other_names)]}{JOIN}{other_names[cell % len(other_names)]}"
        for cell in used
    )
    _require_different(joined, "sensitive_features")
    result = np.full(len(codes), len(joined), dtype=np.int32)
    result[~absent] = inverse
    return result, joined
