"""What a return would have been on recorded runs, without moving anything: to try a metric before tuning with it.

    ./crbo score BAG [BAG ...] --return my.yaml

BAG is an .mcap file or a bag's folder (ros2 bag record -s mcap). FILE has signals, terms and limits at its top or below
`return`, as in docs/RETURNS.md.
"""

from __future__ import annotations

import argparse
import json
import sys

from crbo_ros.bag import read_bag
from crbo_ros.errors import InvalidInput
from crbo_ros.returns.definition import ReturnDefinition, Scored, read_definition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="+", metavar="BAG", help="an .mcap file, or a bag's folder")
    parser.add_argument("--return", dest="definition", required=True, metavar="FILE", help="the return's YAML file")
    parser.add_argument("--json", action="store_true", help="one JSON object a bag instead")


def run(args: argparse.Namespace) -> int:
    definition, failed = read_definition(args.definition), 0
    for bag in args.bags:
        try:
            scored = score(bag, definition)
        except InvalidInput as error:  # the other bags are scored all the same
            print(f"crbo: {error}", file=sys.stderr)
            failed = 1
            continue
        if args.json:
            terms = [{"term": t.label, "value": t.value, "unit": t.unit, "weight": t.weight} for t in scored.terms]
            found = {"bag": bag, "return": scored.value, "terms": terms, "violations": list(scored.violations)}
            print(json.dumps(found))
        else:
            print("\n".join(lines(bag, scored)))
    return failed


def score(bag: str, definition: ReturnDefinition) -> Scored:
    """InvalidInput says what the bag lacks."""
    log, kinds = read_bag(bag, definition.topics)
    there = ", ".join(f"{topic} ({kind})" for topic, kind in sorted(kinds.items())) or "no topic at all"
    for topic, kind in definition.topics.items():
        if topic not in kinds:
            raise InvalidInput(f"{bag}: has no topic {topic}; there is: {there}")
        if kinds[topic] != kind:
            raise InvalidInput(f"{bag}: {topic} is of the type {kinds[topic] or 'unknown'}, not {kind} as defined")
    try:
        return definition.score(log)
    except InvalidInput as error:
        raise InvalidInput(f"{bag}: {error}") from None


def lines(bag: str, scored: Scored) -> list[str]:
    """The return with its terms, in columns."""
    width = max(len(term.label) for term in scored.terms)
    unit = max(len(term.unit) for term in scored.terms)
    shown = [f"{bag}: return {scored.value:.6g}"]
    shown += [
        f"  {term.label:{width}}  {term.value:>12.5g} {term.unit:{unit}}  x {term.weight:<8g} = {term.part:.6g}"
        for term in scored.terms
    ]
    return shown + [f"  LIMIT {text}" for text in scored.violations]
