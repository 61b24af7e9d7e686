"""The files that the examples of the README and of --help name, small, and commands from text."""

import csv
import gzip
import re
import shlex

import numpy as np

from pairity.datasets import make_biased_ranking


def write_files(folder):
    """Tables, LETOR and TREC files with the columns and names that the examples have."""
    data = make_biased_ranking(60, 16, strength=2, separation=2, random_state=0)
    rng = np.random.default_rng(0)
    ages = rng.integers(18, 66, len(data.y)).tolist()
    groups = ["men" if name == "group 1" else "women" for name in data.sensitive_features]
    header = ["search_id", "age", "experience", "grades", "score", "gender", "hired"]
    features = data.X[:, :3].tolist()
    rows = [
        [f"s{q}", age, *x, group, int(y)]
        for q, age, x, group, y in zip(data.qid, ages, features, groups, data.y, strict=True)
    ]
    for name in ("jobs.csv", "new.csv", "ranked.csv"):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    lines = [
        f"{row[-1]} qid:{q} 1:{row[2]!r} 2:{row[3]!r} 3:{row[1]}\n"
        for q, row in zip(data.qid, rows, strict=True)
    ]
    (folder / "web.svm").write_text("".join(lines))
    run, qrels, named = [], [], []
    for at, (q, row) in enumerate(zip(data.qid, rows, strict=True)):
        if at % 7:
            run.append(f"{q} Q0 doc{at} 0 {row[2]!r} tag\n")
        if at % 5:
            qrels.append(f"{q} 0 doc{at} {row[-1]}\n")
        named.append(f"doc{at}\t{row[-2]}\n")
    (folder / "run.txt").write_text("".join(run))
    (folder / "qrels.txt").write_text("".join(qrels))
    (folder / "groups.txt").write_text("".join(named))
    (folder / "run.txt.gz").write_bytes(gzip.compress("".join(run).encode()))
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return
    table = pa.table(dict(zip(header, map(list, zip(*rows, strict=True)), strict=True)))
    for name in ("new.parquet", "ranked.parquet"):
        parquet.write_table(table, folder / name)


def commands_in(text):
    """The commands of a text, each as words; continued lines joined, remarks dropped."""
    joined = re.sub(r"\\\n\s*", "", text)
    for line in joined.splitlines():
        found = re.match(r"\s*(?:\$ )?(pairity .*)", line)
        if found:
            yield shlex.split(re.split(r"\s{3,}", found.group(1))[0])
