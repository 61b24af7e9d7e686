"""ARCHITECTURE.md tells the truth: the modules it lists, and who imports whom."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pairity"

LAYERS = [
    {"exceptions", "threads"},
    {"parquet_features"},
    {"columns", "text", "peers", "files"},
    {"groups", "layouts", "query_columns", "progress", "markup", "manifests"},
    {"queries", "model_folders", "pair_weights", "chebyshev.tables", "kernels"},
    {"digests", "held_out", "chebyshev.boxes", "chebyshev.visits", "counting", "loss_kernels"},
    {"chebyshev.sweeps", "hinge_kernels", "merge_kernels"},
    {"chebyshev.lists"},
    {"chebyshev"},
    {"metrics.positions"},
    {"pairs", "metrics.utility", "metrics.fairness"},
    {"losses"},
    {"distributed.clients", "distributed.partitions"},
    {"distributed.queries"},
    {"distributed.collections"},
    {"metrics", "constraints", "rankers.base", "rankers._estimators", "rankers._products"},
    {"distributed.rounds"},
    {"rankers._boosting", "rankers._linear_data", "rankers._streams", "rankers._torch_training"},
    {"solvers", "rankers.linear", "rankers.catboost", "figures", "exports"},
    {"rankers.lightgbm", "rankers.xgboost", "rankers.torch", "rankers.newton", "schedules"},
    {"audit_measures"},
    {"distributed.auditing"},
    {"rankers.adapters", "algorithm", "figure_tables", "frontier_plots"},
    {"datasets.letor_kernels", "datasets.synthetic", "datasets.files", "datasets.ranking_data"},
    {"datasets.letor", "datasets.parquet"},
    {"datasets.trec_w3c", "datasets.engineering_students", "datasets.mslr", "distributed.parquet"},
    {"distributed"},
    {"paths", "checkpoints", "datasets"},
    {"rankers", "fair_manifests", "audits"},
    {"fair_ranker"},
    {
        "methods",
        "model_files",
        "baselines.permutations",
        "baselines._linear",
        "baselines._hinged_lists",
        "evidence",
    },
    {"comparisons", "cautions", "observing"},
    {"demo", "runs", "baselines.item_weighting", "baselines.exposure"}
    | {"baselines.proxy_lagrangian", "baselines.regulariser", "reports.words", "merging"},
    {"baselines", "frontier_points", "testing.contracts", "reports.charts"},
    {"choices"},
    {"frontiers"},
    {"testing.parameters", "testing.ranker_subjects"},
    {"testing.rankers", "testing.methods", "gathering", "reports.pages"},
    {"testing", "reports"},
    {"sweeps"},
    {"tuning", "paper.protocol"},
    {"paper.claims", "paper.drawing", "paper.earlier"},
    {"paper.checks"},
    {"paper", "paper.reproduction"},
    {"cell_kernels", "trec", "datasets.catalogue"},
    {"text_tables"},
    {"tables"},
    {"contenders", "cli.clusters", "cli.inputs", "cli.engines", "cli.printing"},
    {"cli.auditing", "cli.training", "cli.predicting", "cli.weighing", "cli.sweeping"}
    | {"cli.listing", "cli.demonstrating", "cli.reporting", "cli.reproducing"},
    {"cli"},
    {"__main__"},
]
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, path


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pairity"):
            inside = node.module.removeprefix("pairity").removeprefix(".")
            for alias in node.names:
                whole = f"{inside}.{alias.name}".removeprefix(".")
                yield whole if whole in LEVEL else inside


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: str(value)[-30:])
def test_imports_go_downwards(name, path):
    assert name in LEVEL, f"{name} has no place in LAYERS and ARCHITECTURE.md"
    for other in imported(path):
        assert LEVEL[other] < LEVEL[name], f"{name} imports {other}"


def test_every_module_is_described():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    described = set(re.findall(r"^\| `([\w.]+)` \|", text, flags=re.MULTILINE))
    public = {name for name, _ in modules() if "._" not in name}
    parts = ("metrics.", "rankers", "chebyshev.")
    assert {name for name in public if not name.startswith(parts)} <= described
    assert described <= public


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, pairity; "
        "print({'numpy', 'numba', 'sklearn', 'scipy', 'rich', 'narwhals'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_public_names_are_sorted_and_load():
    import pairity

    assert pairity.__all__ == sorted(pairity.__all__)
    assert set(pairity.__all__) == set(pairity._HOME)
    for name in pairity.__all__:
        assert getattr(pairity, name).__name__ == name
    with pytest.raises(AttributeError, match="'nothing'"):
        pairity.nothing  # noqa: B018


def test_nothing_machine_specific_is_committed():
    done = subprocess.run(
        ["git", "-C", str(ROOT), "grep", "-nE", r"(^|[^[:alnum:]_.])/(work|root|tmp)/[a-z]"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == ""
