"""A recording (MCAP: `ros2 bag record -s mcap`, `crbo export --mcap`) as a log of messages. Needs no ROS."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from crbo_ros.errors import InvalidInput, MissingDependency

MARK = b"\x89MCAP0\r\n"
Log = dict[str, list[tuple[float, Any]]]  # topic -> (s, message)
Kinds = dict[str, str]  # topic -> type


def read_bag(path: str | Path, topics: Collection[str] = (), kind: str = "") -> tuple[Log, Kinds]:
    """The messages of the wanted topics, or of all topics of a type; and the types of all topics that are there.

    `path`: an .mcap file, or a bag's folder with some.
    """
    try:
        from mcap.exceptions import McapError
        from mcap.reader import make_reader
        from mcap_ros2.decoder import DecoderFactory
    except ImportError:
        raise MissingDependency("reading bags needs two packages: pip install mcap mcap-ros2-support") from None
    place = Path(path)
    files = sorted(place.glob("*.mcap")) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise InvalidInput(f"{path}: no .mcap file (ros2 bag record -s mcap writes one; ros2 bag convert makes one)")
    log: Log = {topic: [] for topic in topics}
    kinds: Kinds = {}
    for file in files:
        try:
            with open(file, "rb") as stream:
                if wrong := _damage(stream):
                    raise InvalidInput(f"{file}: {wrong}")
                reader = make_reader(stream, decoder_factories=[DecoderFactory()])
                summary = reader.get_summary()
                for channel in summary.channels.values() if summary else ():
                    schema = summary.schemas.get(channel.schema_id) if summary else None
                    kinds[channel.topic] = schema.name if schema else ""
                wanted = [topic for topic, name in kinds.items() if topic in topics or (kind and name == kind)]
                for _, channel, message, decoded in reader.iter_decoded_messages(topics=wanted) if wanted else ():
                    log.setdefault(channel.topic, []).append((1e-9 * message.log_time, decoded))
        except InvalidInput:
            raise
        except (OSError, EOFError, McapError, ValueError, KeyError, TypeError, struct.error) as error:
            raise InvalidInput(f"{file}: cannot be read as MCAP ({error})") from None
    return log, kinds


def _damage(stream: BinaryIO) -> str:
    """What the first and the last bytes tell: both are the same mark in a whole file."""
    start = stream.read(len(MARK))
    if not start:
        return "is an empty file"
    if start != MARK:
        return "is no MCAP file (ros2 bag convert makes one of a .db3 bag)"
    stream.seek(-len(MARK), os.SEEK_END)
    whole = stream.tell() > 0 and stream.read() == MARK
    stream.seek(0)
    return "" if whole else "is cut off, as if its recorder had been killed; `mcap recover` saves what is there"
