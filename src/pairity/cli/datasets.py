"""``pairity datasets``: which data sets there are, and their files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pairity.cli.options import add_command, add_output, shows_progress
from pairity.cli.output import print_json, say

if TYPE_CHECKING:
    from pairity.datasets.catalogue import DataSet

_EXAMPLES = """\
examples:
  pairity datasets
  pairity datasets describe trec_w3c
  pairity datasets fetch trec_w3c --data data
  pairity datasets --format json

Files are looked for in --data or in the folder that PAIRITY_DATA names, and then in the user's
cache. What is fetched goes to --data, or to the cache, and is kept only if its SHA-256 is right.
"""


def add_to(commands: Any) -> None:
    """Say the arguments."""
    parser = add_command(
        commands, "datasets",
        about="list, describe and fetch the data sets of the literature",
        says="The data sets that pairity knows: list them, describe one, fetch its files.",
        examples=_EXAMPLES,
    )  # fmt: skip
    parser.add_argument(
        "action", nargs="?", choices=("list", "describe", "fetch"), default="list",
        help="(default: list)",
    )  # fmt: skip
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("--data", metavar="DIR", help="where the files lie, or are to lie")
    add_output(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """List, describe or fetch."""
    from pathlib import Path

    from pairity.datasets.catalogue import CATALOGUE, find_data_set
    from pairity.exceptions import InputError

    if (given.action == "list") != (given.name is None):
        what = "takes no NAME" if given.name else f"needs a NAME: one of {', '.join(CATALOGUE)}"
        raise InputError(f"`pairity datasets {given.action}` {what}.")
    if given.action == "list":
        _list(list(CATALOGUE.values()), given)
        return 0
    found = find_data_set(given.name)
    if given.action == "fetch":
        if given.data is not None:
            Path(given.data).expanduser().mkdir(parents=True, exist_ok=True)
        found.fetch(given.data, shows_progress(given))
    _describe(found, given)
    return 0


def _list(sets: list[DataSet], given: argparse.Namespace) -> None:
    from pairity._utils.text import render_table

    if given.format == "json":
        print_json([each.to_dict(given.data) for each in sets])
        return
    rows = [
        [each.name, _state(each, given.data), each.size, each.groups, each.licence.split(";")[0]]
        for each in sets
    ]
    header = ["name", "files", "size", "groups", "licence"]
    if not given.quiet:
        say(
            lambda: render_table(header, rows, left=range(len(header))),
            "\nMore of one: pairity datasets describe NAME",
        )


def _describe(found: DataSet, given: argparse.Namespace) -> None:
    told = found.to_dict(given.data)
    if given.format == "json":
        print_json(told)
        return
    if given.quiet:
        return
    say(f"{found.name}: {found.title}\n")
    for word in ("size", "groups", "labels", "licence", "load", "get"):
        if told[word]:
            say(f"{word:10}{told[word]}")
    for file in told["files"]:
        say(f"{'file':10}{file['path'] or file['name'] + ' (not on this machine)'}")
        say(f"{'from':10}{file['url'] or 'not published as one file'}")
        say(f"{'sha256':10}{file['sha256']} (uncompressed)")


def _state(each: DataSet, data_home: str | None) -> str:
    places = each.places(data_home)
    if not places:
        return "none"
    here = sum(path is not None for path in places.values())
    if here == len(places):
        return "here"
    return f"{here} of {len(places)} here" if here else "to fetch"
