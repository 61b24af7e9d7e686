"""The loaders: on tiny files made by hand, and on the real ones where they are."""

import csv
import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from pairity.data import read_letor_arrays
from pairity.datasets import (
    MslrChoices,
    engineering_students,
    load_engineering_students,
    load_mslr,
    load_trec_w3c,
    mslr,
    trec_w3c,
)
from pairity.datasets import download as files
from pairity.datasets.download import find_data
from pairity.exceptions import DownloadError, InputError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A data folder, an empty cache beside it, and no network."""
    monkeypatch.delenv("PAIRITY_DATA", raising=False)
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(files, "BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def put(home, file, text, zipped=False):
    """Write a small file in the place of a real one, and return its description."""
    path = home / file.folder / (f"{file.name}.gz" if zipped else file.name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return replace(file, sha256=hashlib.sha256(text.encode()).hexdigest())


# --- TREC ----------------------------------------------------------------------------------------


@pytest.fixture
def trec(home, monkeypatch):
    """Topic 3: experts are the first three. Topic 12: nobody can tell."""
    genders = {3: "001011", 12: "000011"}
    lines = [
        f"{topic},{gender}.0,{topic},{at},0.5,-1,2,{1 - at / 200:.5f}"
        for topic, row in genders.items()
        for at, gender in enumerate(row)
    ]
    lines.append(lines[-1])
    monkeypatch.setattr(trec_w3c, "FILE", put(home, trec_w3c.FILE, "\n".join(lines) + "\n"))
    return home


def test_trec_labels(trec):
    data = load_trec_w3c(data_home=trec)
    queries = data.queries()
    assert queries.query_ids.tolist() == [3]
    assert queries.y.tolist() == [1, 1, 1, 0, 0, 0]
    assert data.queries("expert").y.tolist() == [1, 1, 1, 0, 0, 0]
    np.testing.assert_allclose(data.queries("order").y, 1 - np.arange(6) / 200)
    assert queries["sensitive_features"].tolist() == [
        "men",
        "men",
        "women",
        "men",
        "women",
        "women",
    ]
    assert queries.X.tolist()[1] == [3, 1, 0.5, -1, 2]
    assert queries.feature_names == ("f1", "f2", "f3", "f4", "f5")
    assert load_trec_w3c(label="order", data_home=trec).queries() == data.queries("order")
    assert data.cut.tolist() == [1]
    assert "trec_w3c" in repr(data)
    assert "expert" in repr(data)


def test_trec_all_topics(trec):
    data = load_trec_w3c(topics="all", group_as_feature=True, data_home=trec)
    assert data.queries().n_items == 13
    assert data.queries().X[2].tolist() == [1, 3, 2, 0.5, -1, 2]
    assert data.queries().feature_names[0] == "gender"
    assert data.cut.tolist() == [1, 2]
    train, test = data.fold(2)
    assert (train.query_ids.tolist(), test.query_ids.tolist()) == ([3], [12])
    once = load_trec_w3c(topics="all", drop_duplicates=True, data_home=trec).queries()
    assert once.n_items == 12
    with pytest.raises(InputError, match="48 topics"):
        load_trec_w3c(label="expert", topics="all", data_home=trec)
    with pytest.raises(InputError, match=r"one of 'above_median', 'order' \(got 'expert'\)"):
        data.queries("expert")
    with pytest.raises(InputError, match=r"no part 7\. Choose from 1, 2"):
        data.part(7)


def test_trec_as_the_paper_has_it(shared_data):
    data = load_trec_w3c(data_home=shared_data, download=False)
    queries = data.queries()
    assert (queries.n_queries, queries.n_items, queries.X.shape[1]) == (48, 9600, 5)
    assert set(np.bincount(queries.query)) == {200}
    assert queries.groups == ("men", "women")
    assert np.bincount(queries.group).tolist() == [8592, 1008]
    assert set(np.bincount(queries.query[queries.group == 1])) == {21}
    assert set(np.bincount(queries.query, queries.y)) == {100}
    expert = data.queries("expert")
    assert expert.y.sum() == 1090
    by_query = np.bincount(expert.query, expert.y)
    assert (by_query.min(), by_query.max(), round(by_query.mean(), 1)) == (2, 86, 22.7)
    rates = [round(100 * expert.y[expert.group == k].mean(), 1) for k in (0, 1)]
    assert rates == [11.0, 14.6]
    assert sorted(set(data.cut)) == [1, 2, 3, 4, 5, 6]
    train, test = data.fold(1)
    assert train.n_queries + test.n_queries == 48
    assert test.query_ids.max() == 10


def test_trec_experts_are_as_many_as_were_judged(shared_data):
    """Topics 1 to 10; 7's own counts do not add up, 2 and 5 have no female expert."""
    lines = (shared_data / "trec_w3c" / "qurels.csv").read_text().splitlines()
    judged = {at: int(row["num_experts"]) for at, row in enumerate(csv.DictReader(lines), 1)}
    expert = load_trec_w3c(label="expert", data_home=shared_data).queries()
    found = dict(
        zip(expert.query_ids.tolist(), np.bincount(expert.query, expert.y).tolist(), strict=True)
    )
    for topic in (1, 3, 4, 6, 8, 9, 10):
        assert found[topic] == judged[topic]


