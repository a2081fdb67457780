"""Everything that is compiled: the tanh network, the Qube's physics and sensors, and a whole Furuta episode.

One file on purpose: numba's cache on disk looks only at the file of the function it compiled, so a function that calls
one in another file, or reads the fields of a record from there, would go on using its outdated form after an edit.

Without numba the same functions run as plain Python, some 100 times slower and with the same results bit for bit: all
arithmetic is written out in scalar order, and no fast-math is allowed (tested).

Notation: x = (arm, pendulum, arm rate, pendulum rate) in rad and rad/s, pendulum 0 = upright, p = QubeParameters,
voltage in V. Signs as in gym-brt: a positive voltage pushes the arm to negative angles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])

RUNS, FELL, ARM_LIMIT, TOO_FAST, BAD_SENSOR, BAD_VOLTAGE = range(6)  # how a compiled episode ended


def jit(function: Function) -> Function:
    """numba.njit with its cache on disk (without, where no folder can be written); the bare function without numba."""
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        return njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]
    except RuntimeError:  # neither NUMBA_CACHE_DIR, nor the package's folder, nor the user's cache can be written
        return njit(error_model="numpy")(function)  # type: ignore[return-value]


class QubeParameters(NamedTuple):
    """All floats (numba compiles for the types once). SI units, rad, V."""

    # motor
    Rm: float = 8.4  # Ohm
    kt: float = 0.042  # N m / A
    km: float = 0.042  # V s / rad
    # arm
    Lr: float = 0.085  # m
    Jr: float = 0.095 * 0.085**2 / 12.0  # kg m^2
    Dr: float = 2.7e-4  # N m s / rad
    # pendulum
    mp: float = 0.024  # kg
    Lp: float = 0.129  # m
    Jp: float = 0.024 * 0.129**2 / 12.0  # kg m^2
    Dp: float = 5e-5  # N m s / rad
    g: float = 9.81  # m / s^2
    # what the data sheet leaves out
    arm_coulomb: float = 0.0  # N m
    pendulum_coulomb: float = 0.0  # N m
    coulomb_rate: float = 0.05  # rad/s; friction = coulomb * tanh(rate / coulomb_rate)
    cable_stiffness: float = 0.0  # N m / rad, of the encoder's cable about the arm's centre
    cable_bias: float = 0.0  # N m
    # electronics
    max_voltage: float = 3.0  # V
    dead_band: float = 0.0  # V, taken off the voltage's magnitude
    encoder_counts: float = 0.0  # per revolution; 0: angles as they are
    filter_bandwidth: float = 0.0  # rad/s; 0: the true velocities
    latency: float = 0.0  # 1: encoders are read before the voltage is written; 0: after the period
    rate: float = 250.0  # Hz
    substeps: float = 2.0  # of the integrator in one control period


class FurutaSettings(NamedTuple):
    """The task's numbers, all floats for the compiled episode."""

    steps: float = 5000.0  # 20 s at 250 Hz
    amplitude: float = math.pi / 3.0  # rad, of the arm's reference
    frequency: float = 1.0  # rad/s
    reward_scale: float = math.pi / 2.0  # rad of arm error that earn nothing
    pendulum_limit: float = math.radians(20.0)  # beyond it the pendulum counts as fallen
    arm_limit: float = math.pi / 2.0
    rate_limit: float = 40.0  # rad/s, arm and pendulum


@jit
def layer(inputs: Array, weights: Array, biases: Array, outputs: Array) -> None:
    """outputs = inputs @ weights + biases; weights is (n_in, n_out), so that the inner loop runs over neighbours."""
    for i in range(outputs.shape[0]):
        outputs[i] = biases[i]
    for j in range(inputs.shape[0]):
        for i in range(outputs.shape[0]):
            outputs[i] += inputs[j] * weights[j, i]


@jit
def network(
    inputs: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, hidden1: Array, hidden2: Array,
    outputs: Array,
) -> None:  # fmt: skip
    """Two tanh layers and a linear one; hidden1, hidden2 and outputs are scratch and result."""
    layer(inputs, w1, b1, hidden1)
    for i in range(hidden1.shape[0]):
        hidden1[i] = math.tanh(hidden1[i])
    layer(hidden1, w2, b2, hidden2)
    for i in range(hidden2.shape[0]):
        hidden2[i] = math.tanh(hidden2[i])
    layer(hidden2, w3, b3, outputs)


