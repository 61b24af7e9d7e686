"""TREC files: a run, its judgements (qrels) and the groups of documents, as queries and scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from pairity._utils.files import FilePath, as_list, open_text
from pairity._utils.typing import Array
from pairity._utils.validation import require_choice, show
from pairity.data.columns import Column, object_array
from pairity.data.queries import Queries
from pairity.exceptions import InputError

Unjudged = Literal["irrelevant", "leave-out"]
NotRetrieved = Literal["last", "leave-out"]


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A run with its judgements.

    Attributes
    ----------
    queries : Queries, without features; labels are the judgements
    scores : float64 array of shape (n_items,)
    n_unjudged : int, documents of the run without a judgement
    n_not_retrieved : int, judged documents that are not in the run
    n_only_run, n_only_qrels : int, topics that are left out because only one file has them
    """

    queries: Queries
    scores: Array
    n_unjudged: int
    n_not_retrieved: int
    n_only_run: int
    n_only_qrels: int


def read_trec(
    run: FilePath,
    qrels: FilePath,
    groups: FilePath | Sequence[FilePath],
    *,
    unjudged: Unjudged = "irrelevant",
    not_retrieved: NotRetrieved = "last",
) -> JudgedRun:
    r"""Read a run, its judgements and the groups of its documents for an audit.

    Parameters
    ----------
    run : path
        Lines of ``topic Q0 document rank score tag``. Documents are ordered by score, as in
        trec_eval; ranks and tags are ignored. Equal scores are ties.
    qrels : path
        Lines of ``topic iteration document judgement``. Judgements below 0 count as 0.
    groups : path, or sequence of paths
        Lines of ``document group``, separated by a tab or by blanks; a group may contain blanks.
        A document that is not listed has no group. Several files define the intersection.
    unjudged : {"irrelevant", "leave-out"}
        Whether a document of the run without a judgement counts as irrelevant, as in trec_eval, or
        is left out.
    not_retrieved : {"last", "leave-out"}
        Whether judged documents that are not in the run are tied behind all documents of the run,
        or are left out. "last" counts missed relevant documents against the run, and against their
        group.

    Returns
    -------
    JudgedRun
        It has the topics that are in both files.

    Notes
    -----
    All files must be UTF-8, plain or compressed with gzip. A document may appear only once in a
    topic.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pairity.data import read_trec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = [Path(folder, name) for name in ("run", "qrels", "groups")]
    ...     _ = names[0].write_text("7 Q0 a 1 9.5 me\n7 Q0 b 2 4.5 me\n")
    ...     _ = names[1].write_text("7 0 a 1\n7 0 c 2\n")
    ...     _ = names[2].write_text("a women\nb men\nc men\n")
    ...     judged = read_trec(*names)
    >>> judged.queries.y.tolist(), judged.scores.tolist()
    ([1.0, 0.0, 2.0], [9.5, 4.5, 3.5])
    """
    require_choice("unjudged", unjudged, get_args(Unjudged))
    require_choice("not_retrieved", not_retrieved, get_args(NotRetrieved))
    scored = _read_numbers(run, "a run", "topic Q0 document rank score tag")
    judged = _read_numbers(qrels, "judgements", "topic iteration document judgement")
    both = [topic for topic in scored if topic in judged]
    if not both:
        raise InputError(
            f"{run} and {qrels} have no topic in common: the run has {show(next(iter(scored)))}, "
            f"the qrels have {show(next(iter(judged)))}. Check that they belong to the same task."
        )
    rows = []
    n_unjudged = n_not_retrieved = 0
    for topic in both:
        run_scores, topic_labels = scored[topic], judged[topic]
        lowest = min(run_scores.values())
        last = min(lowest - 1.0, float(np.nextafter(lowest, -np.inf)))  # also below a large score
        n_unjudged += len(run_scores.keys() - topic_labels)
        n_not_retrieved += len(topic_labels.keys() - run_scores)
        for document in {**run_scores, **topic_labels}:
            judged_or_kept = document in topic_labels or unjudged != "leave-out"
            if judged_or_kept and (document in run_scores or not_retrieved != "leave-out"):
                numbers = run_scores.get(document, last), topic_labels.get(document, 0.0)
                rows.append((topic, document, *numbers))
    if not rows:
        raise InputError(
            f"No document of {run} is judged in {qrels}, so nothing is left to audit. Pass "
            "unjudged='irrelevant'."
        )
    topics, documents, scores, labels = map(list, zip(*rows, strict=True))
    columns = {str(path): _group_column(path, documents) for path in as_list(groups)}
    queries = Queries.from_arrays(
        None, labels, qid=object_array(topics),
        sensitive_features=columns if len(columns) > 1 else next(iter(columns.values())),
    )  # fmt: skip
    return JudgedRun(
        queries, np.array(scores), n_unjudged, n_not_retrieved,
        len(scored) - len(both), len(judged) - len(both),
    )  # fmt: skip


def _group_column(path: FilePath, documents: list[str]) -> Column:
    """The group of each document, None for those that the file does not list."""
    named = read_groups(path)
    column = object_array([named.get(document) for document in documents])
    if all(group is None for group in column):
        raise InputError(
            f"None of the {len(documents):,} documents, such as {show(documents[0])}, is in {path}."
            " Write one line per document: the document, a tab, its group."
        )
    return column


def read_groups(path: FilePath) -> dict[str, str]:
    """Read the group of each document from lines of ``document group``."""
    groups: dict[str, str] = {}
    for number, line in _numbered(path, "documents and their groups"):
        first, tab, rest = line.strip("\r\n").partition("\t")
        words = [first.strip(), rest.strip()] if tab else line.split(maxsplit=1)
        if len(words) != 2 or not all(words):
            _refuse(path, number, "it must have a document and its group")
        if groups.setdefault(words[0], words[1].strip()) != words[1].strip():
            _refuse(path, number, f"{show(words[0])} already has another group")
    return groups


def _read_numbers(path: FilePath, content: str, form: str) -> dict[str, dict[str, float]]:
    """Read the score or judgement of each document by topic; `form` names the words of a line."""
    by_topic: dict[str, dict[str, float]] = {}
    is_run, names = "score" in form, form.split()
    what, subject = ("score", "a run has") if is_run else ("judgement", "qrels have")
    for number, line in _numbered(path, content):
        words = line.split()
        if len(words) != len(names):
            _refuse(path, number, f"it has {len(words)} words, but {subject} {form}")
        value = _number(words[names.index(what)], path, number, what)
        value = value if is_run else max(value, 0.0)
        known = by_topic.setdefault(words[0], {}).setdefault(words[2], value)
        if is_run and known is not value:
            _refuse(path, number, f"the document {show(words[2])} is repeated in its topic")
        if known != value:
            _refuse(path, number, f"{show(words[2])} already has another judgement")
    return by_topic


def _numbered(path: FilePath, content: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers; there must be one."""
    number = 0
    with open_text(path) as lines:
        for line in lines:
            if not line.isspace():
                number = lines.number
                yield number, line
    if not number:
        raise InputError(f"{path} has no lines. Pass {content}.")


def _number(word: str, path: Any, number: int, what: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not word.isascii() or "_" in word:
        _refuse(path, number, f"the {what} {show(word)} is not a finite number")
    return value


def _refuse(path: Any, number: int, reason: str) -> NoReturn:
    raise InputError(f"{path}, line {number}: {reason}.")
