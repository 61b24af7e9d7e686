"""Run benchmarks and write what they print to benchmarks/RESULTS.md, section by section.

The sections that the README shows are renewed there too.

make benchmark                 everything (half an hour, on an otherwise idle machine)
python -m benchmarks kernel    one of them; its section is replaced
"""

import platform
import re
import sys
from pathlib import Path

import numba
import numpy as np

from benchmarks import (
    baselines,
    boosting,
    cost,
    distributed,
    exposure,
    fair,
    kernel,
    lagrangian,
    lambdarank,
    larger_than_memory,
    letor,
    linear,
    long_list,
    reach,
    scaling,
    schedules,
    startup,
    trees,
)
from pairity._utils.threads import n_threads

ALL = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        kernel,
        long_list,
        linear,
        fair,
        cost,
        reach,
        scaling,
        startup,
        letor,
        larger_than_memory,
        trees,
        boosting,
        schedules,
        exposure,
        lagrangian,
        lambdarank,
        baselines,
        distributed,
    )
}


def main() -> None:
    chosen = sys.argv[1:]
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}. Choose from {', '.join(ALL)}.")
    head = (
        "# Benchmarks\n\nPrinted by `make benchmark`. Every ratio is of two times taken in the "
        f"same run on the same data.\n\n{n_threads()} threads, {platform.machine()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}.\n"
    )
    page = Path(__file__).with_name("RESULTS.md")
    parts = dict(re.findall(r"^(## .*?)\n\n(.*?)(?=\n## |\Z)", page.read_text(), re.M | re.S))
    for name in chosen or ALL:
        title, body = f"## {ALL[name].TITLE}", ALL[name].run() + "\n"
        print(f"{title}\n\n{body}", flush=True)
        parts[title] = body
    titles = [f"## {module.TITLE}" for module in ALL.values()]
    sections = [f"{title}\n\n{parts[title]}" for title in titles if title in parts]
    page.write_text("\n".join([head, *sections]))
    _renew_readme(parts)


def _renew_readme(parts: dict[str, str]) -> None:
    """A section stands in the README under its title in bold, up to the next title."""
    page = Path(__file__).parents[1] / "README.md"
    text = page.read_text()
    for title, body in parts.items():
        bold = re.escape(f"**{title.removeprefix('## ')}**")
        text = re.sub(
            rf"^({bold}\n\n).*?(?=^\*\*|^## )",
            lambda found, body=body: f"{found[1]}{body}\n",
            text,
            flags=re.M | re.S,
        )
    page.write_text(text)


if __name__ == "__main__":
    main()
