"""Every command in the documents is run by a test, or stands here with the reason why not.

The tutorials, the how-tos and a block of the README are run as they stand (test_tutorials.py); this is about the rest.
"""

import re

import pytest
from blocks import ROOT, Block, blocks
from test_tutorials import PAGES, to_run

from crbo_ros import cli

OTHERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]
TUTORIALS = "documentation/test_tutorials.py::test_a_reader_who_types_what_the_page_says_sees_what_it_says"
STACKS = "integration/test_stacks_ros.py::test_a_"
ROBOT = f"{STACKS}robot_that_follows_its_path_is_tuned_by_nav2s_action_and_topics"
JOINT = f"{STACKS}joint_is_tuned_by_its_controllers_own_topics_accepted_and_rolled_back"
ARM = "integration/test_arm_ros.py::test_the_whole_graph_improves_the_movement"
CHECK_RUNNER = "integration/test_check_runner.py"
CART = "documentation/test_commands.py::test_the_cart_of_the_page_about_new_tasks_keeps_a_tasks_promises"

# (what was changed to make it quicker is said by the test itself)
EXECUTED = {
    "./crbo run furuta --episodes 100 --seed 1": TUTORIALS,  # (the first one, with 30 episodes)
    "./crbo run furuta --guide nominal": TUTORIALS,  # (the fifth one, with 6 episodes)
    "./crbo run furuta --plant nominal --experiment rehearsal --episodes 100": TUTORIALS,  # (the fifth one, with 20)
    "./crbo run arm --config examples/arm.yaml --episodes 30 --yes-move --j-min-drop inf": ARM,
    "./crbo shell python examples/simulated_arm.py": ARM,
    "./crbo run tuning --config examples/joint.yaml --episodes 40 --yes-move --j-min-drop inf": JOINT,
    "./crbo shell python examples/nav_robot.py": ROBOT,
    "./crbo run tuning --config examples/nav.yaml --episodes 40 --yes-move --j-min-drop inf": ROBOT,
    "./crbo check-runner python examples/own_runner.py": CHECK_RUNNER,
    "./crbo score old_run/ other.mcap --return my.yaml": "returns/test_returns.py::test_a_bag_is_scored_without_moving",
    "./crbo export EXPERIMENT --policy npz --output policy.npz": "commands/test_export_policy.py::test_best_json_and",
    "./crbo rollout cart": CART,
    "./crbo run cart --episodes 50": "examples/test_third_party.py::test_their_task_and_method_run_on_the_graph",
}
NO_ROS2_CLI = "needs ros2cli and launch of an installed ROS 2; .github/workflows/ci.yml does it in ROS's container"
SLOW_GUIDE = "most of a minute of simulations before anything runs; one guide is enough for a test"
NOT_EXECUTED = {
    "./crbo test": "is what runs this test",
    "ros2 launch crbo_ros furuta.launch.py --show-args": NO_ROS2_CLI,
    "ros2 launch crbo_ros furuta.launch.py plant:=qube_hardware episodes:=100": "needs a Qube",
    "./crbo run furuta --plant qube_hardware --guide nominal": "needs a Qube",
    "./crbo run furuta --plant qube_hardware --attach rehearsal": "needs a Qube",
    "./crbo run furuta --guide ensemble": f"{SLOW_GUIDE}; tasks/test_simulators.py sees that there are several plants",
    './crbo run pendulum --plant gymnasium --task-options \'{"physics": {"m": 1.15, "l": 1.1}}\' '
    "--guide compiled": f"{SLOW_GUIDE}; tasks/test_simulators.py changes the physics",
    "ros2 launch crbo_ros furuta.launch.py guide:=nominal": NO_ROS2_CLI,
    "ros2 run crbo_ros crbo doctor": NO_ROS2_CLI,
    "ros2 launch crbo_ros tuning.launch.py config:=/path/to/my.yaml": NO_ROS2_CLI,
    "ros2 launch crbo_ros tuning.launch.py --show-args": NO_ROS2_CLI,
    "ros2 launch crbo_ros accept.launch.py experiment:=gains": NO_ROS2_CLI,
    "ros2 run crbo_ros policy_node --ros-args -p policy:=policy.npz -r observation:=/robot/observation "
    "-r action:=/robot/command": f"{NO_ROS2_CLI}; the node itself is run by nodes/test_policy_node.py",
}
COMMANDS = {  # what stands for a command wherever the text names it
    "run rollout operator accept rollback score inspect advise report compare export repair doctor shell": TUTORIALS,
    "summary": "commands/test_record_moves.py",
    "gui": "rqt/test_monitor_ros.py::test_the_window_opens_by_command",
    "train": "training/test_furuta_training.py::test_the_committed_weights_are_what_the_command_makes",
    "demo": "commands/test_demo.py::test_a_csv_file_becomes_a_first_policy",
    "import-sb3": "training/test_ppo.py::test_an_imported_model_acts_as_stable_baselines_does",
    "bench": "bench/test_experiments.py",
    "check-runner": CHECK_RUNNER,
    "policies": "ros/test_security.py::test_the_file_is_what_the_table_gives",
    "setup": "test_the_one_door.py::test_wheels_are_fetched",
    "docs": "documentation/test_site.py",
    "reference": "commands/test_reference.py::test_the_reference_is_up_to_date",
    "test": "test_the_one_door.py::test_set_up_runs_once",  # (its set-up; for the rest see above)
}
pytestmark = pytest.mark.skipif(not (ROOT / "crbo").exists(), reason="only in a clone")


def shell_blocks() -> list[Block]:
    return [block for page in OTHERS for block in blocks(page) if block.language in ("bash", "sh", "console")]


def test_every_command_of_every_page_is_run_by_a_test_or_listed_with_the_reason_why_not() -> None:
    run = {(block.page, block.line) for name in PAGES for block in to_run(name) if block.language == "bash"}
    typed = {command for block in shell_blocks() if (block.page, block.line) in run for command in block.commands}
    rest = {command: block for block in shell_blocks() for command in block.commands if command not in typed}
    for command, block in rest.items():
        assert (command in EXECUTED) != (command in NOT_EXECUTED), (
            f"{block}: who runs {command!r}? Put it into EXECUTED or, with the reason, NOT_EXECUTED"
        )
    stale = (EXECUTED.keys() | NOT_EXECUTED.keys()) - rest.keys()
    assert not stale, "no page has this any more (or it is run as it stands)"


def test_every_command_of_the_command_line_is_run_by_a_test() -> None:
    listed = [name for names in COMMANDS for name in names.split()]
    assert sorted(listed) == sorted(cli.COMMANDS)


@pytest.mark.parametrize("named", sorted({*EXECUTED.values(), *COMMANDS.values()}))
def test_every_test_that_is_named_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name or 'test_'}" in (ROOT / "test" / file).read_text()


def test_the_cart_of_the_page_about_new_tasks_keeps_a_tasks_promises() -> None:
    from crbo_ros.testing import check_task

    code = next(block for block in blocks(ROOT / "docs" / "NEW_TASK.md") if block.file == "crbo_ros/tasks/cart.py")
    page: dict[str, type] = {}
    exec(compile(code.text, str(code), "exec"), page)
    check_task(page["Cart"])


def test_the_readmes_lines_for_the_library_improve_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    exec(compile(code.text, str(code), "exec"), {"my_robot": lambda theta: -float((theta**2).sum())})
    found = re.search(r"mean=(\S+?)[,)]", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) > -0.02  # it began at -0.13