def test_trec_all_sixty(shared_data):
    data = load_trec_w3c(topics="all", data_home=shared_data)
    sizes = np.bincount(data.queries().query)
    assert data.queries().n_queries == 60
    assert sizes[42] == 390
    once = load_trec_w3c(topics="all", drop_duplicates=True, data_home=shared_data).queries()
    assert np.bincount(once.query)[42] == 210
    kept = set(load_trec_w3c(data_home=shared_data).queries().query_ids.tolist())
    assert set(range(1, 61)) - kept == {2, 5, 11, 16, 28, 29, 30, 43, 46, 49, 59, 60}


# --- Engineering Students ------------------------------------------------------------------------

STUDENTS = """entrance_year,{},psu_math,psu_lang,psu_science,gpa,score
1,{},1,2,3,4,0.5
1,{},1,2,3,5,-0.5
2,{},1,2,3,6,3
2,{},1,2,3,7,2
2,{},1,2,3,8,1
"""


@pytest.fixture
def students(home, monkeypatch):
    real = engineering_students.FILES
    small = {
        "gender": put(home, real["gender"], STUDENTS.format("gender", *"01010"), zipped=True),
        "school": put(home, real["school"], STUDENTS.format("highschool", *"00110")),
    }
    monkeypatch.setattr(engineering_students, "FILES", small)
    return home


def test_students(students):
    data = load_engineering_students(data_home=students)
    queries = data.queries()
    assert queries.y.tolist() == [1, 0, 1, 0, 0]
    assert queries["sensitive_features"].tolist() == ["men", "women", "men", "women", "men"]
    assert queries.X[1].tolist() == [1, 1, 2, 3, 5]
    assert queries.feature_names == ("gender", "psu_math", "psu_lang", "psu_science", "gpa")
    assert data.queries("score").y.tolist() == [0.5, -0.5, 3, 2, 1]
    train, test = data.fold(2)
    assert (train.n_items, test.n_items) == (2, 3)


def test_students_median_of_all_years(students):
    data = load_engineering_students(median="all", data_home=students)
    assert data.queries().y.tolist() == [0, 0, 1, 1, 0]


def test_students_by_school_and_by_both(students):
    school = load_engineering_students(protected="school", data_home=students).queries()
    assert school["sensitive_features"].tolist() == [
        "private", "private", "public", "public", "private",
    ]  # fmt: skip
    assert school.feature_names[0] == "highschool"
    both = load_engineering_students(protected="both", data_home=students).queries()
    assert both["sensitive_features"].tolist()[2] == "men × public"
    assert both.X[1].tolist() == [1, 0, 1, 2, 3, 5]
    without = load_engineering_students(
        protected="both", group_as_feature=False, data_home=students
    ).queries()
    assert without.X.shape[1] == 4


