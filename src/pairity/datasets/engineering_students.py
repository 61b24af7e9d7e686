"""Engineering Students: five years of first-year students of a Chilean engineering school."""

from typing import Any, Literal

import numpy as np

from pairity._utils.progress import Show
from pairity._utils.validation import require_choice
from pairity.datasets.download import Home, deltr_file, read_numbers
from pairity.datasets.ranking_data import RankingData, above_median, ranking_data
from pairity.exceptions import InputError

_FEATURES = ("psu_math", "psu_lang", "psu_science", "gpa")
_GROUPS = {"gender": ("men", "women"), "school": ("private", "public")}  # 0 and 1 in the files
_COLUMNS = {"gender": "gender", "school": "highschool"}
_DIGESTS = {
    "gender": "fe6bbc792c2beb9685a8f6d6365ff93cbdb0df7592bc5e96b84626b79f948622",
    "school": "b1d2331f667059d252aee11805416f41eb5f46139ec55fc15b0f16c3cb4dff97",
}

FILES = {
    protected: deltr_file(
        "engineering_students",
        f"EngineeringStudents/NoSemiPrivate/{column}/chileDataL2R_{column}_nosemi_full.txt",
        _DIGESTS[protected],
    )
    for protected, column in _COLUMNS.items()
}


def load_engineering_students(
    *,
    protected: Literal["gender", "school", "both"] = "gender",
    label: Literal["above_median", "score"] = "above_median",
    median: Literal["year", "all"] = "year",
    group_as_feature: bool = True,
    data_home: Home = None,
    download: bool = True,
    progress: Show = "auto",
) -> RankingData:
    """First-year students by entrance year, with gender or type of school as the group.

    The queries are five entrance years of 441 to 520 students, who are ranked by their performance
    in the first year. The defaults follow the paper: two groups by gender, a binary label and five
    features, one of which is the group.

    Parameters
    ----------
    protected : {"gender", "school", "both"}
        The groups: men and women; private and public high school; or the four intersections.
    label : {"above_median", "score"}
        "above_median": 1 for students whose performance is above the median. "score": the
        performance itself, z-scored within the year. Both are in the result's `labels`.
    median : {"year", "all"}
        Whether the median is that of the student's year or that of all years. The paper does not
        specify it.
    group_as_feature : bool
        Whether the protected columns (1 for women, for public schools) are among the features,
        before the test results in mathematics, language and science and the high-school grades.
    data_home : path, optional
        A folder with ``engineering_students/…txt``, or the same with ``.gz``. By default the folder
        of the environment variable ``PAIRITY_DATA``. The user's cache is searched next.
    download : bool
        Whether files that are not found are downloaded. Digests are always checked.
    progress : {"auto"} or bool

    Returns
    -------
    RankingData
        ``fold(k)`` for k from 1 to 5 tests on one year, as in DELTR.

    Notes
    -----
    Features and score are z-scored within a year. The files omit students of semi-private schools.
    For privacy, the authors publish only this version. The licence of the files is GPL-3.0, as
    stated by their publisher.

    References
    ----------
    M. Zehlike, C. Castillo: Reducing Disparate Exposure in Ranking: A Learning to Rank Approach
    (DELTR). WWW 2020.
    """
    require_choice("protected", protected, ("gender", "school", "both"))
    require_choice("label", label, ("above_median", "score"))
    require_choice("median", median, ("year", "all"))
    chosen = ("gender", "school") if protected == "both" else (protected,)
    options: dict[str, Any] = {"header": 1, "download": download, "progress": progress}
    tables = [read_numbers(FILES[name], data_home, **options) for name in chosen]
    others = [0, 2, 3, 4, 5, 6]
    if any((table[:, others] != tables[0][:, others]).any() for table in tables[1:]):
        raise InputError(
            "The two files of engineering_students do not list the same students. Download both "
            "again."
        )
    table = tables[0]
    year, score = table[:, 0].astype(np.int64), table[:, 6]
    codes = {name: file[:, 1] for name, file in zip(chosen, tables, strict=True)}
    groups = {name: np.array(_GROUPS[name])[code.astype(int)] for name, code in codes.items()}
    seen = codes if group_as_feature else {}
    within = year if median == "year" else np.zeros_like(year)
    return ranking_data(
        "engineering_students",
        np.column_stack([*seen.values(), table[:, 2:6]]),
        (*(_COLUMNS[name] for name in seen), *_FEATURES),
        label=label,
        labels={"above_median": above_median(score, within), "score": score},
        qid=year,
        sensitive_features=groups if len(groups) > 1 else groups[protected],
        cut={int(query): int(query) for query in np.unique(year)},
        licence=str(FILES["gender"].licence),
    )
