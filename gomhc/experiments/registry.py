"""Which experiments are there? In the order of the report."""

from __future__ import annotations

from gomhc.experiments.averages import Averages
from gomhc.experiments.counts import CountsAndFlops
from gomhc.experiments.depth import DepthDecoupling
from gomhc.experiments.dims import Dims
from gomhc.experiments.distance import Distance
from gomhc.experiments.exact import Exactness
from gomhc.experiments.experiment import Experiment
from gomhc.experiments.fig6 import Fig6
from gomhc.experiments.fig7 import Fig7
from gomhc.experiments.fig8 import Fig8
from gomhc.experiments.gain import Gain
from gomhc.experiments.gradients import Gradients
from gomhc.experiments.karpelevic import Karpelevic
from gomhc.experiments.kl import Divergence
from gomhc.experiments.kromhc import KromHC
from gomhc.experiments.learning_rate import LearningRate
from gomhc.experiments.lm import TinyLanguageModel
from gomhc.experiments.map_times import TimesOfMaps
from gomhc.experiments.parameters import Parameters
from gomhc.experiments.projector_noise import ProjectorNoise
from gomhc.experiments.read_term import ReadTerm
from gomhc.experiments.rotations import Rotations
from gomhc.experiments.sinkhorn import Sinkhorn
from gomhc.experiments.sparsity import Sparsity
from gomhc.experiments.spectra import Spectra
from gomhc.experiments.targets import Targets
from gomhc.experiments.three_cycle import ThreeCycle
from gomhc.experiments.training_time import TrainingTime
from gomhc.experiments.unitary import Unitary
from gomhc.experiments.vanishing import Vanishing

EXPERIMENTS: tuple[Experiment, ...] = (
    Exactness(),
    Gain(),
    Karpelevic(),
    Spectra(),
    KromHC(),
    CountsAndFlops(),
    Fig6(),
    Fig7(),
    Fig8(),
    TinyLanguageModel(),
    Dims(),
    Sparsity(),
    Targets(),
    Distance(),
    ProjectorNoise(),
    DepthDecoupling(),
    Gradients(),
    Sinkhorn(),
    Vanishing(),
    ReadTerm(),
    ThreeCycle(),
    Unitary(),
    Divergence(),
    Parameters(),
    Averages(),
    LearningRate(),
    TrainingTime(),
    TimesOfMaps(),
    Rotations(),
)
"""All of them, main text first, then the appendices, then what the paper does not have; their names are unique."""
