"""Parquet files larger than the memory that a process is allowed; cost against rows.

python -m benchmarks.larger_than_memory FOLDER ENGINE BYTES    one measured process
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.tools import markdown

TITLE = "Data larger than memory: Parquet files, read in blocks"
ALLOWED = 2**30  # bytes
FEATURES = 700  # as many as the data of Yahoo's challenge have
ROWS = 4 * ALLOWED // (8 * FEATURES) // 120 * 120
N_TREES = 10
SETTINGS = {  # of the environment, for processes that have little memory
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own reserves a gigabyte before it is needed
    "MALLOC_MMAP_THRESHOLD_": str(2**16),  # larger arrays go back to the system when freed
    "MALLOC_ARENA_MAX": "1",  # each keeps what small arrays left
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # for time, not memory
}
STACK = 2**21  # bytes of each thread's, which are reserved whole
COLUMNS = dict(y="y", qid="qid", sensitive_features="group")
COST = {"linear": (10**5, 10**6, 10**7), "lightgbm": (10**5, 10**6), "xgboost": (10**5, 10**6)}


def run():
    return "\n\n".join([memory(), cost()])


# --- memory --------------------------------------------------------------------------------------


def memory():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        size = write(folder, ROWS, FEATURES)
        for engine in ("linear", "xgboost", "lightgbm"):
            results = measured(folder, engine, ALLOWED)
            rows.append(
                [
                    engine,
                    *(f"{results[step]:.0f}" for step in ("read", "fit", "predict", "audit")),
                    results["passes"], f"{results['peak'] / 2**20:.0f}",
                    f"{results['before']:.4f}" if engine == "linear" else "–",
                    f"{results['after']:.4f}", f"{results['auc']:.4f}",
                ]
            )  # fmt: skip
    header = [
        "ranker", "read s", "fit s", "predict s", "audit s", "passes over the files",
        "peak resident MB", "violation, plain, training", "violation, test", "AUC, test",
    ]  # fmt: skip
    settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    note = (
        f"{ROWS:,} rows × {FEATURES} features in float64: {ROWS * FEATURES * 8 / 2**30:.2f} GiB of "
        f"features in {size / 2**30:.2f} GiB of files, with row groups of 8,000 rows that cut "
        f"queries; {ROWS // 120:,} queries of 120 items, a fifth of them held out. Each line is a "
        f"separate process that may allocate {ALLOWED / 2**30:.2f} GiB (RLIMIT_DATA: heap and "
        "private memory, whichever library takes it, reserved stacks too; not the code of "
        "libraries, which the peak of resident memory counts, nor the system's cache of files). "
        "It reads, trains FairRanker (statistical parity, tolerance 0.01), predicts the held-out "
        f"rows and audits them. Linear: to convergence. Boosters: {N_TREES} trees, λ moving "
        "between them; the violation before is that of the plain ranker, which they do not train. "
        "XGBoost has its bins on disk, found from 23,967 rows, and its own settings. LightGBM has "
        "its bins in memory, a byte an entry, once and not by row as well (force_col_wise=True), "
        "found from 20,000 rows (subsample_for_bin). The environment, so that what is freed goes "
        f"back to the system and nothing is reserved: `{settings}`, and stacks of "
        f"{STACK // 2**20} MiB (`ulimit -s {STACK // 2**10}`)."
    )
    return "**Memory**\n\n" + markdown(header, rows) + "\n\n" + note


def measured(folder, engine, allowed):
    """Return the measurements of a separate process."""
    command = [sys.executable, "-m", "benchmarks.larger_than_memory", folder, engine, str(allowed)]
    command = ["sh", "-c", f'ulimit -s {STACK // 2**10} && exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SETTINGS})
    if done.returncode:
        sys.exit(f"{engine} ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def child(folder, engine, allowed):
    """Read, train, predict and audit with no more memory than allowed."""
    if allowed:
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    from pairity import FairRanker, audit
    from pairity.data import read_parquet
    from pairity.data.parquet_features import ParquetFeatures

    results = {"passes": 0}
    plain = ParquetFeatures.blocks

    def counted(self, cuts=None):
        results["passes"] += 1
        yield from plain(self, cuts)

    ParquetFeatures.blocks = counted
    clock = time.perf_counter()

    def lap(name):
        nonlocal clock
        results[name], clock = time.perf_counter() - clock, time.perf_counter()

    queries = read_parquet(folder, **COLUMNS)
    train, test = queries.split(0.2, random_state=0)
    del queries
    lap("read")
    model = FairRanker(ranker(engine), "statistical", tolerance=0.01, progress=False)
    model.fit(**train)
    lap("fit")
    scores = model.predict(test.X)
    lap("predict")
    result = audit(test, scores)
    lap("audit")
    results |= {
        "before": model.history_[0].violation,
        "after": result.violation["statistical"],
        "auc": result.auc,
        "rounds": len(model.history_),
        "peak": peak(),
    }
    print(json.dumps(results))


def ranker(engine):
    if engine == "linear":
        from pairity import LinearRanker

        return LinearRanker()
    if engine == "xgboost":
        from xgboost import XGBRanker

        return XGBRanker(n_estimators=N_TREES, n_jobs=2)
    from lightgbm import LGBMRanker

    settings = dict(subsample_for_bin=20_000, force_col_wise=True)
    return LGBMRanker(n_estimators=N_TREES, n_jobs=2, verbose=-1, **settings)


def peak():
    """The most resident memory so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# --- cost ----------------------------------------------------------------------------------------


