"""`./crbo demo record`: turn a demonstrated throw into the basketball task's first policy.

    ./crbo demo record --topic /joint_states --release 0.9     # move the arm by hand, then Ctrl-C
    ./crbo demo record --csv throw.csv --degrees --output throw.npz
    ./crbo demo record --bag rosbag2_2024_05_01 --duration 1.5

A movement primitive is fitted to the recorded joint positions; rest before and after the movement is cut off. The
result is an option of the task: ./crbo rollout basketball --option demonstration=throw.npz
A person usually moves an arm more slowly than it should throw, or faster than it can: --duration replays the same path
in another time. A movement beyond the iiwa 7's limits is not written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crbo_ros.errors import InvalidInput
from crbo_ros.policies import demonstration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["record"], help="fit a primitive to a recording")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--topic", help="sensor_msgs/JointState to listen to, live (default: /joint_states)")
    source.add_argument("--csv", type=Path, help="file with a time column (s) and a column per joint (rad)")
    source.add_argument("--bag", type=Path, help="ROS 2 bag: a folder, or a .db3 or .mcap file")
    parser.add_argument("--bag-topic", default="/joint_states", help="topic in the bag (default: /joint_states)")
    parser.add_argument("--joints", help="names of the arm's 7 joints in their order, with commas between")
    parser.add_argument("--degrees", action="store_true", help="the CSV file's angles are in degrees")
    parser.add_argument("--seconds", type=float, help="how long to listen (default: until Ctrl-C)")
    parser.add_argument("--duration", type=float, help="s in which to replay the movement (default: as recorded)")
    parser.add_argument(
        "--release", type=float, help="s after the movement's start at which to let go (default: 70 %%)"
    )
    parser.add_argument("--output", type=Path, default=Path("demonstration.npz"), help="file to write")


def run(args: argparse.Namespace) -> int:
    joints = tuple(name.strip() for name in args.joints.split(",")) if args.joints else None
    if joints is not None and len(set(joints)) != 7:
        raise InvalidInput(f"--joints: expected 7 different names, got {len(set(joints))}")
    if args.csv:
        recording = demonstration.read_csv(args.csv, joints, degrees=args.degrees)
    elif args.bag:
        recording = demonstration.read_bag(args.bag, args.bag_topic, joints)
    else:
        print("listening; move the arm, then press Ctrl-C" if args.seconds is None else "listening", flush=True)
        recording = demonstration.record_topic(args.topic or "/joint_states", joints, seconds=args.seconds)
    return fit(recording, args)


def fit(recording: demonstration.Recording, args: argparse.Namespace) -> int:
    """Fit, check the limits, write the file and say how good it is."""
    from crbo_ros.plants import iiwa_limits
    from crbo_ros.plants.kuka import Kuka
    from crbo_ros.policies.dmp import DMP
    from crbo_ros.tasks.basketball import DYNAMICS, RELEASE

    recording = recording.trimmed()
    duration = float(recording.time[-1]) if args.duration is None else args.duration
    dmp = DMP(recording.position[0], duration=duration, rate=Kuka.rate, dynamics=DYNAMICS)
    error = dmp.fit(recording.time, recording.position)
    release = RELEASE * duration if args.release is None else args.release
    if not 0.0 < release < duration:
        raise InvalidInput(f"--release {release:g}: must lie inside the movement of {duration:.3f} s")
    trajectory = dmp.rollout()
    shares = iiwa_limits.usage(trajectory)
    if violation := iiwa_limits.check(trajectory):
        advice = "; choose another path"
        if violation.quantity == "velocity":
            advice = f"; use --duration {np.ceil(100.0 * duration * shares['velocity'].max() / 0.95) / 100.0:g} or more"
        raise InvalidInput(f"the fitted {violation}{advice}")
    dmp.save(args.output, release=release)
    print(f"joints        {', '.join(recording.joints)}")
    print(f"recording     {len(recording.time)} samples, {recording.time[-1]:.3f} s of movement")
    print(f"fit           {np.degrees(error):.3f} deg RMS over {dmp.n_weights} parameters")
    print(f"replay        {duration:.3f} s, release at {release:.3f} s")
    for quantity, share in shares.items():
        worst = int(np.argmax(share))
        print(f"{quantity:13} at most {100.0 * share[worst]:.0f} % of the iiwa 7's limit ({iiwa_limits.JOINTS[worst]})")
    print(f"written       {args.output}")
    return 0
