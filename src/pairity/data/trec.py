"""TREC files: a run, the judgements (qrels) and the documents' groups, as queries and scores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NoReturn

import numpy as np

from pairity._utils.files import FilePath, open_text
from pairity._utils.typing import Array
from pairity._utils.validation import show
from pairity.data.columns import object_array
from pairity.data.queries import Queries
from pairity.exceptions import InputError

Unjudged = Literal["irrelevant", "leave-out"]
NotRetrieved = Literal["last", "leave-out"]
UNJUDGED: tuple[Unjudged, ...] = ("irrelevant", "leave-out")
NOT_RETRIEVED: tuple[NotRetrieved, ...] = ("last", "leave-out")

Names = dict[str, str]


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A run with its judgements.

    Attributes
    ----------
    queries : Queries, without features; labels are the judgements
    scores : float64 array of shape (n_items,)
    n_unjudged : int, documents of the run that nobody judged
    n_not_retrieved : int, judged documents that the run has not
    n_only_run, n_only_qrels : int, topics that are left out, being in one of the files only
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
    r"""A run, its judgements and the groups of its documents, as something to audit.

    Parameters
    ----------
    run : path
        Lines of ``topic Q0 document rank score tag``. The order is that of the scores, as
        trec_eval has it; ranks and tags are not looked at. Equal scores are ties.
    qrels : path
        Lines of ``topic iteration document judgement``. Judgements below 0 count as 0.
    groups : path, or several
        Lines of ``document group``, separated by a tab or by blanks; a group may hold blanks.
        A document that is not listed has no group. Several files stand for the intersection.
    unjudged : {"irrelevant", "leave-out"}
        What a document of the run is that nobody judged: irrelevant, as for trec_eval, or not
        there at all.
    not_retrieved : {"last", "leave-out"}
        Where a judged document is that the run has not: behind all that the run has, tied with
        others like it, or not there at all. "last" counts relevant documents that the run has
        missed against it, and against their group.

    Returns
    -------
    JudgedRun
        Of the topics that are in both files.

    Notes
    -----
    All files are UTF-8, plain or compressed with gzip. A document may stand once in a topic.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pairity.data.trec import read_trec
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = [Path(folder, name) for name in ("run", "qrels", "groups")]
    ...     _ = names[0].write_text("7 Q0 a 1 9.5 me\n7 Q0 b 2 4.5 me\n")
    ...     _ = names[1].write_text("7 0 a 1\n7 0 c 2\n")
    ...     _ = names[2].write_text("a women\nb men\nc men\n")
    ...     judged = read_trec(*names)
    >>> judged.queries.y.tolist(), judged.scores.tolist()
    ([1.0, 0.0, 2.0], [9.5, 4.5, 3.5])
    """
    for name, value, known in (
        ("unjudged", unjudged, UNJUDGED), ("not_retrieved", not_retrieved, NOT_RETRIEVED)
    ):  # fmt: skip
        if value not in known:
            raise InputError(f"{name} is {show(value)}; choose one of {', '.join(known)}.")
    scored = _read_run(run)
    judged = _read_qrels(qrels)
    files = [groups] if isinstance(groups, str | os.PathLike) else list(groups)
    named = {str(path): read_groups(path) for path in files}
    both = [topic for topic in scored if topic in judged]
    if not both:
        raise InputError(
            f"{run} and {qrels} have no topic in common: {show(next(iter(scored)))} is one of the "
            f"run's, {show(next(iter(judged)))} one of the qrels'. Are they of the same task?"
        )
    topics, documents, labels, scores = [], [], [], []
    n_unjudged = n_not_retrieved = 0
    for topic in both:
        found, known_labels = scored[topic], judged[topic]
        lost = [document for document in known_labels if document not in found]
        new = [document for document in found if document not in known_labels]
        n_unjudged, n_not_retrieved = n_unjudged + len(new), n_not_retrieved + len(lost)
        kept = list(found)
        if unjudged == "leave-out":
            kept = [document for document in kept if document in known_labels]
        last = _below(min(found.values()))
        added = lost if not_retrieved == "last" else []
        documents += [*kept, *added]
        topics += [topic] * (len(kept) + len(added))
        scores += [*(found[document] for document in kept), *([last] * len(added))]
        labels += [known_labels.get(document, 0.0) for document in (*kept, *added)]
    if not documents:
        raise InputError(f"No document of {run} is judged in {qrels}: nothing is left to audit.")
    columns = {
        path: object_array([known.get(document) for document in documents])
        for path, known in named.items()
    }
    for path, column in columns.items():
        if not any(each is not None for each in column):
            raise InputError(
                f"None of the {len(documents):,} documents, such as {show(documents[0])}, is in "
                f"{path}. Write one line for each: the document, a tab, its group."
            )
    queries = Queries.from_arrays(
        None, labels, qid=object_array(topics),
        sensitive_features=columns if len(columns) > 1 else next(iter(columns.values())),
    )  # fmt: skip
    return JudgedRun(
        queries, np.array(scores), n_unjudged, n_not_retrieved,
        len(scored) - len(both), len(judged) - len(both),
    )  # fmt: skip


def read_groups(path: FilePath) -> Names:
    """Each document's group, from lines of ``document group``."""
    found: Names = {}
    for number, line in _numbered(path):
        first, tab, rest = line.strip("\r\n").partition("\t")
        words = [first.strip(), rest.strip()] if tab else line.split(maxsplit=1)
        if len(words) != 2 or not all(words):
            _refuse(path, number, "has not a document and its group")
        if found.setdefault(words[0], words[1].strip()) != words[1].strip():
            _refuse(path, number, f"gives {show(words[0])} a second group")
    if not found:
        raise InputError(f"{path} has no lines. Give documents and their groups.")
    return found


def _below(lowest: float) -> float:
    """A score below the lowest one, also where that is very large."""
    return min(lowest - 1.0, float(np.nextafter(lowest, -np.inf)))


def _read_run(path: FilePath) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, words in _records(path, "a run has topic Q0 document rank score tag", 6):
        score = _number(words[4], path, number, "score")
        if found.setdefault(words[0], {}).setdefault(words[2], score) is not score:
            _refuse(path, number, f"has the document {show(words[2])} a second time")
    if not found:
        raise InputError(f"{path} has no lines. Give a run.")
    return found


def _read_qrels(path: FilePath) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for number, words in _records(path, "qrels have topic iteration document judgement", 4):
        label = max(_number(words[3], path, number, "judgement"), 0.0)
        if found.setdefault(words[0], {}).setdefault(words[2], label) != label:
            _refuse(path, number, f"judges {show(words[2])} a second time, and otherwise")
    if not found:
        raise InputError(f"{path} has no lines. Give judgements.")
    return found


def _records(path: FilePath, form: str, length: int) -> Iterator[tuple[int, list[str]]]:
    """The words of each line, as many as there must be, with its number."""
    for number, line in _numbered(path):
        words = line.split()
        if len(words) != length:
            _refuse(path, number, f"has {len(words)} words; {form}")
        yield number, words


def _numbered(path: FilePath) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers."""
    with open_text(path) as lines:
        for line in lines:
            if not line.isspace():
                yield lines.number, line


def _number(word: str, path: Any, number: int, what: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not word.isascii() or "_" in word:
        _refuse(path, number, f"has the {what} {show(word)}, which is no finite number")
    return value


def _refuse(path: Any, number: int, said: str) -> NoReturn:
    raise InputError(f"{path}, line {number}: it {said}.")
