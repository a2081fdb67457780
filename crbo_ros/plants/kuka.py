"""A KUKA LBR iiwa that holds a ball before a basketball hoop, in PyBullet.

The arm is `pybullet_data`'s `kuka_iiwa/model.urdf`, under joint position control with the iiwa 7's torque limits as
the motors' largest torques. (That model's links have the iiwa 14's lengths, 0.36 + 0.42 + 0.40 m, where the iiwa 7 has
0.34 + 0.40 + 0.40 m; a throw learned here has to be learned on, not copied to, the smaller arm.) The ball hangs on the
flange by a fixed constraint until `release`; the rim is a ring of capsules and the board a box, both solid. The origin
is the arm's foot, on a pedestal of 0.6 m.

In DIRECT mode an episode is a function of its inputs, bit for bit, in any process: the step is fixed, overlapping pairs
are sorted, and `reset` puts back every state and makes a new constraint. Each plant has a client of its own, so that
many run at once, in one process or several.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.space import as_vector
from crbo_ros.errors import MissingDependency, PlantError
from crbo_ros.plants.base import Plant
from crbo_ros.plants.iiwa_limits import TORQUE
from crbo_ros.policies.dmp import JointTrajectory

Array = NDArray[np.float64]

GRAVITY = 9.81  # m/s^2
BALL_RADIUS, BALL_MASS = 0.06, 0.15  # m, kg: a mini basketball, half the real one's diameter
RIM_RADIUS, RIM_TUBE, RIM_PIECES = 0.12, 0.006, 16  # m: as wide for this ball as the real rim for the real ball
GRASP = (0.0, 0.0, 0.12)  # ball centre in the flange's frame, m
FLANGE = 6  # index of the last link
BOARD = (0.01, 0.22, 0.15)  # half extents, m
BOARD_GAP = 0.08  # between rim and board, m: the real 0.15 m, scaled like the ball
PANE = (0.70, 0.76, 0.88, 1.0)  # colour of the board
FLOOR = -0.6  # height of the floor below the arm's foot, m


def load_pybullet() -> tuple[Any, str]:
    """(the pybullet module, the folder of its models), or MissingDependency with what to install."""
    try:
        import pybullet
        import pybullet_data
    except ImportError as error:
        raise MissingDependency(
            f"the simulated Kuka needs PyBullet ({error}): pip install pybullet. Its wheels end at Python 3.11; on "
            "later versions pip builds it from source, which needs a C++ compiler and takes some minutes"
        ) from None
    return pybullet, pybullet_data.getDataPath()


class Kuka(Plant):
    """Observation (17,): 7 joint positions, 7 velocities, ball centre. Action (14,): target positions, velocities."""

    rate = 240.0
    joint_names = tuple(f"lbr_iiwa_joint_{i}" for i in range(1, 8))

    def check(self) -> None:
        load_pybullet()

    def __init__(self, start: ArrayLike, hoop: ArrayLike, *, gui: bool = False) -> None:
        self.start = as_vector(start, "start", 7)
        self.hoop = as_vector(hoop, "hoop", 3)
        self.gui = bool(gui)
        self.client = -1
        self._p: Any = None
        self._constraint: int | None = None

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.client >= 0 and self._p.isConnected(self.client):
            return
        self._constraint = None
        self._p, data = load_pybullet()
        try:
            self.client = self._p.connect(self._p.GUI if self.gui else self._p.DIRECT)
        except self._p.error as error:
            raise PlantError(f"PyBullet did not start: {error}") from None
        if self.client < 0:
            raise PlantError("PyBullet did not start" + (": no display for the GUI? Use gui=False" if self.gui else ""))
        try:
            self._build(data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        client, self.client, self._constraint = self.client, -1, None
        if client >= 0 and self._p.isConnected(client):
            self._p.disconnect(client)

    def __del__(self) -> None:
        try:  # noqa: SIM105  (at interpreter exit even contextlib may be gone)
            self.close()
        except Exception:
            pass

    # -- the episode ------------------------------------------------------------------------------

    def reset(self, rng: np.random.Generator) -> Array:
        """Arm at rest at `start`, ball in the hand. The start is exact: the controller would remove noise anyway."""
        p, client = self._connected(), self.client
        if self._constraint is not None:
            p.removeConstraint(self._constraint, physicsClientId=client)
        for joint, angle in enumerate(self.start):
            p.resetJointState(self.arm, joint, angle, 0.0, physicsClientId=client)
        link = p.getLinkState(self.arm, FLANGE, computeForwardKinematics=1, physicsClientId=client)
        position, orientation = p.multiplyTransforms(link[4], link[5], GRASP, (0, 0, 0, 1))
        p.resetBasePositionAndOrientation(self.ball, position, orientation, physicsClientId=client)
        p.resetBaseVelocity(self.ball, (0, 0, 0), (0, 0, 0), physicsClientId=client)
        offset = np.subtract(GRASP, self._flange_centre).tolist()
        self._constraint = p.createConstraint(
            self.arm, FLANGE, self.ball, -1, p.JOINT_FIXED, (0, 0, 0), offset, (0, 0, 0), physicsClientId=client
        )
        self._command(self.start.tolist(), [0.0] * 7)
        self._before = self._ball_state()
        return self.observe()

    def step(self, action: Array) -> Array:
        """One period of 1/240 s towards target positions and velocities, within the motors' torques."""
        self._connected()
        targets = as_vector(action, "action", 14).tolist()
        self.advance(targets[:7], targets[7:])
        return self.observe()

    def advance(self, positions: list[float], velocities: list[float], *, remember: bool = True) -> None:
        """`step` without checks and observation, for a trajectory that was checked as a whole.

        A `release` between this step and the last needs `remember`; without it a step is 5 % cheaper.
        """
        self._command(positions, velocities)
        if remember and self._constraint is not None:
            self._before = self._ball_state()
        self._p.stepSimulation(physicsClientId=self.client)
        if self.gui:
            time.sleep(1.0 / self.rate)

    def observe(self) -> Array:
        p = self._connected()
        states = p.getJointStates(self.arm, range(7), physicsClientId=self.client)
        ball, _ = p.getBasePositionAndOrientation(self.ball, physicsClientId=self.client)
        return np.array([state[0] for state in states] + [state[1] for state in states] + list(ball))

    def release(self, late: float = 0.0) -> None:
        """Let go of the ball `late` s ago, 0 <= late < one period: release times are not tied to the step.

        The ball's state at that moment is interpolated between the last two steps and then falls freely until now.
        """
        p = self._connected()
        if self._constraint is None:
            return
        p.removeConstraint(self._constraint, physicsClientId=self.client)
        self._constraint = None
        share = late * self.rate
        (x0, _), (v0, w0) = self._before
        (x1, orientation), (v1, w1) = self._ball_state()
        x0, v0, w0, x1, v1, w1 = map(np.array, (x0, v0, w0, x1, v1, w1))
        position = share * x0 + (1.0 - share) * x1
        velocity = share * v0 + (1.0 - share) * v1
        position = position + late * velocity - np.array([0.0, 0.0, 0.5 * GRAVITY * late**2])
        velocity = velocity - np.array([0.0, 0.0, GRAVITY * late])
        spin = share * w0 + (1.0 - share) * w1
        p.resetBasePositionAndOrientation(self.ball, position.tolist(), orientation, physicsClientId=self.client)
        p.resetBaseVelocity(self.ball, velocity.tolist(), spin.tolist(), physicsClientId=self.client)

    def ball_position(self) -> tuple[float, float, float]:
        return self._p.getBasePositionAndOrientation(self.ball, physicsClientId=self.client)[0]

    @property
    def holding(self) -> bool:
        """Whether the ball is in the hand."""
        return self._constraint is not None

    def rim_contact(self) -> bool:
        """Whether the ball touches rim or board now."""
        p = self._connected()
        return any(p.getContactPoints(self.ball, body, physicsClientId=self.client) for body in self.hoop_bodies)

    def torque(self, trajectory: JointTrajectory) -> Array:
        """Motor torques (T, 7) in Nm of a trajectory, by inverse dynamics of the arm (without the ball's 0.15 kg)."""
        p = self._connected()
        rows = zip(
            trajectory.position.tolist(), trajectory.velocity.tolist(), trajectory.acceleration.tolist(), strict=True
        )
        return np.array(
            [p.calculateInverseDynamics(self.arm, q, qd, qdd, physicsClientId=self.client) for q, qd, qdd in rows]
        )

    def stop(self) -> None:
        """Hold the present pose."""
        if self.client < 0 or not self._p.isConnected(self.client):
            return
        try:
            states = self._p.getJointStates(self.arm, range(7), physicsClientId=self.client)
            self._command([state[0] for state in states], [0.0] * 7)
        except self._p.error:  # the GUI was closed meanwhile: nothing is left to stop
            self.close()

    def image(self, width: int, height: int) -> NDArray[np.uint8]:
        """A picture of the scene, (height, width, 3), rendered on the CPU without a display."""
        p = self._connected()
        view, projection = self._camera(width / height)
        _, _, pixels, _, _ = p.getCameraImage(
            width, height, view, projection, lightDirection=(0.5, -2.0, 3.0), shadow=1,
            renderer=p.ER_TINY_RENDERER, physicsClientId=self.client,
        )  # fmt: skip
        return np.asarray(pixels, dtype=np.uint8).reshape(height, width, 4)[:, :, :3].copy()

    def project(self, points: Array, width: int, height: int) -> Array:
        """Where points (M, 3) of the scene appear in `image`: columns and rows, (M, 2)."""
        view, projection = (np.reshape(m, (4, 4), order="F") for m in self._camera(width / height))
        clip = np.column_stack([points, np.ones(len(points))]) @ (projection @ view).T
        return (clip[:, :2] / clip[:, 3:] * (0.5, -0.5) + 0.5) * (width, height)

    def _camera(self, aspect: float) -> tuple[Any, Any]:
        p = self._connected()
        target = (0.4 * self.hoop[0], 0.5 * self.hoop[1], 0.5)
        view = p.computeViewMatrixFromYawPitchRoll(target, 2.6, -32.0, -24.0, 0.0, 2)
        return view, p.computeProjectionMatrixFOV(48.0, aspect, 0.1, 10.0)

    # -- inside -----------------------------------------------------------------------------------

    def _connected(self) -> Any:
        if self.client < 0:
            raise PlantError("the Kuka is not connected; use `with plant:` or connect()")
        return self._p

    def _command(self, positions: list[float], velocities: list[float]) -> None:
        self._p.setJointMotorControlArray(
            self.arm, range(7), self._p.POSITION_CONTROL, targetPositions=positions, targetVelocities=velocities,
            forces=self._forces, positionGains=self._gains, velocityGains=self._ones, physicsClientId=self.client,
        )  # fmt: skip

    def _ball_state(self) -> tuple[Any, Any]:
        """((position, orientation), (velocity, angular velocity)) as PyBullet's tuples."""
        p, client = self._p, self.client
        return (
            p.getBasePositionAndOrientation(self.ball, physicsClientId=client),
            p.getBaseVelocity(self.ball, physicsClientId=client),
        )

    def _build(self, data: str) -> None:
        p, client = self._p, self.client
        p.resetSimulation(physicsClientId=client)
        p.setPhysicsEngineParameter(
            fixedTimeStep=1.0 / self.rate,
            numSubSteps=0,
            numSolverIterations=20,  # 50, the default, moves the ball at the hoop by 0.3 mm and takes a tenth longer
            deterministicOverlappingPairs=1,
            physicsClientId=client,
        )
        p.setGravity(0.0, 0.0, -GRAVITY, physicsClientId=client)
        if self.gui:
            p.configureDebugVisualizer(p.COV_ENABLE_GUI, 0, physicsClientId=client)
        p.loadURDF(f"{data}/plane.urdf", (0, 0, FLOOR), physicsClientId=client)
        self.arm = p.loadURDF(f"{data}/kuka_iiwa/model.urdf", useFixedBase=True, physicsClientId=client)
        self._flange_centre = p.getDynamicsInfo(self.arm, FLANGE, physicsClientId=client)[3]
        self._forces, self._gains, self._ones = TORQUE.tolist(), [0.3] * 7, [1.0] * 7
        self.ball = self._build_ball()
        self.hoop_bodies = self._build_hoop()
        for link in (FLANGE, FLANGE - 1):  # the hand, which opens at once, is not modelled
            p.setCollisionFilterPair(self.arm, self.ball, link, -1, 0, physicsClientId=client)

    def _build_ball(self) -> int:
        p, client = self._p, self.client
        shape = p.createCollisionShape(p.GEOM_SPHERE, radius=BALL_RADIUS, physicsClientId=client)
        visual = p.createVisualShape(
            p.GEOM_SPHERE, radius=BALL_RADIUS, rgbaColor=(0.93, 0.42, 0.1, 1.0), physicsClientId=client
        )
        ball = p.createMultiBody(BALL_MASS, shape, visual, (0, 0, 2.0), physicsClientId=client)
        p.changeDynamics(
            ball,
            -1,
            restitution=0.7,
            lateralFriction=0.5,
            linearDamping=0.0,
            angularDamping=0.0,
            physicsClientId=client,
        )
        return int(ball)

    def _build_hoop(self) -> tuple[int, ...]:
        """Rim and board, two static bodies; x points from the arm to the board."""
        p, client = self._p, self.client
        angles = (np.arange(RIM_PIECES) + 0.5) * 2.0 * np.pi / RIM_PIECES
        ring = [(RIM_RADIUS * np.cos(a), RIM_RADIUS * np.sin(a), 0.0) for a in angles]
        along = [p.getQuaternionFromEuler((np.pi / 2.0, 0.0, a)) for a in angles]  # capsules lie along their z
        length = 2.0 * RIM_RADIUS * np.tan(np.pi / RIM_PIECES)
        board = (RIM_RADIUS + BOARD_GAP + BOARD[0], 0.0, 0.8 * BOARD[2])
        rim = p.createCollisionShapeArray(
            shapeTypes=[p.GEOM_CAPSULE] * RIM_PIECES,
            radii=[RIM_TUBE] * RIM_PIECES,
            lengths=[length] * RIM_PIECES,
            collisionFramePositions=ring,
            collisionFrameOrientations=along,
            physicsClientId=client,
        )
        box = p.createCollisionShape(p.GEOM_BOX, halfExtents=BOARD, physicsClientId=client)
        pane = p.createVisualShape(p.GEOM_BOX, halfExtents=BOARD, rgbaColor=PANE, physicsClientId=client)
        bodies = []
        for shape, visual, at in ((rim, -1, (0.0, 0.0, 0.0)), (box, pane, board)):
            body = p.createMultiBody(0.0, shape, visual, np.add(self.hoop, at).tolist(), physicsClientId=client)
            p.changeDynamics(body, -1, restitution=0.7, lateralFriction=0.5, physicsClientId=client)
            bodies.append(int(body))
        self._dress_hoop(ring, along, length, board)
        return tuple(bodies)

    def _dress_hoop(self, ring: list[Any], along: list[Any], length: float, board: tuple[float, float, float]) -> None:
        """What is only to be seen: red rim, pole and pedestal. Without collision shapes it costs no time."""
        p, client = self._p, self.client

        def show(visual: int, at: ArrayLike, turn: Any = (0, 0, 0, 1)) -> None:
            p.createMultiBody(0.0, -1, visual, np.add(self.hoop, at).tolist(), turn, physicsClientId=client)

        red, grey = (0.85, 0.1, 0.1, 1.0), (0.4, 0.4, 0.45, 1.0)
        piece = p.createVisualShape(
            p.GEOM_CYLINDER, radius=2.0 * RIM_TUBE, length=1.1 * length, rgbaColor=red, physicsClientId=client
        )
        for at, turn in zip(ring, along, strict=True):
            show(piece, at, turn)
        height = self.hoop[2] + board[2] - FLOOR
        pole = p.createVisualShape(
            p.GEOM_BOX, halfExtents=(0.02, 0.02, height / 2), rgbaColor=grey, physicsClientId=client
        )
        show(pole, (board[0] + BOARD[0] + 0.02, 0.0, height / 2 + FLOOR - self.hoop[2]))
        foot = p.createVisualShape(
            p.GEOM_BOX, halfExtents=(0.18, 0.18, -FLOOR / 2), rgbaColor=grey, physicsClientId=client
        )
        show(foot, (-self.hoop[0], -self.hoop[1], FLOOR / 2 - self.hoop[2]))