def test_students_whose_files_differ(students, home, monkeypatch):
    other = STUDENTS.replace("1,2,3,8,1", "1,2,3,9,1").format("highschool", *"00110")
    small = engineering_students.FILES
    monkeypatch.setitem(small, "school", put(home, small["school"], other))
    with pytest.raises(InputError, match="same students"):
        load_engineering_students(protected="both", data_home=students)


def test_students_as_the_paper_has_them(shared_data):
    data = load_engineering_students(data_home=shared_data, download=False)
    queries = data.queries()
    assert (queries.n_queries, queries.n_items, queries.X.shape[1]) == (5, 2403, 5)
    assert np.bincount(queries.query).tolist() == [481, 499, 462, 441, 520]
    women = np.bincount(queries.query, queries.group) / np.bincount(queries.query)
    assert (100 * women).round(1).tolist() == [13.9, 17.6, 22.7, 19.5, 27.3]
    assert np.bincount(queries.group).tolist() == [2403 - 488, 488]
    above = [round(100 * queries.y[queries.group == k].mean(), 1) for k in (0, 1)]
    assert above == [52.7, 35.7]
    assert data.cut.tolist() == [1, 2, 3, 4, 5]
    both = load_engineering_students(protected="both", data_home=shared_data).queries()
    assert dict(zip(both.groups, np.bincount(both.group).tolist(), strict=True)) == {
        "men × private": 1254, "men × public": 661, "women × private": 311, "women × public": 177,
    }  # fmt: skip


# --- MSLR ----------------------------------------------------------------------------------------


def page(grade, qid, **features):
    values = {int(name[1:]): value for name, value in features.items()}
    return f"{grade} qid:{qid} " + " ".join(f"{k}:{values.get(k, 0)}" for k in range(1, 137)) + "\n"


PARTS = {
    "train": "".join(
        page(g, 1, f11=at, f128=-at, f133=at, f1=at) for at, g in enumerate([0, 2, 3])
    ),
    "vali": "".join(page(g, 2, f11=7, f133=at) for at, g in enumerate([0, 4])),
    "test": "".join(page(g, 5, f1=10, f133=9) for g in [1, 2]),
}


@pytest.fixture
def web(home):
    folder = home / "MSLR-WEB10K" / "Fold1"
    folder.mkdir(parents=True)
    for part, text in PARTS.items():
        if part == "vali":
            (folder / "vali.txt.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{part}.txt").write_text(text)
    return home


def test_mslr_folders(web):
    data = load_mslr(choices=MslrChoices(groups=2, transform=None), data_home=web)
    queries = data.queries()
    assert queries.X.shape == (7, 135)
    assert queries.query_ids.tolist() == [1, 2, 5]
    assert queries.y.tolist() == [0, 1, 1, 0, 1, 0, 1]
    assert data.queries("grade").y.tolist() == [0, 2, 3, 0, 4, 1, 2]
    assert data.cut.tolist() == ["train", "vali", "test"]
    assert data.part("vali").query_ids.tolist() == [2]
    assert "feature 133" not in queries.feature_names
    assert queries.feature_names[-4:] == (
        "feature 132",
        "feature 134",
        "feature 135",
        "feature 136",
    )
    assert queries.X[:, 0].tolist() == [0, 1, 2, 0, 0, 10, 10]
    assert queries.groups == ("≤ 1", "> 1")
    for place in (web / "MSLR-WEB10K", web):
        assert (
            load_mslr(choices=MslrChoices(groups=2, transform=None), data_home=place).queries()
            == queries
        )


def test_mslr_by_the_environment(web, monkeypatch):
    monkeypatch.setenv("PAIRITY_DATA", str(web))
    assert load_mslr(choices=MslrChoices(groups=2)).queries().n_items == 7
    with pytest.raises(InputError, match=r"MSLR-WEB30K.*Microsoft"):
        load_mslr("web30k")
    with pytest.raises(InputError, match="no folder Fold2"):
        load_mslr(fold=2)


