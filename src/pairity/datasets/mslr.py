"""MSLR: Microsoft's web search data, WEB10K and WEB30K, and what is public of them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairity._utils.files import as_list
from pairity._utils.progress import Show
from pairity._utils.validation import require_choice, show
from pairity.data.groups import quantile_groups
from pairity.data.letor import read_letor_arrays
from pairity.datasets.download import VARIABLE, DataFile, Home, find_data, places, read_data
from pairity.datasets.ranking_data import RankingData, ranking_data
from pairity.exceptions import InputError

N_FEATURES = 136
LOGARITHMIC = (*range(11, 16), *range(41, 46), *range(91, 96), 128, 134, 135, 136)
MAY_BE_NEGATIVE = (128,)  # the absolute value is taken first

SAMPLE = DataFile(
    folder="mslr",
    name="mslr_sample_182q.svm",
    sha256="440c3a51645510deff972fd9596ab74363d9450551ea8e9b2efeba6139aed17c",
)
SAMPLE_INDEX = DataFile(
    folder="mslr",
    name="index.csv",
    sha256="42ea4fb920c2835a8bd98ace62289d81e48f6eef27e62d52dd8457e9a7a37cda",
)
EXCERPT = {
    part: DataFile(
        folder="mslr",
        name=f"msn1.fold1.{part}.5k.txt",
        sha256=sha256,
        repository="hpclab/rankeval",
        commit="c6e39e9c19db2a05a43f243a990a28989db891bc",
        path=f"rankeval/test/data/msn1.fold1.{part}.5k.txt",
        licence="MPL-2.0",
    )
    for part, sha256 in (
        ("train", "6d1721de961a35fbaef7085dc5b41e2940f0ddb04bab5f7a8566cf7db4158fa6"),
        ("test", "13d3c638edd23e482c38f4316c2680c938c2eaedbe096970ab30a48e364463d3"),
    )
}

_PARTS = ("train", "vali", "test")
_SAMPLE_PARTS = {
    "rankeval_train": "train",
    "onlinelambdamart_train": "train",
    "onlinelambdamart_valid": "vali",
}  # any other source is for tests
_EXCERPT_CUT = (631, 643)  # the last queries of its two files
_LICENCE = "Microsoft's own terms, for research"
_BLOCK = 65_536  # rows that are transformed at once

Version = Literal["web10k", "web30k", "sample", "excerpt"]


@dataclass(frozen=True)
class MslrChoices:
    """Which queries of MSLR are used, and how labels, groups and features are formed.

    The defaults follow the paper.

    Attributes
    ----------
    relevant_from : int
        The least grade of a relevant page. The paper has 2; Yadav et al. have 3.
    at_least, of_grade : int
        Only queries with at least `at_least` pages of grade `of_grade` or higher are used. The
        paper has 2,805 queries of 132 pages on average and does not specify how they were chosen;
        among the simple rules, ``at_least=3, of_grade=3`` comes closest. By default all queries are
        used.
    complete_only : bool
        Whether queries that may be truncated (some of "sample" and "excerpt") are left out.
    protected : int
        The feature that defines the groups, counted from 1: 133 (QualityScore2), or 132
        (QualityScore), of which a fifth of the values are tied at the minimum, 1.
    groups : int, or sequence of shares between 0 and 1
        The number of groups of about equal size, or where to cut: ``(0.4,)`` is the cut at the 40th
        percentile of Yadav et al. Ties fall in the lower group.
    group_as_feature : bool
        Whether the ranker sees the protected feature.
    transform : {"yadav", "log"} or None
        "log": log(1 + x) of the features 11 to 15, 41 to 45, 91 to 95, 128 (absolute value first)
        and 134 to 136. "yadav": then, for all features, less the median and divided by the
        distance from the 5th to the 95th percentile (1 where that is 0). None: as in the file.
    scale_by : {"train", "all"}
        Which rows those percentiles are taken from.

    Examples
    --------
    The choices of Yadav, Du and Joachims:

    >>> from pairity.datasets import MslrChoices
    >>> yadav = MslrChoices(relevant_from=3, groups=(0.4,))
    """

    relevant_from: int = 2
    at_least: int = 0
    of_grade: int = 3
    complete_only: bool = False
    protected: int = 133
    groups: int | Sequence[float] = 5
    group_as_feature: bool = False
    transform: Literal["yadav", "log"] | None = "yadav"
    scale_by: Literal["train", "all"] = "train"

    def __post_init__(self) -> None:
        require_choice("transform", self.transform, ("yadav", "log", None))
        require_choice("scale_by", self.scale_by, ("train", "all"))
        if isinstance(self.protected, bool) or self.protected not in range(1, N_FEATURES + 1):
            raise InputError(f"protected must be from 1 to 136 (got {show(self.protected)}).")


_PAPER = MslrChoices()


def load_mslr(
    version: Version = "web10k",
    choices: MslrChoices = _PAPER,
    *,
    fold: int = 1,
    parts: Sequence[str] | None = None,
    label: Literal["relevant", "grade"] = "relevant",
    data_home: Home = None,
    download: bool = True,
    progress: Show = "auto",
) -> RankingData:
    """Web pages by search query, in groups by a quality score (Microsoft's MSLR-WEB10K, WEB30K).

    Judged pages with 136 features each; one feature defines the groups. The defaults follow the
    paper: a page of grade 2 or higher is relevant; five groups of equal size are cut from
    QualityScore2, which the ranker does not see; the other 135 features are transformed as by
    Yadav, Du and Joachims.

    Parameters
    ----------
    version : {"web10k", "web30k", "sample", "excerpt"}
        "web10k" and "web30k" are the originals. Download them from Microsoft's page "Microsoft
        Learning to Rank Datasets" and unpack them to ``MSLR-WEB10K/Fold1/train.txt`` and so on,
        in a folder that `data_home` names.
        "sample": 182 of their queries, collected from public packages, if you have that file.
        "excerpt": about 10,000 lines of fold 1 of WEB10K that the package rankeval contains (a
        training and a test part); they are downloaded if they are not found.
    choices : MslrChoices
        Which queries are used, and how labels, groups and features are formed.
    fold : int
        One of the five folds; each has the same queries in different parts.
    parts : sequence of "train", "vali", "test", optional
        The parts to read; by default all.
    label : {"relevant", "grade"}
        "relevant": 1 for a grade of ``choices.relevant_from`` or more. "grade": the grade itself,
        0 to 4. Both are in the result's `labels`.
    data_home : path, optional
        By default the folder of the environment variable ``PAIRITY_DATA``. The user's cache is
        searched next.
    download : bool
        Whether "excerpt" is downloaded if it is not found. The digests of "sample" and "excerpt"
        are always checked.
    progress : {"auto"} or bool

    Returns
    -------
    RankingData
        ``part("train")``, ``part("vali")`` and ``part("test")`` are the published parts; for
        "sample", as its sources were cut.

    Notes
    -----
    Features are float64 (8 × 136 bytes per page: 1.3 GB for WEB10K, 4.1 GB for WEB30K) and are read
    exactly. The peak of memory is a few hundred MB above that.

    References
    ----------
    T. Qin, T.-Y. Liu: Introducing LETOR 4.0 Datasets. 2013.
    H. Yadav, Z. Du, T. Joachims: Policy-Gradient Training of Fair and Unbiased Ranking Functions.
    SIGIR 2021.
    """
    require_choice("version", version, ("web10k", "web30k", "sample", "excerpt"))
    require_choice("fold", fold, (1, 2, 3, 4, 5))
    require_choice("label", label, ("relevant", "grade"))
    wanted = _wanted(version, parts)
    if version in ("web10k", "web30k"):
        files = _unpacked(version, fold, wanted, data_home)
    else:
        if fold != 1:
            raise InputError(f"fold is {fold}, but {version!r} has only fold 1. Omit fold.")
        published = {"all": SAMPLE} if version == "sample" else {k: EXCERPT[k] for k in wanted}
        files = {
            part: find_data(file, data_home, download=download, progress=progress)
            for part, file in published.items()
        }
    arrays = read_letor_arrays(
        list(files.values()), n_features=N_FEATURES, complete=True, progress=progress
    )
    X: Any = arrays.X
    grade, qid = arrays.y, arrays.qid
    if qid is None:
        raise InputError(f"{next(iter(files.values()))} has no query ids. Download it again.")
    cut, truncated = _cut(version, files, qid, arrays.n_rows, data_home)
    kept = _rows_of(cut, wanted, qid)
    if choices.complete_only:
        kept &= ~np.isin(qid, truncated)
    if choices.at_least > 0:
        ids, query = np.unique(qid, return_inverse=True)
        n_pages = np.bincount(query, grade >= choices.of_grade, len(ids))
        kept &= (n_pages >= choices.at_least)[query]
    if not kept.any():
        raise InputError(f"None of the {len(cut)} queries meets the choices. Relax them.")
    if not kept.all():
        X, grade, qid = X[kept], grade[kept], qid[kept]
    groups = quantile_groups(X[:, choices.protected - 1], choices.groups)
    scaling = _rows_of(cut, ("train",) if choices.scale_by == "train" else _PARTS, qid)
    X, numbers = _prepare(X, choices, scaling)
    return ranking_data(
        f"mslr_{version}",
        X,
        tuple(f"feature {k}" for k in numbers),
        label=label,
        labels={"relevant": grade >= choices.relevant_from, "grade": grade},
        qid=qid,
        sensitive_features=groups,
        cut=cut,
        licence=_LICENCE if version != "excerpt" else f"MPL-2.0 as published; {_LICENCE}",
    )


def _rows_of(cut: dict[int, str], parts: Sequence[str], qid: Any) -> NDArray[np.bool_]:
    """Return which rows belong to some parts."""
    return np.isin(qid, [query for query, part in cut.items() if part in parts])


def _wanted(version: str, parts: Any) -> tuple[str, ...]:
    available = tuple(EXCERPT) if version == "excerpt" else _PARTS
    chosen = available if parts is None else as_list(parts)
    if not chosen or any(part not in available for part in chosen):
        allowed = ", ".join(map(repr, available))
        raise InputError(f"parts must be some of {allowed} (got {show(parts)}).")
    return tuple(part for part in available if part in chosen)


# --- files -------------------------------------------------------------------------------------


def _unpacked(version: str, fold: int, wanted: tuple[str, ...], data_home: Home) -> dict[str, Path]:
    """Return the files of the original data set by part."""
    name = f"MSLR-{version.upper()}"
    folders = places(data_home)
    tried = [folder / sub for folder in folders for sub in (name, f"mslr/{name}")]
    if data_home is not None:
        tried.insert(0, folders[0])  # the unpacked data set itself
    folder = next(filter(Path.is_dir, (place / f"Fold{fold}" for place in tried)), None)
    if folder is None:
        raise InputError(
            f"{name} was not found: no folder Fold{fold} in {', '.join(map(str, tried))}. It may "
            "not be redistributed. Download it from Microsoft's page \"Microsoft Learning to Rank "
            f'Datasets" and unpack it to {tried[0]}, or pass its folder as data_home or in '
            f"{VARIABLE}. Without it, use load_mslr('excerpt')."
        )
    files = {}
    for part in wanted:
        plain = folder / f"{part}.txt"
        files[part] = plain if plain.is_file() else folder / f"{part}.txt.gz"
        if not files[part].is_file():
            raise InputError(f"{plain} does not exist, nor with .gz. Unpack the whole data set.")
    return files


def _cut(
    version: str, files: dict[str, Path], qid: Any, n_rows: list[int], data_home: Home
) -> tuple[dict[int, str], list[int]]:
    """Return the part of each query, and the queries that may be truncated."""
    if version == "sample":
        index = [*csv.DictReader(read_data(SAMPLE_INDEX, data_home).decode().splitlines())]
        cut = {int(row["qid"]): _SAMPLE_PARTS.get(row["source"], "test") for row in index}
        return cut, [int(row["qid"]) for row in index if row["complete"] == "0"]
    cut = {}
    for part, ids in zip(files, np.split(qid, np.cumsum(n_rows)[:-1]), strict=True):
        for query in np.unique(ids).tolist():
            if query in cut:
                raise InputError(
                    f"The query {query} is in {files[cut[query]]} and in {files[part]}. Unpack the "
                    "data set again."
                )
            cut[query] = part
    return cut, [*_EXCERPT_CUT] if version == "excerpt" else []


# --- features, in place --------------------------------------------------------------------------


def _prepare(X: Any, choices: MslrChoices, scaling: NDArray[np.bool_]) -> tuple[Any, list[int]]:
    """Return the features that the ranker sees, and their numbers."""
    numbers = list(range(1, N_FEATURES + 1))
    if not choices.group_as_feature:
        numbers.remove(choices.protected)
        X = _without_column(X, choices.protected - 1)
    if choices.transform is not None:
        _take_logarithms(X, numbers)
    if choices.transform == "yadav":
        _scale(X, scaling)
    return X, numbers


def _without_column(X: Any, column: int) -> Any:
    """Return the matrix without a column; its rows move forward in the same memory."""
    n_rows, width = X.shape
    narrow = X.reshape(-1)[: n_rows * (width - 1)].reshape(n_rows, width - 1)
    for begin in range(0, n_rows, _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        narrow[rows] = np.delete(X[rows], column, axis=1)
    return narrow


def _take_logarithms(X: Any, numbers: list[int]) -> None:
    for number in filter(numbers.__contains__, LOGARITHMIC):
        values = X[:, numbers.index(number)]
        if number in MAY_BE_NEGATIVE:
            np.abs(values, out=values)
        if (values < 0).any():
            raise InputError(
                f"Feature {number} has negative values, whose logarithm is undefined. Pass "
                "transform=None."
            )
        np.log1p(values, out=values)


def _scale(X: Any, rows: NDArray[np.bool_]) -> None:
    if not rows.any():
        raise InputError(
            "scale_by='train' requires training queries, but none is read. Add 'train' to parts, "
            "or pass scale_by='all'."
        )
    low, middle, high = np.transpose([np.percentile(column[rows], (5, 50, 95)) for column in X.T])
    X -= middle
    X /= np.where(high > low, high - low, 1.0)
