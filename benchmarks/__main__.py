"""Run every benchmark and write what it prints to benchmarks/RESULTS.md.

make benchmark                 everything (some minutes, on an otherwise idle machine)
python -m benchmarks kernel    one of them, printed only
"""

import platform
import sys
from pathlib import Path

import numba
import numpy as np

from benchmarks import fair, kernel, linear, long_list, scaling, startup
from pairity.threads import n_threads

ALL = {
    module.__name__.rpartition(".")[2]: module
    for module in (kernel, long_list, linear, fair, scaling, startup)
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
    parts = [head]
    for name in chosen or ALL:
        part = f"## {ALL[name].TITLE}\n\n{ALL[name].run()}\n"
        print(part, flush=True)
        parts.append(part)
    if not chosen:
        Path(__file__).with_name("RESULTS.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