def test_mslr_choices(web):
    yadav = load_mslr(choices=MslrChoices(relevant_from=3, groups=(0.4,)), data_home=web).queries()
    assert yadav.y.tolist() == [0, 0, 1, 0, 1, 0, 0]
    assert yadav.groups == ("≤ 1", "> 1")
    seen = load_mslr(
        choices=MslrChoices(group_as_feature=True, transform=None, groups=2), data_home=web
    ).queries()
    assert seen.X[:, 132].tolist() == [0, 1, 2, 0, 1, 9, 9]
    some = load_mslr(choices=MslrChoices(at_least=1, of_grade=3, groups=2), data_home=web).queries()
    assert some.query_ids.tolist() == [1, 2]
    parts = load_mslr(choices=MslrChoices(groups=2), parts=["vali", "train"], data_home=web)
    assert parts.cut.tolist() == ["train", "vali"]


def test_mslr_features_are_prepared(web):
    """By the three pages of train: x = log(1 + |0|, 1, 2), less the median, by the 5-95 % range."""
    logs = np.log1p([0, 1, 2, 7, 7, 0, 0])
    only = load_mslr(choices=MslrChoices(transform="log", groups=2), data_home=web).queries().X
    np.testing.assert_allclose(only[:, 10], logs)
    np.testing.assert_allclose(only[:, 127], np.log1p([0, 1, 2, 0, 0, 0, 0]))
    np.testing.assert_array_equal(only[:, 0], [0, 1, 2, 0, 0, 10, 10])
    X = load_mslr(choices=MslrChoices(groups=2), data_home=web).queries().X
    low, high = np.percentile(logs[:3], [5, 95])
    np.testing.assert_allclose(X[:, 10], (logs - np.log(2)) / (high - low))
    np.testing.assert_allclose(X[:, 0], (np.array([0, 1, 2, 0, 0, 10, 10]) - 1) / 1.8)
    assert (X[:, 50] == 0).all()
    whole = load_mslr(choices=MslrChoices(groups=2, scale_by="all"), data_home=web).queries().X
    low, high = np.percentile(logs, [5, 95])
    np.testing.assert_allclose(whole[:, 10], (logs - np.median(logs)) / (high - low))
    with pytest.raises(InputError, match="scale_by='all'"):
        load_mslr(choices=MslrChoices(groups=2), parts="test", data_home=web)


def test_mslr_broken_folders(web):
    folder = web / "MSLR-WEB10K" / "Fold1"
    (folder / "test.txt").write_text(PARTS["test"].removesuffix(" 135:0 136:0\n"))
    with pytest.raises(InputError, match=r"test\.txt, line 2: .* truncated"):
        load_mslr(choices=MslrChoices(groups=2), data_home=web)
    (folder / "test.txt").write_text(PARTS["train"])
    with pytest.raises(InputError, match="query 1 is in"):
        load_mslr(choices=MslrChoices(groups=2), data_home=web)
    (folder / "test.txt").write_text(page(1, 5, f12=-3))
    with pytest.raises(InputError, match="Feature 12 has negative"):
        load_mslr(choices=MslrChoices(groups=2), data_home=web)
    (folder / "test.txt").unlink()
    with pytest.raises(InputError, match=r"test\.txt does not exist"):
        load_mslr(choices=MslrChoices(groups=2), data_home=web)


def test_mslr_excerpt(home, monkeypatch):
    small = {part: put(home, file, PARTS[part]) for part, file in mslr.EXCERPT.items()}
    monkeypatch.setattr(mslr, "EXCERPT", small)
    data = load_mslr("excerpt", MslrChoices(groups=2), data_home=home)
    assert data.cut.tolist() == ["train", "test"]
    (home / "mslr" / small["test"].name).unlink()
    with pytest.raises(DownloadError, match="rankeval"):
        load_mslr("excerpt", MslrChoices(groups=2), data_home=home)
    with pytest.raises(InputError, match="'vali'"):
        load_mslr("excerpt", parts=["vali"], data_home=home)
    with pytest.raises(DownloadError, match="not published as one file"):
        load_mslr("sample", data_home=home)