@jit
def qube_acceleration(
    arm: float, pendulum: float, arm_rate: float, pendulum_rate: float, voltage: float, p: QubeParameters
) -> tuple[float, float]:
    """Angular accelerations (arm, pendulum) of a rotary pendulum with a DC motor, from its Lagrangian.

    With l = Lp/2, s = sin(pendulum), c = cos(pendulum):
        M = [[Jr + mp Lr^2 + mp l^2 s^2, -mp Lr l c], [-mp Lr l c, Jp + mp l^2]]
        M q'' = [tau - Dr arm' - 2 mp l^2 s c arm' pendulum' - mp Lr l s pendulum'^2,
                 mp g l s - Dp pendulum' + mp l^2 s c arm'^2]
    tau = -kt (voltage + km arm') / Rm: the back-EMF brakes, whichever sign the voltage has.
    """
    s = math.sin(pendulum)
    c = math.cos(pendulum)
    half = 0.5 * p.Lp
    ml = p.mp * half
    mll = ml * half
    torque = -p.kt * (voltage + p.km * arm_rate) / p.Rm - p.Dr * arm_rate
    torque += p.cable_bias - p.cable_stiffness * arm
    pendulum_torque = ml * p.g * s - p.Dp * pendulum_rate
    if p.arm_coulomb > 0.0:
        torque -= p.arm_coulomb * math.tanh(arm_rate / p.coulomb_rate)
    if p.pendulum_coulomb > 0.0:
        pendulum_torque -= p.pendulum_coulomb * math.tanh(pendulum_rate / p.coulomb_rate)
    m11 = p.Jr + p.mp * p.Lr * p.Lr + mll * s * s
    m12 = -ml * p.Lr * c
    m22 = p.Jp + mll
    f1 = torque - 2.0 * mll * s * c * arm_rate * pendulum_rate - ml * p.Lr * s * pendulum_rate * pendulum_rate
    f2 = pendulum_torque + mll * s * c * arm_rate * arm_rate
    determinant = m11 * m22 - m12 * m12
    return (m22 * f1 - m12 * f2) / determinant, (m11 * f2 - m12 * f1) / determinant


@jit
def qube_integrate(x: Array, voltage: float, p: QubeParameters, duration: float, substeps: int) -> None:
    """Move x (4,) on by `duration` seconds at constant voltage: classical Runge-Kutta, `substeps` equal steps."""
    h = duration / substeps
    a, b, da, db = x[0], x[1], x[2], x[3]
    for _ in range(substeps):
        a1, b1 = qube_acceleration(a, b, da, db, voltage, p)
        v2, w2 = da + 0.5 * h * a1, db + 0.5 * h * b1
        a2, b2 = qube_acceleration(a + 0.5 * h * da, b + 0.5 * h * db, v2, w2, voltage, p)
        v3, w3 = da + 0.5 * h * a2, db + 0.5 * h * b2
        a3, b3 = qube_acceleration(a + 0.5 * h * v2, b + 0.5 * h * w2, v3, w3, voltage, p)
        v4, w4 = da + h * a3, db + h * b3
        a4, b4 = qube_acceleration(a + h * v3, b + h * w3, v4, w4, voltage, p)
        a += h / 6.0 * (da + 2.0 * v2 + 2.0 * v3 + v4)
        b += h / 6.0 * (db + 2.0 * w2 + 2.0 * w3 + w4)
        da += h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
        db += h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
    x[0], x[1], x[2], x[3] = a, b, da, db


@jit
def wrap(angle: float) -> float:
    """An angle to [-pi, pi)."""
    return angle - 2.0 * math.pi * math.floor((angle + math.pi) / (2.0 * math.pi))


@jit
def rate_filter(position: float, memory: Array, index: int, bandwidth: float, dt: float) -> float:
    """One step of the velocity filter w s / (s + w), by Euler as in the Qube's driver; memory[index] is its state."""
    rate = bandwidth * (position - bandwidth * memory[index])
    memory[index] += dt * (position - bandwidth * memory[index])
    return rate


