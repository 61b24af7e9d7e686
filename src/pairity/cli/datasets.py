"""List, describe and download public data sets.

List the data sets that pairity knows, describe one, or download its files.

  pairity datasets
  pairity datasets describe trec_w3c
  pairity datasets fetch trec_w3c --data data
  pairity datasets --format json

Files are looked for in --data or in the folder that PAIRITY_DATA names, and then in the user's
cache. A downloaded file goes to --data or to the cache, and is kept only if its SHA-256 is right.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairity.cli import options
from pairity.cli.output import show_or_json
from pairity.exceptions import InputError

if TYPE_CHECKING:
    from pairity.datasets.catalogue import DataSet


def add_to(parser: Any) -> None:
    """Declare the options."""
    actions = ("list", "describe", "fetch")
    options.add(parser, "action", "", nargs="?", choices=actions, default="list")
    parser.add_argument("name", metavar="NAME", nargs="?")
    options.add(parser, "--data DIR", "the folder of the files")
    options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """List, describe or fetch."""
    from pairity.datasets.catalogue import CATALOGUE, find_data_set

    if (args.action == "list") != (args.name is None):
        need = "takes no NAME" if args.name else f"needs a NAME: one of {', '.join(CATALOGUE)}"
        raise InputError(f"`pairity datasets {args.action}` {need}.")
    if args.action == "list":
        _list(list(CATALOGUE.values()), args)
        return 0
    data_set = find_data_set(args.name)
    if args.action == "fetch":
        if args.data is not None:
            Path(args.data).expanduser().mkdir(parents=True, exist_ok=True)
        data_set.fetch(args.data, options.progress_setting(args))
    _describe(data_set, args)
    return 0


def _list(data_sets: list[DataSet], args: argparse.Namespace) -> None:
    from pairity._utils.text import render_table

    header = ["name", "files", "size", "groups", "licence"]
    rows = [
        [entry.name, _state(entry, args.data), entry.size, entry.groups,
         entry.licence.split(";")[0]]
        for entry in data_sets
    ]  # fmt: skip
    show_or_json(
        args,
        [data_set.to_dict(args.data) for data_set in data_sets],
        lambda: render_table(header, rows, left=range(len(header))),
        "\nFor details: pairity datasets describe NAME",
    )


def _describe(data_set: DataSet, args: argparse.Namespace) -> None:
    entries = data_set.to_dict(args.data)
    keys = ("size", "groups", "labels", "licence", "load", "get")
    lines = [f"{data_set.name}: {data_set.title}\n"]
    lines += [f"{key:10}{entries[key]}" for key in keys if entries[key]]
    for file in entries["files"]:
        lines += [
            f"{'file':10}{file['path'] or file['name'] + ' (not on this machine)'}",
            f"{'from':10}{file['url'] or 'not published as one file'}",
            f"{'sha256':10}{file['sha256']} (uncompressed)",
        ]
    show_or_json(args, entries, *lines)


def _state(data_set: DataSet, data_home: str | None) -> str:
    places = data_set.places(data_home)
    if not places:
        return "none"
    n_found = sum(path is not None for path in places.values())
    if n_found == len(places):
        return "here"
    return f"{n_found} of {len(places)} here" if n_found else "to fetch"