def test_mslr_sample(shared_data):
    data = load_mslr("sample", data_home=shared_data, download=False)
    queries = data.queries()
    assert (queries.n_queries, queries.n_items, queries.X.shape[1]) == (182, 19_771, 135)
    sizes = np.bincount(queries.query)
    assert (sizes.min(), sizes.max(), round(sizes.mean(), 1)) == (6, 337, 108.6)
    grades = data.queries("grade").y
    assert np.bincount(grades.astype(int)).tolist() == [10_875, 5_905, 2_568, 305, 118]
    assert queries.y.mean().round(3) == 0.151
    assert queries.groups == ("≤ 3", "> 3 to 5", "> 5 to 10", "> 10 to 29", "> 29")
    assert np.bincount(queries.group).tolist() == [5052, 3702, 3542, 3541, 3934]
    shares = [100 * (grades[queries.group == k] >= 3).mean() for k in range(5)]
    np.testing.assert_allclose(shares, [2.7, 2.2, 2.3, 2.0, 1.4], atol=0.06)
    counts = [data.part(part).n_queries for part in ("train", "vali", "test")]
    assert counts == [85, 18, 79]
    assert np.isfinite(queries.X).all()


def test_mslr_sample_is_read_exactly(shared_data):
    path = find_data(mslr.SAMPLE, shared_data, download=False)
    X, y, qid = load_svmlight_file(str(path), query_id=True)
    ours = read_letor_arrays(path, n_features=136, complete=True)
    np.testing.assert_array_equal(ours.X.view(np.uint64), X.toarray().view(np.uint64))
    np.testing.assert_array_equal(ours.y, y)
    np.testing.assert_array_equal(ours.qid, qid)
    raw = load_mslr("sample", MslrChoices(transform=None), data_home=shared_data).queries()
    np.testing.assert_array_equal(raw.X, np.delete(ours.X, 132, axis=1))


def test_mslr_sample_chosen(shared_data):
    some = load_mslr(
        "sample",
        MslrChoices(at_least=3, complete_only=True, groups=(0.4,), transform=None),
        data_home=shared_data,
    ).queries()
    assert some.n_queries == round(0.305 * 174)
    assert round(some.n_items / some.n_queries) == 129
    yadav = load_mslr(
        "sample", MslrChoices(relevant_from=3, groups=(0.4,)), data_home=shared_data
    ).queries()
    assert yadav.groups == ("≤ 5", "> 5")
    both = sum(len(set(yadav.y[yadav.query == q])) == 2 for q in range(yadav.n_queries))
    assert both == 116


# --- all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "options", "fact"),
    [
        (load_trec_w3c, dict(label="score"), "must be one of 'above_median'.*got 'score'"),
        (load_trec_w3c, dict(topics=48), "topics must be one of .*got 48"),
        (load_engineering_students, dict(protected="age"), "'age'"),
        (load_engineering_students, dict(label="gpa"), "'gpa'"),
        (load_engineering_students, dict(median="query"), "'query'"),
        (load_mslr, dict(version="WEB"), "'WEB'"),
        (load_mslr, dict(fold=6), "fold must be one of .*got 6"),
        (load_mslr, dict(fold=True), "fold must be one of .*got True"),
        (load_mslr, dict(version="sample", fold=2), "has only fold 1"),
        (load_mslr, dict(label="click"), "'click'"),
        (MslrChoices, dict(transform="zscore"), "'zscore'"),
        (MslrChoices, dict(scale_by="test"), "'test'"),
        (MslrChoices, dict(protected=137), "protected must be from 1 to 136 .*got 137"),
        (load_mslr, dict(parts=["dev"]), r"\['dev'\]"),
        (load_mslr, dict(parts=[]), "parts must be some of"),
    ],
)
def test_bad_arguments(load, options, fact, home):
    with pytest.raises(InputError, match=fact):
        load(**options)


@pytest.mark.parametrize("load", [load_trec_w3c, load_engineering_students])
def test_offline_says_what_to_do(load, home):
    with pytest.raises(DownloadError, match=r"DELTR-Experiments @ 042e.*PAIRITY_DATA"):
        load()
