"""The architecture: which names ``src/pairity`` has, and which of them may import which."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "pairity"

# A module imports only from its own package and from names above it in this list.
ORDER = [
    "exceptions",
    "_utils",
    "data",
    "pairs",
    "constraints",
    "metrics",
    "rankers",
    "reweighting",
    "audits",
    "baselines",
    "comparisons",
    "reports",
    "datasets",
    "testing",
    "paper",
    "cli",
]


def test_the_listing_shows_the_architecture():
    names = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in names if not name.startswith("__")} == set(ORDER)


def imported(path):
    """The top-level names of pairity that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            package, _, rest = module.partition(".")
            name = rest.partition(".")[0]
            if package == "pairity" and name in ORDER:
                yield name


@pytest.mark.parametrize("name", ORDER)
def test_imports_go_upwards_in_the_list(name):
    top = SOURCE / name
    paths = sorted(top.rglob("*.py")) if top.is_dir() else [top.with_suffix(".py")]
    allowed = set(ORDER[: ORDER.index(name) + 1])
    wrong = {
        f"{path.relative_to(SOURCE)} imports {other}"
        for path in paths
        for other in imported(path)
        if other not in allowed
    }
    assert not wrong


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
    assert dir(pairity) == pairity.__all__
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


def test_the_page_describes_every_package_in_order():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 120
    described = re.findall(r"^- \*\*(\w+)\*\*", text.split("## Where to plug in")[0], re.MULTILINE)
    assert described == ORDER


LONGEST_MODULE, LONGEST_KERNEL_MODULE, LONGEST_FUNCTION, MOST_PARAMETERS = 500, 600, 60, 8


def n_code_lines(function, lines):
    """Lines of a function without its docstring, comments and blank lines."""
    docstring = range(0)
    if ast.get_docstring(function) is not None:
        docstring = range(function.body[0].lineno, function.body[0].end_lineno + 1)
    return sum(
        bool(lines[number - 1].strip()) and not lines[number - 1].strip().startswith("#")
        for number in range(function.lineno, function.end_lineno + 1)
        if number not in docstring
    )


def is_estimator(node):
    return isinstance(node, ast.ClassDef) and node.name.endswith("Ranker")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_modules_functions_and_signatures_are_short(path):
    lines = path.read_text().splitlines()
    name = str(path.relative_to(SOURCE))
    if "kernel" in name:
        assert len(lines) <= LONGEST_KERNEL_MODULE
        return
    assert len(lines) <= LONGEST_MODULE
    tree = ast.parse("\n".join(lines))
    methods = {node for top in tree.body if is_estimator(top) for node in ast.walk(top)}
    wrong = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        label = f"{name}:{node.name}"
        parameters = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
        n_parameters = len(parameters - {"self", "cls"})
        if n_code_lines(node, lines) > LONGEST_FUNCTION:
            wrong.append(f"{label} has {n_code_lines(node, lines)} lines")
        if n_parameters > MOST_PARAMETERS and node not in methods:
            wrong.append(f"{label} has {n_parameters} parameters")
    assert not wrong
