"""How several tasks train one network: the names a recipe may say, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from mops.errors import RecipeError

LOSS_WEIGHTS = ("uncertainty", "dwa")
SUM = "sum"  # the gradients as they are: one backward pass, nothing per task


@dataclass(frozen=True)
class Aggregator:
    """A way to make one gradient out of one per task: a class of torchjd.aggregation."""

    kind: str
    source: str
    options: Mapping[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # packages of its solver
    extra: str = ""  # torchjd's name for them


# Not here: krum and trimmed-mean are against broken machines, pcd ranks the tasks by their order;
# the memory of nash-mtl is not kept in tensors and that of excess-mtl is as large as all gradients,
# so neither could be resumed from a small file.
# Numbers: c is CAGrad's on NYU-v2; alpha 1 is proportional fairness.
AGGREGATORS: Mapping[str, Aggregator] = {
    "pcgrad": Aggregator("PCGrad", "Yu et al. 2020"),
    "gradvac": Aggregator("GradVac", "Wang et al. 2021"),
    "mgda": Aggregator("MGDA", "Désidéri 2012; Sener and Koltun 2018"),
    "imtl-g": Aggregator("IMTLG", "Liu et al. 2021"),
    "aligned-mtl": Aggregator("AlignedMTL", "Senushkin et al. 2023"),
    "config": Aggregator("ConFIG", "Liu et al. 2024"),
    "graddrop": Aggregator("GradDrop", "Chen et al. 2020"),
    "random": Aggregator("Random", "Lin et al. 2021"),
    "mean": Aggregator("Mean", "the sum divided by the number of tasks"),
    "upgrad": Aggregator(
        "UPGrad",
        "Quinton and Rey 2024",
        needs=("qpsolvers", "quadprog"),
        extra="quadprog_projector",
    ),
    "dualproj": Aggregator(
        "DualProj",
        "Lopez-Paz and Ranzato 2017",
        needs=("qpsolvers", "quadprog"),
        extra="quadprog_projector",
    ),
    "cagrad": Aggregator(
        "CAGrad", "Liu et al. 2021", {"c": 0.4}, needs=("cvxpy", "clarabel"), extra="cagrad"
    ),
    "fairgrad": Aggregator(
        "FairGrad", "Ban and Ji 2024", {"alpha": 1.0}, needs=("scipy",), extra="fairgrad"
    ),
}


def refuse_missing(gradients: str) -> None:
    """Say before a run which package its way to combine gradients lacks."""
    row = AGGREGATORS.get(gradients)
    missing = [name for name in row.needs if find_spec(name) is None] if row else []
    if row and missing:
        raise RecipeError(
            f"training.gradients: {gradients} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'torchjd[{row.extra}]', or name another"
        )
