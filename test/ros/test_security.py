"""SROS2's policies: made from one table, as files, and no more than each role needs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from crbo_ros.ros import security

FILE = Path(__file__).parents[2] / "security" / "policies.xml"


def allowed(text: str, role: str, tag: str, verb: str) -> set[str]:
    enclave = ElementTree.fromstring(text).find(f".//enclave[@path='/crbo/{role}']")
    assert enclave is not None
    return {str(entry.text) for group in enclave.iter(f"{tag}s") if verb in group.attrib for entry in group}


def test_the_file_is_what_the_table_gives() -> None:
    assert FILE.read_text() == security.policies(), "./crbo policies --output security/policies.xml, and commit it"


def test_only_the_monitor_gives_verdicts_only_an_operator_loosens_and_a_viewer_may_look_and_stop() -> None:
    text = security.policies("lab", 2)
    for role in security.ROLES:
        monitor, operator = role == security.MONITOR, role == security.OPERATOR
        assert ("/lab/safety_verdict" in allowed(text, role, "topic", "publish")) == monitor
        assert ("/lab/safety_heartbeat" in allowed(text, role, "topic", "publish")) == monitor
        assert ("/lab/check_rollout" in allowed(text, role, "service", "reply")) == monitor
        assert ("/lab/operator" in allowed(text, role, "service", "request")) == operator
        assert ("/lab/episode_runner_1/operator" in allowed(text, role, "service", "request")) == operator
        assert ("/lab/safety_monitor/set_parameters" in allowed(text, role, "service", "request")) == operator
    assert {"/lab/stop", "/lab/get_best_policy"} <= allowed(text, security.VIEWER, "service", "request")
