"""The operator's commands that loosen something, as a service of a node and as a call of the operator's tools."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import CrboError, InvalidInput
from crbo_ros.protocol.proofs import KEY, Challenges, prove
from crbo_ros.ros import convert
from crbo_ros.ros.link import interface

KIND = "crbo_ros/srv/OperatorCommand"
Handler = Callable[[dict[str, Any], str, Any], tuple[bool, str]]  # (arguments, who, what at_once gave) -> (done, why)


class Door:
    """Checks a command's proof, does it and says who wanted it. `record(command, arguments, who)` writes it down."""

    def __init__(self, node: Any, handlers: Mapping[str, Handler], record: Callable[[str, str, str], None]) -> None:
        self.key = os.environ.get(KEY, "")
        self._node, self._handlers, self._record = node, handlers, record
        self._challenges = Challenges(self.key)

    def answer(self, request: Any, response: Any, at_once: Any = None) -> Any:
        command, who = request.command, request.who[:128] or "somebody"
        if command not in self._handlers:
            response.reason = f"command: {command!r:.40} is none of {', '.join(self._handlers)}"
            return response
        why = self._challenges.check(request.challenge, request.proof, command, request.arguments, request.who)
        if why:
            response.reason, response.challenge = why, self._challenges.give()
            if request.proof:
                self._node.get_logger().warning(f"{command} by {who!r} refused: {why}", throttle_duration_sec=1.0)
            return response
        try:
            arguments = checks.parse_json(request.arguments, "arguments") if request.arguments else {}
            if not isinstance(arguments, dict):
                raise InvalidInput("arguments: expected a JSON object")
            self._record(command, request.arguments, who)
            response.accepted, response.reason = self._handlers[command](arguments, who, at_once)
        except (CrboError, KeyError, TypeError, ValueError) as error:
            response.reason = f"{command}: {error}"
        told = "done" if response.accepted else f"not done ({response.reason})"
        proof = "" if self.key else ", without a proof: this graph has no key"
        self._node.get_logger().warning(f"{command} {request.arguments} by {who!r}{proof}: {told}")
        return convert.fit(response)


def fill(request: Any, key: str, command: str, arguments: dict[str, Any], challenge: str = "") -> Any:
    """A request for a command, with its proof if there is a challenge."""
    request.command, request.who = command, f"{getpass.getuser()} on {os.uname().nodename}"[:128]
    request.arguments = json.dumps(arguments) if arguments else ""
    if challenge and key:
        request.challenge = challenge
        request.proof = prove(key, challenge, command, request.arguments, request.who)
    return request


def command(link: Any, key: str, service: str, word: str, arguments: dict[str, Any], seconds: float, **how: Any) -> Any:
    """Give a command over a RosLink, with its proof if that is asked for; the last answer."""
    request = interface(KIND).Request
    answer = link.call(KIND, service, fill(request(), key, word, arguments), seconds, **how)
    if not answer.accepted and answer.challenge and key:
        answer = link.call(KIND, service, fill(request(), key, word, arguments, answer.challenge), seconds, **how)
    return answer
