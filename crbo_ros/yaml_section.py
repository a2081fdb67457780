"""A YAML file read field by field, with errors that name the file, the line and the field.

root = read_yaml("pid.yaml")
kp = root.list("parameters")[0].number("start")
root.close()                        # complains about fields that nobody asked for (a misspelled one)
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import InvalidInput, MissingDependency

EXAMPLES = {"msg": "std_msgs/msg/Float64", "srv": "std_srvs/srv/Trigger", "action": "nav2_msgs/action/Wait"}


class Missing:
    """Stands for "no default": the field must be there."""


class Section:
    """A mapping of the file. Every field is asked for by name and type; `close` refuses what is left."""

    def __init__(self, file: str, node: Any, path: str = "") -> None:
        import yaml

        self.file, self.node, self.path = file, node, path
        self._sections: list[Section] = []
        self._asked: set[str] = set()
        if not isinstance(node, yaml.MappingNode):
            raise self.error(f"expected fields (name: value), got {_shown(node)}")
        self._fields: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            if key.value in self._fields:
                raise self.error("appears twice", key.value, key)
            self._fields[str(key.value)] = (key, value)

    def error(self, text: str, name: str = "", node: Any = None) -> InvalidInput:
        """An error at a field (or at this section)."""
        found = self._fields.get(name) if node is None and hasattr(self, "_fields") else None
        mark = (found[1] if found else node or self.node).start_mark
        where = ".".join(filter(None, [self.path, name])) or "the file"
        return InvalidInput(f"{self.file}, line {mark.line + 1}: {where}: {text}")

    def has(self, name: str) -> bool:
        return name in self._fields

    @property
    def names(self) -> list[str]:
        return list(self._fields)

    def _value(self, name: str, default: Any, wanted: str) -> Any:
        """The field as plain Python, or the default."""
        self._asked.add(name)
        if name not in self._fields:
            if default is Missing:
                raise self.error(f"is missing (expected {wanted})", name, self.node)
            return default
        import yaml

        try:
            return yaml.SafeLoader("").construct_object(self._fields[name][1], deep=True)
        except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
            raise self.error(str(getattr(error, "problem", error)), name) from None

    def number(
        self,
        name: str,
        default: Any = Missing,
        *,
        positive: bool = False,
        minimum: float = -math.inf,
        maximum: float = math.inf,
    ) -> float:
        value = self._value(name, default, "a number")
        if isinstance(value, str):  # YAML 1.1 takes 1e3 for a string
            try:
                value = float(value)
            except ValueError:
                raise self.error(f"{value!r} is not a number", name) from None
        if value is default and default is not Missing and not isinstance(value, (int, float)):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"{value!r} is not a number", name)
        if not math.isfinite(value):
            raise self.error(f"{value} is not finite", name)
        if (positive and value <= 0.0) or value < minimum:
            raise self.error(f"{value:g} must be {'above 0' if positive else f'at least {minimum:g}'}", name)
        if value > maximum:
            raise self.error(f"{value:g} must be at most {maximum:g}", name)
        return float(value)

    def seconds(self, name: str, default: Any = Missing, *, positive: bool = True) -> float:
        """A duration that a clock can count."""
        return self.number(name, default, positive=positive, minimum=0.0, maximum=checks.SECONDS_LIMIT)

    def numbers(self, name: str, default: Any = Missing, *, length: int | None = None) -> list[float]:
        value = self._value(name, default, "a list of numbers")
        if value is default and default is not Missing:
            return value
        if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in value):
            raise self.error(f"{value!r} is not a list of numbers", name)
        if not all(math.isfinite(v) for v in value):
            raise self.error(f"{value} has an entry that is not finite", name)
        if length is not None and len(value) != length:
            raise self.error(f"expected {length} numbers, got {len(value)}", name)
        return [float(v) for v in value]

    def text(self, name: str, default: Any = Missing, *, choices: tuple[str, ...] = ()) -> str:
        value = self._value(name, default, f"one of {', '.join(choices)}" if choices else "a text")
        if value is default and default is not Missing:
            return value
        if not isinstance(value, str) or not _is_text(value):
            raise self.error(f"{str(value)[:80]!r} is not a text", name)
        if choices and value not in choices:
            raise self.error(f"{value!r} is none of {', '.join(choices)}", name)
        return value

    def texts(self, name: str) -> list[str]:
        value = self._value(name, Missing, "a list of texts")
        if not isinstance(value, list) or not value or not all(isinstance(v, str) and _is_text(v) for v in value):
            raise self.error(f"{str(value)[:80]} is not a list of texts", name)
        return value

    def absolute_name(self, name: str, default: Any = Missing) -> str:
        """A ROS name that does not depend on a namespace: the runner has one of its own."""
        text = self.text(name, default)
        if text is not default and not re.fullmatch(r"(/[A-Za-z_]\w*)+", text, re.ASCII):
            raise self.error(f"{text!r} is not an absolute ROS name, such as /arm/controller", name)
        return text

    def interface(self, name: str, kind: str) -> str:
        """The type of a message, a service or an action."""
        text = self.text(name)
        if not re.fullmatch(rf"[A-Za-z]\w*/{kind}/[A-Za-z]\w*", text, re.ASCII):
            raise self.error(f"{text!r} is not a type such as {EXAMPLES[kind]}", name)
        return text

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._value(name, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(f"{value!r} is neither true nor false", name)
        return value

    def plain(self, name: str) -> dict[str, Any]:
        """A mapping that is passed on as it is (a request, a goal); empty where it is missing."""
        value = self._value(name, {}, "fields")
        if not isinstance(value, dict):
            raise self.error(f"expected fields (name: value), got {value!r}", name)
        return value

    def section(self, name: str) -> Section | None:
        """The fields below a name, or None where it is missing."""
        self._asked.add(name)
        if name not in self._fields:
            return None
        child = Section(self.file, self._fields[name][1], ".".join(filter(None, [self.path, name])))
        self._sections.append(child)
        return child

    def required(self, name: str) -> Section:
        found = self.section(name)
        if found is None:
            raise self.error("is missing", name, self.node)
        return found

    def list(self, name: str) -> list[Section]:
        """A list of sections; at least one."""
        import yaml

        self._asked.add(name)
        if name not in self._fields:
            raise self.error("is missing", name, self.node)
        node = self._fields[name][1]
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.error(f"expected a list (lines that begin with -), got {_shown(node)}", name)
        path = ".".join(filter(None, [self.path, name]))
        children = [Section(self.file, child, f"{path}[{i}]") for i, child in enumerate(node.value)]
        self._sections += children
        return children

    def close(self) -> None:
        """Refuse fields that nobody asked for, here and below."""
        for name, (key, _) in self._fields.items():
            if name not in self._asked:
                raise self.error(f"there is no such field; there are: {', '.join(sorted(self._asked))}", name, key)
        for section in self._sections:
            section.close()


def _is_text(value: str) -> bool:
    """Something that can be read and printed."""
    return bool(value.strip()) and value.isprintable() and len(value) <= 1000


def _shown(node: Any) -> str:
    return repr(node.value) if isinstance(node.value, str) else f"a {node.id}"


def load_yaml(path: Path) -> Any:
    """A whole YAML file as plain values, read as `read_yaml` does."""
    node = compose(path)
    _refuse_doubles(path, node)
    import yaml

    try:
        return None if node is None else yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{path}: {' '.join(str(error).split())[:300]}") from None


def compose(path: str | Path) -> Any:
    """The tree of a YAML file of a sensible size and depth, without aliases (a few lines of them can stand for GBs)."""
    try:
        import yaml
    except ImportError:
        raise MissingDependency(f"{path}: PyYAML is needed to read it (pip install PyYAML)") from None
    text = checks.read_text(Path(path))
    try:
        if checks.depth(text) > checks.DEPTH_LIMIT:
            raise InvalidInput(f"{path}: is nested more than {checks.DEPTH_LIMIT} deep")
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                raise InvalidInput(f"{path}, line {line}: *{event.anchor}: aliases are not taken; write it out")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidInput(f"{path}{where}: not YAML ({getattr(error, 'problem', error)})") from None
    except (RecursionError, ValueError) as error:
        raise InvalidInput(f"{path}: not YAML that can be read ({error})") from None
    return node


def _refuse_doubles(path: str | Path, node: Any) -> None:
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise InvalidInput(f"{path}, line {key.start_mark.line + 1}: {key.value}: appears twice")
            seen.add(str(key.value))
            _refuse_doubles(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_doubles(path, value)


def read_yaml(path: str | Path) -> Section:
    """The file's top level; InvalidInput for a file that is not there or not YAML."""
    node = compose(path)
    if node is None:
        raise InvalidInput(f"{path}: is empty")
    return Section(str(path), node)
