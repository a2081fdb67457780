#!/usr/bin/env python3
"""A simulated differential robot that follows a path by regulated pure pursuit, with Nav2's action, topics and names.

    ./crbo shell python examples/nav_robot.py                           # in one terminal
    ./crbo run tuning --config examples/nav.yaml --episodes 40 --yes-move --j-min-drop inf

Node /controller_server with Nav2's parameters FollowPath.*; the action /navigate_to_pose drives a fixed course, faster
than real time, and publishes /plan, /odom and /scan with the simulation's stamps. Where Nav2 is installed the action is
nav2_msgs's, else a copy of it. Plain rclpy, none of crbo_ros's Python; needs nav_msgs and sensor_msgs.
"""

import itertools
import math
import random
from typing import Any

DT = 0.05  # s, control period
LAG = 0.25  # s, of wheels
TOP_TURN = 1.8  # rad/s
CORNERS = ((0.0, 0.0), (2.0, 0.0), (2.0, 1.5), (4.0, 1.5), (4.0, 3.0), (5.5, 3.0))
POSTS = ((1.45, 0.65), (2.6, 0.9), (3.4, 2.1), (4.6, 2.3))  # beside the corners
RADIUS = 0.1  # m, of a post
TIMEOUT = 60.0  # s
FOLLOW = {
    "desired_linear_vel": 0.25,
    "lookahead_time": 1.5,
    "min_lookahead_dist": 0.3,
    "max_lookahead_dist": 0.9,
    "regulated_linear_scaling_min_radius": 0.9,
}


def course() -> list[tuple[float, float]]:
    """The plan: straight lines between the corners, a point every 5 cm."""
    points = []
    for (x0, y0), (x1, y1) in itertools.pairwise(CORNERS):
        n = round(math.hypot(x1 - x0, y1 - y0) / 0.05)
        points += [(x0 + (x1 - x0) * k / n, y0 + (y1 - y0) * k / n) for k in range(n)]
    return [*points, CORNERS[-1]]


def clearance(x: float, y: float) -> list[float]:
    """What a scanner sees: the distance to each post."""
    return [max(0.0, math.hypot(x - px, y - py) - RADIUS) for px, py in POSTS]


def simulate(follow: Any, seed: int = 0) -> tuple[list[tuple[float, ...]], bool]:
    """(rows (t, x, y, heading, speed, turn), arrived): regulated pure pursuit along the course."""
    speed, time, nearest, furthest, radius = follow
    rng, path = random.Random(seed), course()
    x, y, heading, v, w, at = 0.0, rng.gauss(0.0, 0.01), rng.gauss(0.0, 0.02), 0.0, 0.0, 0
    rows: list[tuple[float, ...]] = []
    for k in range(round(TIMEOUT / DT)):
        rows.append((k * DT, x, y, heading, v, w))
        while at < len(path) - 1 and math.hypot(path[at + 1][0] - x, path[at + 1][1] - y) <= math.hypot(
            path[at][0] - x, path[at][1] - y
        ):
            at += 1
        left = math.hypot(path[-1][0] - x, path[-1][1] - y)
        if left < 0.15:
            return rows, True
        ahead = min(furthest, max(nearest, v * time))
        carrot = next((p for p in path[at:] if math.hypot(p[0] - x, p[1] - y) >= ahead), path[-1])
        dx, dy = carrot[0] - x, carrot[1] - y
        side = -math.sin(heading) * dx + math.cos(heading) * dy
        curvature = 2.0 * side / max(dx * dx + dy * dy, 1e-6)
        wanted = speed
        if abs(curvature) * radius > 1.0:  # slower in tight turns
            wanted = max(0.1, speed / (abs(curvature) * radius))
        wanted = min(wanted, max(0.1, left))
        turn = max(-TOP_TURN, min(TOP_TURN, wanted * curvature))
        v += (wanted - v) * DT / (DT + LAG)
        w += (turn + rng.gauss(0.0, 0.02) - w) * DT / (DT + LAG)
        heading += w * DT
        x += v * math.cos(heading) * DT
        y += v * math.sin(heading) * DT
    return rows, False


def main() -> None:
    import rclpy
    from geometry_msgs.msg import PoseStamped
    from nav_msgs.msg import Odometry, Path
    from rclpy.action import ActionServer
    from rclpy.duration import Duration
    from rclpy.executors import ExternalShutdownException
    from rclpy.node import Node
    from sensor_msgs.msg import LaserScan

    try:
        from nav2_msgs.action import NavigateToPose
    except ImportError:
        from crbo_ros.action import NavigateToPose

    class Robot(Node):
        def __init__(self) -> None:
            super().__init__("controller_server")
            for name, value in FOLLOW.items():
                self.declare_parameter(f"FollowPath.{name}", value)
            self.declare_parameter("seed", 0)
            self.runs, self.clock_s = 0, 1.0
            self.odom = self.create_publisher(Odometry, "/odom", 2000)
            self.plan = self.create_publisher(Path, "/plan", 10)
            self.scan = self.create_publisher(LaserScan, "/scan", 2000)
            self.server = ActionServer(self, NavigateToPose, "/navigate_to_pose", self.drive)
            self.create_timer(0.5, lambda: None)

        def stamp(self, header: Any, t: float) -> Any:
            header.frame_id = "map"
            header.stamp.sec, header.stamp.nanosec = divmod(round((self.clock_s + t) * 1e9), 10**9)
            return header

        def drive(self, goal: Any) -> Any:
            self.runs += 1
            path = Path()
            self.stamp(path.header, 0.0)
            for x, y in course():
                pose = PoseStamped()
                pose.pose.position.x, pose.pose.position.y = x, y
                path.poses.append(pose)
            self.plan.publish(path)
            follow = [self.get_parameter(f"FollowPath.{name}").value for name in FOLLOW]
            rows, arrived = simulate(follow, self.get_parameter("seed").value + self.runs)
            feedback = NavigateToPose.Feedback()
            for t, x, y, heading, v, w in rows:
                odom = Odometry(child_frame_id="base_link")
                self.stamp(odom.header, t)
                odom.pose.pose.position.x, odom.pose.pose.position.y = x, y
                odom.pose.pose.orientation.z, odom.pose.pose.orientation.w = (
                    math.sin(heading / 2),
                    math.cos(heading / 2),
                )
                odom.twist.twist.linear.x, odom.twist.twist.angular.z = v, w
                self.odom.publish(odom)
                scan = LaserScan(ranges=clearance(x, y), range_max=30.0)
                self.stamp(scan.header, t)
                self.scan.publish(scan)
            feedback.navigation_time.sec, feedback.navigation_time.nanosec = divmod(round(rows[-1][0] * 1e9), 10**9)
            goal.publish_feedback(feedback)
            for publisher in (
                self.plan,
                self.odom,
                self.scan,
            ):  # minutes in a moment: what was lost is sent again first
                publisher.wait_for_all_acked(Duration(seconds=10.0))
            self.clock_s += TIMEOUT + 1.0
            result = NavigateToPose.Result()
            if arrived:
                goal.succeed()
            else:
                goal.abort()
            return result

    rclpy.init()
    node = Robot()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
