"""Which returns are too strange to be believed, by what the others say.

With K the covariance of the returns (noise included), V = K^-1 and z the centred returns, the model without return i
expects it with an error of e_i = (V z)_i / V_ii and a variance of v_i = 1 / V_ii. What is off by more than LIMIT
deviations is doubted, the worst first, and each time what is left judges again: one outlier makes its neighbours look
strange too. The hyperparameters are those of the last fit, which has not seen the newest return, and later fits leave
what is doubted out: an outlier never gets the chance to make itself credible by what it does to noise and lengthscale.

True disasters look alike: a fall where the model, which knows no cliffs, was sure of a success. On the tasks most are
off by 3 to 6 deviations, and readings that went wrong by 10 and more, so LIMIT is 6. Beyond it the policy runs again
(`CRBO._again`): a return that comes again is believed in full, and so is what the contract calls an accident.
What was believed when it came is believed for ever: good returns that gather around a disaster do not undo it.
"""

from __future__ import annotations

import numpy as np

from crbo_ros.core.kernels import Array
from crbo_ros.core.region import Mask

LIMIT = 6.0  # deviations
SHARE = 0.25  # of the returns may be doubted, but two in any case
EARLY = 2.5  # deviations: for these, one of the first FEWEST is judged by a model that was fitted without it
FEWEST = 8  # returns; with fewer the model's own scale is a guess


def believed(inverse: Array, z: Array, sure: Mask) -> tuple[Array, Mask, Array]:
    """(z (n,) with what the others say in the place of what is doubted, which are doubted, how strange the rest is).

    inverse: V (n, n). sure (n,): never doubted. Strangeness (n,): |e_i| / sqrt(v_i), 0 for those who are doubted.
    """
    doubted, error = np.zeros(len(z), dtype=bool), np.sqrt(np.diagonal(inverse))
    centre = float(np.median(z))
    u = z - centre
    strange: Array = np.abs(inverse @ u) / error
    for _ in range(max(2, int(SHARE * len(z)))):
        worst = int(np.argmax(np.where(sure, 0.0, strange)))
        if sure[worst] or not strange[worst] > LIMIT:
            break
        doubted[worst] = True
        own, others = inverse[np.ix_(doubted, doubted)], inverse[np.ix_(doubted, ~doubted)]
        u[doubted] = np.linalg.solve(own, -others @ u[~doubted])  # E[doubted | others]
        strange = np.where(doubted, 0.0, np.abs(inverse @ u) / error)
    return np.where(doubted, u + centre, z), doubted, strange
