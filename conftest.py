"""Doctests of modules whose engine is not installed are left out."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/pairity/rankers/torch.py"]
