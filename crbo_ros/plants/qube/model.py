"""The Qube Servo 2's parameters: as in its data sheet (`nominal`), and changed, in the hardware's place (`stand_in`).

Constants are Quanser's published ones. The arm's inertia Jr = mr Lr^2 / 12 and the pendulum's Jp = mp Lp^2 / 12 (about
its centre) are theirs too; with them the linearisation at the upright has the entries that Quanser publishes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from crbo_ros import checks
from crbo_ros.compiled import QubeParameters, qube_acceleration
from crbo_ros.errors import InvalidInput

COUNTS = 2048.0  # of both encoders, per revolution
FILTER_BANDWIDTH = 50.0  # rad/s, of the driver's velocity filter 50 s / (s + 50)


def nominal() -> QubeParameters:
    """The ideal plant of the data sheet: what a policy is trained on."""
    return QubeParameters()


def stand_in() -> QubeParameters:
    """A plant that differs from the model as a real one does: the hardware's place where there is none."""
    base = QubeParameters()
    mass, length = 1.08 * base.mp, 1.02 * base.Lp
    return base._replace(
        Rm=1.10 * base.Rm,
        kt=0.95 * base.kt,
        km=0.95 * base.km,
        Jr=1.05 * base.Jr,  # the arm's mass
        mp=mass,
        Lp=length,
        Jp=mass * length**2 / 12.0,
        Dr=2.0 * base.Dr,
        Dp=2.0 * base.Dp,
        arm_coulomb=1e-3,
        pendulum_coulomb=2e-5,
        cable_stiffness=1e-3,
        cable_bias=3e-4,
        dead_band=0.1,
        encoder_counts=COUNTS,
        filter_bandwidth=FILTER_BANDWIDTH,
        latency=1.0,
    )


def changed(parameters: QubeParameters, changes: Mapping[str, float]) -> QubeParameters:
    """With other values of some fields, or InvalidInput that names the one that is none."""
    for name, value in changes.items():
        if name not in parameters._fields:
            raise InvalidInput(f"changes: a Qube has no {name!r}; it has {', '.join(parameters._fields)}")
        checks.number(value, f"changes: {name}")
    return parameters._replace(**{name: float(value) for name, value in changes.items()})


def plausible(rng: np.random.Generator) -> dict[str, float]:
    """Changes to the data sheet's plant that a real one may have, as far as can be said without looking at any.

    Ranges: what data sheets of such motors allow (resistance 15 %, torque constant 10 %), what scale and ruler leave
    (masses 10 %, length 3 %), damping by a factor of e either way, friction, cable and dead band from nothing to as
    much as still lets the arm move below 0.5 V. The electronics (encoders, velocity filter, order of reading and
    writing) are the driver's, and known.
    """
    base = QubeParameters()
    mass, length, torque = (base.mp * rng.uniform(0.9, 1.1), base.Lp * rng.uniform(0.97, 1.03), rng.uniform(0.9, 1.1))
    found = {
        "Rm": base.Rm * rng.uniform(0.85, 1.15),
        "kt": base.kt * torque,
        "km": base.km * torque,
        "Jr": base.Jr * rng.uniform(0.9, 1.1),
        "mp": mass,
        "Lp": length,
        "Jp": mass * length**2 / 12.0,
        "Dr": base.Dr * math.exp(rng.uniform(-1.0, 1.0)),
        "Dp": base.Dp * math.exp(rng.uniform(-1.0, 1.0)),
        "arm_coulomb": rng.uniform(0.0, 2e-3),
        "pendulum_coulomb": rng.uniform(0.0, 4e-5),
        "cable_stiffness": rng.uniform(0.0, 2e-3),
        "cable_bias": rng.uniform(-5e-4, 5e-4),
        "dead_band": rng.uniform(0.0, 0.2),
        "encoder_counts": COUNTS,
        "filter_bandwidth": FILTER_BANDWIDTH,
        "latency": 1.0,
    }
    return {name: float(value) for name, value in found.items()}


PARAMETERS = {"nominal": nominal, "stand_in": stand_in}


def energy(x: NDArray[np.float64], p: QubeParameters) -> float:
    """Kinetic plus potential energy, J, the cable's spring included; 0 at rest with the pendulum level with the arm."""
    arm, pendulum, arm_rate, pendulum_rate = x
    half = 0.5 * p.Lp
    s, c = np.sin(pendulum), np.cos(pendulum)
    m11 = p.Jr + p.mp * p.Lr**2 + p.mp * half**2 * s**2
    m22 = p.Jp + p.mp * half**2
    kinetic = 0.5 * m11 * arm_rate**2 + 0.5 * m22 * pendulum_rate**2 - p.mp * p.Lr * half * c * arm_rate * pendulum_rate
    cable = 0.5 * p.cable_stiffness * arm**2 - p.cable_bias * arm
    return float(kinetic + p.mp * p.g * half * c + cable)


def linearise(
    p: QubeParameters, pendulum: float = 0.0, step: float = 1e-6
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x' = A x + B V around rest with the pendulum at an angle (0 upright, pi hanging): A (4, 4), B (4, 1)."""

    def derivative(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([z[2], z[3], *qube_acceleration(z[0], z[1], z[2], z[3], z[4], p)])

    centre = np.array([0.0, pendulum, 0.0, 0.0, 0.0])
    columns = [(derivative(centre + step * e) - derivative(centre - step * e)) / (2.0 * step) for e in np.eye(5)]
    jacobian = np.stack(columns, axis=1)
    return jacobian[:, :4], jacobian[:, 4:]