def cost():
    import numpy as np

    sizes = COST["linear"]
    seconds = {engine: [] for engine in COST}
    with tempfile.TemporaryDirectory() as folder:
        for size in (12_000, *sizes):  # the first compiles, and is not counted
            place = Path(folder, str(size))
            place.mkdir()
            write(place, size, 20)
            for engine in COST:
                if size in COST[engine]:
                    seconds[engine].append(min(timed(place, engine) for _ in range(2)))
                elif size < sizes[0]:
                    timed(place, engine)
    rows = []
    for engine, taken in seconds.items():
        slope = np.polyfit(np.log(COST[engine]), np.log(taken), 1)[0]
        shown = [f"{each:.2f}" for each in taken] + ["–"] * (len(sizes) - len(taken))
        rows.append([engine, *shown, f"{slope:.3f}"])
    header = ["s for rows", *(f"{size:,}" for size in sizes), "log-log slope"]
    note = (
        "20 features in float64, 120 items a query; from the files to the plain model, the better "
        f"of two. Linear to convergence; boosters {N_TREES} trees, read in blocks and binned."
    )
    return "**Cost against rows**\n\n" + markdown(header, rows) + "\n\n" + note


def timed(folder, engine):
    from pairity.data import read_parquet
    from pairity.rankers.adapters import as_ranker

    began = time.perf_counter()
    queries = read_parquet(folder, **COLUMNS)
    as_ranker(ranker(engine)).fit(queries.X, queries.y, qid=queries["qid"])
    return time.perf_counter() - began


# --- data ----------------------------------------------------------------------------------------


def write(folder, n_rows, n_features, row_group_size=8_000):
    """A biased table of so many rows, in files of at most 25 row groups; their size in bytes."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    n_rows = n_rows // 120 * 120
    coef = rng.normal(size=n_features) / np.sqrt(n_features)
    coef[0] = 0.1  # tells the group, and a little of the merit
    names = [f"f{k}" for k in range(n_features)]
    writer, at, limit = None, 0, None
    while at < n_rows:
        if at % (25 * row_group_size) == 0 and writer is not None:
            writer.close()
            writer = None
        n = min(row_group_size, n_rows - at)
        group = rng.integers(0, 2, n)
        X = rng.normal(size=(n_features, n))
        X[0] += 1.5 * (0.5 - group)
        latent = coef @ X + 0.7 * (0.5 - group) + rng.normal(size=n)
        limit = np.quantile(latent, 0.85) if limit is None else limit
        columns = dict(zip(names, X, strict=True))
        columns |= {
            "y": (latent > limit).astype(np.int8),
            "qid": (at + np.arange(n)) // 120,
            "group": pa.array(np.array(["a", "b"])[group]).dictionary_encode(),
        }
        table = pa.table(columns)
        if writer is None:
            place = Path(folder, f"part-{at:012d}.parquet")
            writer = parquet.ParquetWriter(place, table.schema, use_dictionary=["group"])
        writer.write_table(table)
        at += n
    writer.close()
    return sum(file.stat().st_size for file in Path(folder).iterdir())


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
