"""TREC Enterprise: experts of the W3C, 200 candidates for each topic."""

from typing import Literal

import numpy as np

from pairity._utils.progress import Show
from pairity._utils.typing import Array
from pairity._utils.validation import require_choice
from pairity.datasets.download import Home, deltr_file, read_numbers
from pairity.datasets.ranking_data import RankingData, above_median, ranking_data
from pairity.exceptions import InputError

FILE = deltr_file(
    "trec_w3c",
    "TREC/features_withListNetFormat_withGender_withZscore_candidateAmount-200_total.csv",
    "91729e57f12033a84fa1f2fe6a339d2e4af4ca87b518d07d113e0eee8de06b81",
)

_FEATURES = ("f1", "f2", "f3", "f4", "f5")
_TOPICS_PER_FOLD = 10

Label = Literal["above_median", "expert", "order"]


def load_trec_w3c(
    *,
    label: Label = "above_median",
    topics: Literal["usable", "all"] = "usable",
    group_as_feature: bool = False,
    drop_duplicates: bool = False,
    data_home: Home = None,
    download: bool = True,
    progress: Show = "auto",
) -> RankingData:
    """Experts of the W3C by topic, with gender as the group (TREC Enterprise).

    Each topic has 200 candidates, men and women, some of whom are experts on it. The authors of
    FA*IR and DELTR prepared the data and ordered each list with a built-in bias: male experts,
    female experts, other men, other women. The defaults follow the paper: 48 topics × 200
    candidates, five features.

    Parameters
    ----------
    label : {"above_median", "expert", "order"}
        "above_median" (the paper's): 1 for the upper half of the topic's biased order.
        "expert": 1 for an expert. It is reconstructed from the order: if that consists of four runs
        of equal gender, the first two are the experts. It does not contain the built-in bias, so it
        is the label to test against.
        "order": the biased order itself, from 1 at the top in steps of 0.005.
        All are in the result's `labels`.
    topics : {"usable", "all"}
        "usable": the 48 topics that have a female expert. In the other 12 topics, the order
        consists of two runs and does not identify the experts, so "all" has no label "expert".
    group_as_feature : bool
        Whether gender (1 for women) is among the features, before the others.
    drop_duplicates : bool
        Whether rows that repeat a whole row of their topic are dropped. Topic 43, one of the 12,
        has 390 rows, 180 of which are repeated.
    data_home : path, optional
        A folder with ``trec_w3c/…csv``, or the same with ``.gz``. By default the folder of the
        environment variable ``PAIRITY_DATA``. The user's cache is searched next.
    download : bool
        Whether the file is downloaded if it is not found. Its digest is always checked.
    progress : {"auto"} or bool

    Returns
    -------
    RankingData
        ``fold(k)`` for k from 1 to 6 tests on topics 10k - 9 to 10k, as in DELTR. The paper splits
        at random instead: ``queries().split(0.2, random_state=…)``.

    Notes
    -----
    The features (z-scored statistics of text match) are hardly informative: a linear model has an
    AUC of about 0.51 for "expert". Candidates of unknown gender count as men. The licence of the
    file is GPL-3.0, as stated by its publisher.

    References
    ----------
    M. Zehlike, C. Castillo: Reducing Disparate Exposure in Ranking: A Learning to Rank Approach
    (DELTR). WWW 2020.
    """
    require_choice("label", label, ("above_median", "expert", "order"))
    require_choice("topics", topics, ("usable", "all"))
    if label == "expert" and topics == "all":
        raise InputError(
            "The label 'expert' is known only for 48 topics. Pass topics='usable', or "
            "another label."
        )
    table = read_numbers(FILE, data_home, download=download, progress=progress)
    if drop_duplicates:
        _, first = np.unique(table, axis=0, return_index=True)
        table = table[np.sort(first)]
    expert = _experts(table)
    if topics == "usable":
        table, expert = table[~np.isnan(expert)], expert[~np.isnan(expert)]
    topic, gender, score = table[:, 0].astype(np.int64), table[:, 1], table[:, -1]
    labels = {"above_median": above_median(score, topic), "order": score}
    if topics == "usable":
        labels["expert"] = expert
    first_feature = 1 if group_as_feature else 2
    return ranking_data(
        "trec_w3c",
        np.ascontiguousarray(table[:, first_feature:7]),
        (("gender",) if group_as_feature else ()) + _FEATURES,
        label=label,
        labels=labels,
        qid=topic,
        sensitive_features=np.where(gender == 1, "women", "men"),
        cut={int(t): (int(t) - 1) // _TOPICS_PER_FOLD + 1 for t in np.unique(topic)},
        licence=str(FILE.licence),
    )


def _experts(table: Array) -> Array:
    """Return 1 for experts, 0 for others, NaN if the order of a topic does not identify them."""
    topic, gender, score = table[:, 0], table[:, 1], table[:, -1]
    result = np.full(len(topic), np.nan)
    for number in np.unique(topic):
        rows = np.flatnonzero(topic == number)
        rows = rows[np.argsort(-score[rows], kind="stable")]
        begins = np.flatnonzero(np.diff(gender[rows])) + 1
        if len(begins) == 3:  # four runs
            result[rows] = np.arange(len(rows)) < begins[1]
    return result
