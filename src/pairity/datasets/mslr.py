"""MSLR: Microsoft's web search data, WEB10K and WEB30K, and what is public of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairity._utils.progress import Show
from pairity._utils.validation import show
from pairity.data.groups import quantile_groups
from pairity.data.letor import read_apart
from pairity.datasets.download import VARIABLE, DataFile, Home, find_data, places, read_data
from pairity.datasets.ranking_data import RankingData, ranking_data, require_choice
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
_RANKEVAL = {
    "repository": "hpclab/rankeval",
    "commit": "c6e39e9c19db2a05a43f243a990a28989db891bc",
    "licence": "MPL-2.0",
}
EXCERPT = {
    "train": DataFile(
        folder="mslr",
        name="msn1.fold1.train.5k.txt",
        sha256="6d1721de961a35fbaef7085dc5b41e2940f0ddb04bab5f7a8566cf7db4158fa6",
        path="rankeval/test/data/msn1.fold1.train.5k.txt",
        **_RANKEVAL,
    ),
    "test": DataFile(
        folder="mslr",
        name="msn1.fold1.test.5k.txt",
        sha256="13d3c638edd23e482c38f4316c2680c938c2eaedbe096970ab30a48e364463d3",
        path="rankeval/test/data/msn1.fold1.test.5k.txt",
        **_RANKEVAL,
    ),
}

_PARTS = ("train", "vali", "test")
_SAMPLE_PARTS = {
    "rankeval_train": "train",
    "onlinelambdamart_train": "train",
    "onlinelambdamart_valid": "vali",
}  # any other source is for tests
_EXCERPT_CUT = (631, 643)  # the last queries of its two files
_LICENCE = "Microsoft's own terms, for research"
_BLOCK = 65_536  # rows

Version = Literal["web10k", "web30k", "sample", "excerpt"]


def load_mslr(
    version: Version = "web10k",
    *,
    fold: int = 1,
    parts: Sequence[str] | None = None,
    label: Literal["relevant", "grade"] = "relevant",
    relevant_from: int = 2,
    at_least: int = 0,
    of_grade: int = 3,
    complete_only: bool = False,
    protected: int = 133,
    groups: int | Sequence[float] = 5,
    group_as_feature: bool = False,
    transform: Literal["yadav", "log"] | None = "yadav",
    scale_by: Literal["train", "all"] = "train",
    data_home: Home = None,
    download: bool = True,
    progress: Show = "auto",
) -> RankingData:
    """Web pages by search query, in groups by a quality score (Microsoft's MSLR-WEB10K, WEB30K).

    Judged pages, 136 features each; the groups are cut from one of them. The defaults are what the
    paper describes: a page of grade 2 or more is relevant; five groups of equal size by
    QualityScore2, which the ranker does not see; the other 135 features prepared as by Yadav,
    Du and Joachims.

    Parameters
    ----------
    version : {"web10k", "web30k", "sample", "excerpt"}
        "web10k" and "web30k" are the originals. Download them from Microsoft's page "Microsoft
        Learning to Rank Datasets" and unpack them to ``MSLR-WEB10K/Fold1/train.txt`` and so on,
        in a folder that `data_home` names.
        "sample": 182 of their queries, gathered from public packages, where you have that file.
        "excerpt": about 10,000 lines of WEB10K that the package rankeval carries, its fold 1 (a
        training and a test part); these are downloaded where they are not found.
    fold : int
        Which of the five folds; each holds the same queries, cut into other parts.
    parts : sequence of "train", "vali", "test", optional
        What to read; by default everything there is.
    label : {"relevant", "grade"}
        "relevant": 1 for a grade of `relevant_from` or more. "grade": the grade itself, 0 to 4.
        Both are in the result's `labels`.
    relevant_from : int
        The paper has 2; Yadav et al. have 3.
    at_least, of_grade : int
        Only queries with at least so many pages of that grade or a higher one are kept. The paper
        has 2,805 queries of 132 pages on average and does not say how they were chosen; of the
        simple rules ``at_least=3, of_grade=3`` comes closest. By default all queries are kept.
    complete_only : bool
        Whether queries are left out that may be cut off (some of "sample" and "excerpt").
    protected : int
        The feature that makes the groups, counted from 1: 133 (QualityScore2), or 132
        (QualityScore), a fifth of whose values are tied at the least, 1.
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
    data_home : path, optional
        By default that of the environment variable ``PAIRITY_DATA``; then the user's cache is
        looked through.
    download : bool
        Whether "excerpt" is downloaded where it is not found. The digests of "sample" and "excerpt"
        are checked in any case.
    progress : {"auto"} or bool

    Returns
    -------
    RankingData
        ``part("train")``, ``part("vali")`` and ``part("test")`` are the published parts; for
        "sample", as its sources were cut.

    Notes
    -----
    Features are float64 (8 × 135 bytes a page: 1.3 GB for WEB10K, 4.1 GB for WEB30K) and are read
    exactly; that is also the peak, but for some hundred MB.

    References
    ----------
    T. Qin, T.-Y. Liu: Introducing LETOR 4.0 Datasets. 2013.
    H. Yadav, Z. Du, T. Joachims: Policy-Gradient Training of Fair and Unbiased Ranking Functions.
    SIGIR 2021.
    """
    _check(version, fold, label, transform, scale_by, protected)
    wanted = _wanted(version, parts)
    apart = None if group_as_feature else protected
    files = _files(version, fold, wanted, data_home, download, progress)
    arrays, column, n_rows = read_apart(
        list(files.values()), apart, n_features=N_FEATURES, complete=True, progress=progress
    )
    X: Any = arrays.X
    grade, qid = arrays.y, arrays.qid
    if qid is None:
        raise InputError(f"{next(iter(files.values()))} has no query ids. Is it the original?")
    if column is None:
        column = np.array(X[:, protected - 1])
    cut, left_out = _cut(version, files, qid, n_rows, data_home)
    numbers = [k for k in range(1, N_FEATURES + 1) if k != apart]
    kept = np.isin(qid, [at for at, part in cut.items() if part in wanted])
    if complete_only:
        kept &= ~np.isin(qid, left_out)
    if at_least > 0:
        ids, query = np.unique(qid, return_inverse=True)
        kept &= (np.bincount(query, grade >= of_grade, len(ids)) >= at_least)[query]
    if not kept.any():
        raise InputError(
            f"None of the {len(cut)} queries is as asked. Ask for less, or other parts."
        )
    if not kept.all():
        X, grade, qid, column = X[kept], grade[kept], qid[kept], column[kept]
    if transform is not None:
        _take_logarithms(X, numbers)
    if transform == "yadav":
        rows = None
        if scale_by == "train":
            rows = np.isin(qid, [at for at, part in cut.items() if part == "train"])
            if not rows.any():
                raise InputError(
                    "scale_by='train' needs training queries, and none is read. Add 'train' to "
                    "parts, or give scale_by='all'."
                )
        _scale(X, rows)
    return ranking_data(
        f"mslr_{version}",
        X,
        tuple(f"feature {k}" for k in numbers),
        label=label,
        labels={"relevant": grade >= relevant_from, "grade": grade},
        qid=qid,
        sensitive_features=quantile_groups(column, groups),
        cut=cut,
        licence=_LICENCE if version != "excerpt" else f"MPL-2.0 as published; {_LICENCE}",
    )


def _check(
    version: Any, fold: Any, label: Any, transform: Any, scale_by: Any, protected: Any
) -> None:
    require_choice("version", version, ("web10k", "web30k", "sample", "excerpt"))
    require_choice("fold", fold, (1, 2, 3, 4, 5))
    require_choice("label", label, ("relevant", "grade"))
    require_choice("transform", transform, ("yadav", "log", None))
    require_choice("scale_by", scale_by, ("train", "all"))
    if isinstance(protected, bool) or protected not in range(1, N_FEATURES + 1):
        raise InputError(f"protected is {show(protected)}; give a feature from 1 to {N_FEATURES}.")
    if version in ("sample", "excerpt") and fold != 1:
        raise InputError(f"fold is {fold}, but {version!r} is from fold 1 only. Leave it out.")


def _wanted(version: str, parts: Any) -> tuple[str, ...]:
    there = tuple(EXCERPT) if version == "excerpt" else _PARTS
    if parts is None:
        return there
    chosen = (parts,) if isinstance(parts, str) else tuple(parts)
    if not chosen or any(part not in there for part in chosen):
        raise InputError(f"parts is {show(parts)}; choose from {', '.join(map(repr, there))}.")
    return tuple(part for part in there if part in chosen)


# --- files -------------------------------------------------------------------------------------


def _files(
    version: str, fold: int, wanted: tuple[str, ...], data_home: Home, download: bool,
    progress: Show,
) -> dict[str, Path]:  # fmt: skip
    """The files to read, by part; the sample has all parts in one."""
    if version == "sample":
        return {"sample": find_data(SAMPLE, data_home, download=download, progress=progress)}
    if version == "excerpt":
        return {
            part: find_data(EXCERPT[part], data_home, download=download, progress=progress)
            for part in wanted
        }
    folder = _fold_folder(version, fold, data_home)
    found = {}
    for part in wanted:
        both = [folder / f"{part}.txt", folder / f"{part}.txt.gz"]
        there = [path for path in both if path.is_file()]
        if not there:
            raise InputError(f"{both[0]} is not there, nor with .gz. Unpack the whole data set.")
        found[part] = there[0]
    return found


def _fold_folder(version: str, fold: int, data_home: Home) -> Path:
    name = f"MSLR-{version.upper()}"
    folders = places(data_home)
    tried = [folder / sub for folder in folders for sub in (name, f"mslr/{name}")]
    if data_home is not None:
        tried.insert(0, folders[0])  # the unpacked data set itself
    for folder in tried:
        if (folder / f"Fold{fold}").is_dir():
            return folder / f"Fold{fold}"
    raise InputError(
        f"{name} is not there: no folder Fold{fold} in {', '.join(map(str, tried))}. It may not be "
        'handed on: get it from Microsoft\'s page "Microsoft Learning to Rank Datasets", unpack it '
        f"to {tried[0]}, or give its folder as data_home or in {VARIABLE}. Without it there is "
        "load_mslr('excerpt')."
    )


def _cut(
    version: str, files: dict[str, Path], qid: NDArray[np.int64], n_rows: list[int],
    data_home: Home,
) -> tuple[dict[int, str], list[int]]:  # fmt: skip
    """The part of each query, and the queries that may be cut off."""
    if version == "sample":
        lines = read_data(SAMPLE_INDEX, data_home).decode().splitlines()
        index = list(csv.DictReader(lines))
        cut = {int(row["qid"]): _SAMPLE_PARTS.get(row["source"], "test") for row in index}
        return cut, [int(row["qid"]) for row in index if row["complete"] == "0"]
    cut = {}
    ends = np.cumsum(n_rows)
    for part, begin, end in zip(files, [0, *ends[:-1]], ends, strict=True):
        for at in np.unique(qid[begin:end]).tolist():
            if at in cut:
                raise InputError(
                    f"The query {at} stands in {files[cut[at]]} and in {files[part]}. Unpack the "
                    "data set anew."
                )
            cut[at] = part
    return cut, [*_EXCERPT_CUT] if version == "excerpt" else []


# --- features, in place --------------------------------------------------------------------------


def _take_logarithms(X: Any, numbers: list[int]) -> None:
    columns = [numbers.index(k) for k in LOGARITHMIC if k in numbers]
    signed = [numbers.index(k) for k in MAY_BE_NEGATIVE if k in numbers]
    for begin in range(0, len(X), _BLOCK):
        block = X[begin : begin + _BLOCK]
        block[:, signed] = np.abs(block[:, signed])
        values = block[:, columns]
        if (values < 0).any():
            number = numbers[columns[int(np.argmax((values < 0).any(axis=0)))]]
            raise InputError(
                f"Feature {number} has negative values, whose logarithm is not defined. Give "
                "transform=None."
            )
        block[:, columns] = np.log1p(values)


def _scale(X: Any, rows: NDArray[np.bool_] | None) -> None:
    percentiles = np.empty((3, X.shape[1]))
    for k in range(X.shape[1]):
        values = X[:, k] if rows is None else X[rows, k]
        percentiles[:, k] = np.percentile(values, (5, 50, 95))
    low, middle, high = percentiles
    size = np.where(high > low, high - low, 1.0)
    for begin in range(0, len(X), _BLOCK):
        block = X[begin : begin + _BLOCK]
        block -= middle
        block /= size
