"""Which experiments are there? In the order of the report."""

from __future__ import annotations

from gomhc.lab.experiments.averages import Averages
from gomhc.lab.experiments.counts import CountsAndFlops
from gomhc.lab.experiments.depth import DepthDecoupling
from gomhc.lab.experiments.dims import Dims
from gomhc.lab.experiments.distance import Distance
from gomhc.lab.experiments.exact import Exactness
from gomhc.lab.experiments.experiment import Experiment
from gomhc.lab.experiments.fig6 import Fig6
from gomhc.lab.experiments.fig7 import Fig7
from gomhc.lab.experiments.fig8 import Fig8
from gomhc.lab.experiments.gain import Gain
from gomhc.lab.experiments.gradients import Gradients
from gomhc.lab.experiments.karpelevic import Karpelevic
from gomhc.lab.experiments.kl import Divergence
from gomhc.lab.experiments.kromhc import KromHC
from gomhc.lab.experiments.learning_rate import LearningRate
from gomhc.lab.experiments.lm import TinyLanguageModel
from gomhc.lab.experiments.map_times import TimesOfMaps
from gomhc.lab.experiments.parameters import Parameters
from gomhc.lab.experiments.projector_noise import ProjectorNoise
from gomhc.lab.experiments.read_term import ReadTerm
from gomhc.lab.experiments.rotations import Rotations
from gomhc.lab.experiments.sinkhorn import Sinkhorn
from gomhc.lab.experiments.sparsity import Sparsity
from gomhc.lab.experiments.spectra import Spectra
from gomhc.lab.experiments.targets import Targets
from gomhc.lab.experiments.three_cycle import ThreeCycle
from gomhc.lab.experiments.training_time import TrainingTime
from gomhc.lab.experiments.unitary import Unitary
from gomhc.lab.experiments.vanishing import Vanishing

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
