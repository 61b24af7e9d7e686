"""TREC runs with judgements and groups: what is unjudged, what was not retrieved, what is wrong."""

import gzip

import numpy as np
import pytest

from pairity import audit
from pairity.data.trec import read_groups, read_trec
from pairity.exceptions import InputError

RUN = "1 Q0 a 1 3.5 tag\n1 Q0 b 2 2.5 tag\n1 Q0 c 3 2.5 tag\n2 Q0 a 1 9 tag\n3 Q0 a 1 1 tag\n"
QRELS = "1 0 a 0\n1 0 c 2\n1 0 d 1\n2 0 a 1\n2 0 b -2\n4 0 a 1\n"
GROUPS = "a\twomen\nb\tmen\nc men\nd\told men\n"


@pytest.fixture
def files(tmp_path):
    def make(run=RUN, qrels=QRELS, groups=GROUPS):
        paths = [tmp_path / name for name in ("run", "qrels", "groups")]
        for path, text in zip(paths, (run, qrels, groups), strict=True):
            path.write_text(text)
        return paths

    return make


def told(judged):
    """(query, label, score, group) of every item."""
    q = judged.queries
    names = [*q.groups, None]
    return [
        (q.query_ids[at], y, score, names[group])
        for at, y, score, group in zip(q.query, q.y, judged.scores, q.group, strict=True)
    ]


def test_a_run_with_its_judgements(files):
    judged = read_trec(*files())
    assert told(judged) == [
        ("1", 0.0, 3.5, "women"),
        ("1", 0.0, 2.5, "men"),  # not judged
        ("1", 2.0, 2.5, "men"),
        ("1", 1.0, 1.5, "old men"),  # not retrieved
        ("2", 1.0, 9.0, "women"),
        ("2", 0.0, 8.0, "men"),  # judged below 0
    ]
    assert (judged.n_unjudged, judged.n_not_retrieved) == (1, 2)
    assert (judged.n_only_run, judged.n_only_qrels) == (1, 1)


def test_what_is_left_out(files):
    judged = read_trec(*files(), unjudged="leave-out", not_retrieved="leave-out")
    assert [each[1:3] for each in told(judged)] == [(0.0, 3.5), (2.0, 2.5), (1.0, 9.0)]


def test_what_was_not_retrieved_is_below_everything(files):
    for score in ("-1e308", "1e20", "0", "-5"):
        run = f"1 Q0 a 1 {score} tag\n1 Q0 c 1 {score} tag\n"
        judged = read_trec(*files(run=run))
        assert judged.scores[2] < judged.scores[:2].min()
        assert np.isfinite(judged.scores).all()


def test_missed_documents_count_against_the_run(files):
    """By hand: of the pairs (c, a), (c, b), (d, a), (d, b), (c, d) one ties and one is right."""
    judged = read_trec(*files(qrels="1 0 a 0\n1 0 c 2\n1 0 d 1\n"))
    assert audit(judged.queries, judged.scores, n_resamples=0).auc == (0 + 0.5 + 0 + 0 + 1) / 5


def test_several_group_files_are_an_intersection(files, tmp_path):
    paths = files()
    more = tmp_path / "ages"
    more.write_text("a young\nb old\nc young\n")
    judged = read_trec(*paths[:2], [paths[2], more])
    assert judged.queries.groups == ("men × old", "men × young", "women × young")
    assert judged.queries.n_missing == 1


def test_compressed_files_are_read(files):
    want = told(read_trec(*files()))
    paths = files()
    for path in paths:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert told(read_trec(*paths)) == want


def test_groups_may_hold_blanks_and_repeat(tmp_path):
    path = tmp_path / "groups"
    path.write_text("\ufeffa\tover 50\nb  under 50 \n\na\tover 50\r\n")
    assert read_groups(path) == {"a": "over 50", "b": "under 50"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"run": ""}, "has no lines"),
        ({"qrels": "\n\n"}, "has no lines"),
        ({"groups": ""}, "has no lines"),
        ({"run": "1 Q0 a 1 3.5\n"}, "line 1: it has 5 words, but a run has topic Q0"),
        ({"run": RUN + "1 Q0 a 9 1 tag\n"}, "line 6: the document 'a' is repeated in its topic"),
        ({"run": "1 Q0 a 1 high tag\n"}, "the score 'high' is not a finite number"),
        ({"run": "1 Q0 a 1 nan tag\n"}, "is not a finite number"),
        ({"run": "1 Q0 a 1 1_0 tag\n"}, "is not a finite number"),
        ({"qrels": "1 0 a\n"}, "line 1: it has 3 words, but qrels have"),
        ({"qrels": "1 0 a 1\n1 0 a 2\n"}, "'a' already has another judgement"),
        ({"qrels": "9 0 a 1\n"}, "have no topic in common: the run has '1'"),
        ({"groups": "a\n"}, "it must have a document and its group"),
        ({"groups": "a x\na y\n"}, "'a' already has another group"),
        ({"groups": "z x\n"}, "None of the 6 documents, such as 'a', is in"),
    ],
)
def test_what_is_wrong(files, changed, message):
    with pytest.raises(InputError, match=message):
        read_trec(*files(**changed))


def test_ways_to_treat_documents_are_checked(files):
    with pytest.raises(InputError, match=r"unjudged must be one of .*got 'drop'"):
        read_trec(*files(), unjudged="drop")
