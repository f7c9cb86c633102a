"""Default limits of a tree's leaves, in units of the Hessian, which follows from loss and prior.

A leaf gets the step -G/(H + l2), where G and H are the sums of its rows' first and second derivatives. A leaf
with H below the child-weight limit is refused. At the start H is h* per row (see `raresight.losses.start`).
For cross entropy h* = prior (1 - prior): 0.21 at a prior of 0.3, and 0.00001 at 1e-5.

Fixed limits therefore mean different things at different priors, and for different losses. LightGBM's
`min_sum_hessian_in_leaf` = 1e-3 is a leaf of one row at 0.3, and of a hundred rows at 1e-5. Its `lambda_l2` =
0 lets ten positives in one leaf step by -G/H = 1/h*. At 1e-5 that is a hundred thousand log-odds, and
training explodes. The defaults here are

    min child weight = 2 s,     l2 = 2 s,     max delta step = 10 log-odds,

with s the scale of the loss: 1 for cross entropy at every prior. They count positive rows instead of rows:

* The sum of p (1 - p) over a leaf is the expected number of positives in it. So a leaf needs two expected
  positives. At a prior of 1e-5 these are 200,000 rows in the first round, and fewer where the score has
  risen.
* l2 has the pull of two positive rows. So a leaf of k positives steps by at most k/2 log-odds before the
  learning rate.
* The limit on the step is for leaves with many positives. Newton's step from a tiny probability is the ratio
  of odds less one, although the logarithm of that ratio would suffice. At a learning rate of 0.1 steps of up
  to 35 do not overshoot, so 10 is safe.

For another loss, kappa(z) is its curvature relative to cross entropy, h/(p (1 - p)), at a score z. Class
weights and scaled scores multiply kappa, so limits proportional to it do not depend on such conventions. But
kappa changes along the score. For TBL with alpha = 0.8 and a prior of 1e-5 it is 8.4 at the start. It is 0.73
where both classes are equally likely, where the positives should end up. The scale is between the two,

    s = min(kappa(start), sqrt(kappa(start) kappa(even))),

and at most that of the start. Otherwise a loss whose gradients vanish at the start (the squared loss) would
never leave it.

The figures behind the choice are from simulated tables with 8 columns: LightGBM, cross entropy, 100 rounds, a
prior of 1e-5, a million training rows and so 10 positives. The columns are:

* opAUC: partial AUC below a false-positive rate of 1 %, in percent;
* recall: at a false-positive rate of 0.1 %, in percent;
* log loss: of fresh rows, relative to that of the best constant;
* mean p: the mean probability of fresh rows over the prior.

    table      limits                                      opAUC   recall   log loss   mean p
    clusters   LightGBM's, own binary objective             49.8      0.0   (exploded)
    clusters   l2 = 1, child weight of 20 rows              62.7     15.4      1.02      0.11
    clusters   l2 = 1, child weight 1                       71.1     29.7      0.82      0.68
    clusters   l2 = 2, child weight 2                       73.1     27.0      0.81      0.95
    clusters   l2 = 1, child weight 3                       65.5     10.7      0.84      1.02
    shifted    LightGBM's, own binary objective             49.8      0.0   (exploded)
    shifted    l2 = 1, child weight of 20 rows              56.7      6.4      1.05      0.10
    shifted    l2 = 1, child weight 1                       66.1     16.5      0.82      0.72
    shifted    l2 = 2, child weight 2                       63.0     16.6      0.84      0.98
    shifted    l2 = 1, child weight 3                       63.1     16.7      0.88      1.00

The limits were chosen on these same tables with one seed each, so the figures are optimistic. On the shifted
table a child weight of 1 ranks better (66.1 against 63.0) and calibrates worse.

A limit in rows lets trees memorise the positives: the mean probability of fresh rows falls to a tenth of the
prior. XGBoost gives the same figures with the same limits (72.9 and 63.2 with the defaults).

At a prior of 1e-4 the order is much the same. On the clusters the table's four limits give 75.1, 76.5, 78.7
and 78.9, and LightGBM's own explode. From 1e-3 on the choices differ by a point: on the shifted table 79.5
with the limit in rows, and 80.0 with the defaults.

For TBL at 1e-5 the scales kappa(start), its square root and 1 were compared by opAUC. They gave 58.7, 70.4
and 69.7 on the clusters, and 60.9, 66.6 and 68.0 on the shifted table.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..losses import Loss
from ..losses.start import Start, curvature_scale

CHILD_POSITIVES = 2.0
L2_POSITIVES = 2.0
MAX_LOG_ODDS_STEP = 10.0


@dataclass(frozen=True)
class LeafLimits:
    """Defaults for one training run, in the units of the Hessian and of the score."""

    min_child_weight: float
    l2: float
    max_delta_step: float


def limits_of(loss: Loss, start: Start, hessian_factor: float = 1.0) -> LeafLimits:
    """Return the defaults for a loss and its start; `hessian_factor` multiplies the Hessian of class logits.

    >>> from raresight.boosting import start_of
    >>> from raresight.losses import parse
    >>> loss = parse("crossentropy")
    >>> limits = limits_of(loss, start_of(loss, (0.99999, 0.00001)))
    >>> round(limits.min_child_weight, 6), round(limits.l2, 6), round(limits.max_delta_step, 6)
    (2.0, 2.0, 10.0)
    """
    scale = curvature_scale(loss, start) * hessian_factor
    return LeafLimits(
        min_child_weight=CHILD_POSITIVES * scale,
        l2=L2_POSITIVES * scale,
        max_delta_step=MAX_LOG_ODDS_STEP / start.log_odds_slope,
    )
