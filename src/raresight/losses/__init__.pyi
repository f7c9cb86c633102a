"""Types of the names that `__init__.py` gathers (written by docs/generate.py)."""

from .alpha import Alpha as Alpha
from .callable_loss import CallableLoss as CallableLoss
from .callable_loss import from_callable as from_callable
from .class_weighted import ClassWeighted as ClassWeighted
from .class_weighted import effective_number_weights as effective_number_weights
from .contract import Loss as Loss
from .cross_entropy import CrossEntropy as CrossEntropy
from .erf import Erf as Erf
from .focal import Focal as Focal
from .ldam import LDAM as LDAM
from .logit_adjusted import LogitAdjusted as LogitAdjusted
from .margin import MarginLoss as MarginLoss
from .parameters import param as param
from .poly import Poly as Poly
from .ranking_loss import PartialAUC as PartialAUC
from .ranking_loss import RankingLoss as RankingLoss
from .registry import all_losses as all_losses
from .registry import parse as parse
from .registry import register as register
from .squared import Squared as Squared
from .tbl import TBL as TBL
from .tbl import NonConvexLossWarning as NonConvexLossWarning
from .vector_scaling import VectorScaling as VectorScaling
