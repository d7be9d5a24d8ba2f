"""Histograms of eigenvalues that averages reach."""

from __future__ import annotations

from collections.abc import Sequence

from gomhc.lab.report.figures.spectra import exhibits as spectra_exhibits
from gomhc.lab.report.page import Exhibit
from gomhc.lab.results.record import Record


def exhibits(records: Sequence[Record]) -> list[Exhibit]:
    """As for the methods themselves."""
    return spectra_exhibits(records)