@jit
def qube_measure(x: Array, memory: Array, p: QubeParameters, observation: Array) -> None:
    """Encoders and velocities as the controller sees them -> observation (4,); memory (2,) is the filters' state."""
    arm, pendulum = x[0], x[1]
    if p.encoder_counts > 0.0:
        tick = 2.0 * math.pi / p.encoder_counts
        arm = tick * math.floor(arm / tick + 0.5)
        pendulum = tick * math.floor(pendulum / tick + 0.5)
    if p.filter_bandwidth > 0.0:
        observation[2] = rate_filter(arm, memory, 0, p.filter_bandwidth, 1.0 / p.rate)
        observation[3] = rate_filter(pendulum, memory, 1, p.filter_bandwidth, 1.0 / p.rate)
    else:
        observation[2] = x[2]
        observation[3] = x[3]
    observation[0] = arm
    observation[1] = wrap(pendulum)


@jit
def qube_step(x: Array, memory: Array, voltage: float, p: QubeParameters, observation: Array) -> float:
    """One control period: clip and apply the voltage, move x on, measure. All arrays are changed in place.

    With latency the encoders are read before the voltage is written, as the Qube's driver does.
    """
    voltage = min(max(voltage, -p.max_voltage), p.max_voltage)
    if p.latency > 0.0:
        qube_measure(x, memory, p, observation)
    effective = voltage
    if p.dead_band > 0.0:
        effective = math.copysign(max(abs(voltage) - p.dead_band, 0.0), voltage)
    qube_integrate(x, effective, p, 1.0 / p.rate, int(p.substeps))
    if p.latency <= 0.0:
        qube_measure(x, memory, p, observation)
    return voltage


@jit
def furuta_reference(step: float, rate: float, amplitude: float, frequency: float) -> float:
    """Where the arm should be at a step, rad: amplitude sin(frequency t)."""
    return amplitude * math.sin(frequency * (step / rate))


@jit
def furuta_reward(arm: float, reference: float, scale: float, steps: float) -> float:
    """r_t = (1 - |arm - reference| / 90 deg) / T."""
    return (1.0 - abs(arm - reference) / scale) / steps


@jit
def furuta_end(observation: Array, s: FurutaSettings) -> int:
    """How the task's rule ends the episode at this observation, or RUNS to go on; s = FurutaSettings."""
    for i in range(4):
        if not math.isfinite(observation[i]):
            return BAD_SENSOR
    if abs(observation[1]) > s.pendulum_limit:
        return FELL
    if abs(observation[0]) > s.arm_limit:
        return ARM_LIMIT
    if abs(observation[2]) > s.rate_limit or abs(observation[3]) > s.rate_limit:
        return TOO_FAST
    return RUNS


@jit
def furuta_inputs(observation: Array, reference: float, offset: Array, scale: Array, inputs: Array) -> None:
    """The policy's inputs: (arm, pendulum, arm rate, pendulum rate, reference), shifted and scaled."""
    for i in range(4):
        inputs[i] = (observation[i] - offset[i]) * scale[i]
    inputs[4] = (reference - offset[4]) * scale[4]


@jit
def furuta_episode(
    x: Array, memory: Array, observation: Array, p: QubeParameters, s: FurutaSettings, offset: Array, scale: Array,
    w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, log: Array,
) -> tuple[float, int, int]:  # fmt: skip
    """A whole episode from x. Returns (return, steps, end); log (T, 5) gets observation and voltage, or is (0, 5).

    The same steps in the same order as tasks/episode.py takes one by one.
    """
    inputs = np.empty(5)
    hidden1 = np.empty(b1.shape[0])
    hidden2 = np.empty(b2.shape[0])
    output = np.empty(1)
    total = 0.0
    steps = int(s.steps)
    for t in range(steps):
        reference = furuta_reference(t, p.rate, s.amplitude, s.frequency)
        furuta_inputs(observation, reference, offset, scale, inputs)
        network(inputs, w1, b1, w2, b2, w3, b3, hidden1, hidden2, output)
        if not math.isfinite(output[0]):
            return total, t, BAD_VOLTAGE
        voltage = qube_step(x, memory, output[0], p, observation)
        if log.shape[0] > 0:
            for i in range(4):
                log[t, i] = observation[i]
            log[t, 4] = voltage
        end = furuta_end(observation, s)
        if end == BAD_SENSOR:
            return total, t + 1, end
        reference = furuta_reference(t + 1, p.rate, s.amplitude, s.frequency)
        total += furuta_reward(observation[0], reference, s.reward_scale, s.steps)
        if end != RUNS:
            return total, t + 1, end
    return total, steps, RUNS
