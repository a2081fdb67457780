"""A recorded run (MCAP, as `ros2 bag record -s mcap` writes it) as a log of messages. Needs no ROS."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any

from crbo_ros.errors import InvalidInput, MissingDependency

Log = dict[str, list[tuple[float, Any]]]


def read_bag(path: str | Path, topics: Collection[str]) -> Log:
    """topic -> (s, message) of the wanted topics. `path`: an .mcap file, or a bag's folder with some."""
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
    for file in files:
        try:
            with open(file, "rb") as stream:
                reader = make_reader(stream, decoder_factories=[DecoderFactory()])
                for _, channel, message, decoded in reader.iter_decoded_messages(topics=list(topics)):
                    log[channel.topic].append((1e-9 * message.log_time, decoded))
        except (OSError, EOFError, McapError, ValueError, KeyError, struct.error) as error:
            raise InvalidInput(f"{file}: cannot be read as MCAP ({error})") from None
    return log
