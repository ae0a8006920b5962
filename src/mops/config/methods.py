"""Methods that a recipe can name for losses and gradients of several tasks, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from mops.errors import RecipeError

LOSS_WEIGHTS = ("uncertainty", "dwa")
SUM = "sum"  # plain gradients: one backward pass, nothing per task


@dataclass(frozen=True)
class Aggregator:
    """A way to combine the tasks' gradients: a class of torchjd.aggregation."""

    kind: str
    source: str
    options: Mapping[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # packages of its solver
    extra: str = ""  # torchjd's name for them


# Left out: krum and trimmed-mean (against faulty machines), pcd (ranks tasks by their order),
# nash-mtl and excess-mtl (their state is not in tensors, or as large as all gradients, so a run
# could not be resumed from a small file).
# Numbers: c is CAGrad's on NYU-v2; alpha 1 is proportional fairness.
QUADPROG = ("qpsolvers", "quadprog"), "quadprog_projector"
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
    "upgrad": Aggregator("UPGrad", "Quinton and Rey 2024", {}, *QUADPROG),
    "dualproj": Aggregator("DualProj", "Lopez-Paz and Ranzato 2017", {}, *QUADPROG),
    "cagrad": Aggregator("CAGrad", "Liu et al. 2021", {"c": 0.4}, ("cvxpy", "clarabel"), "cagrad"),
    "fairgrad": Aggregator("FairGrad", "Ban and Ji 2024", {"alpha": 1.0}, ("scipy",), "fairgrad"),
}


def check_solver_installed(gradients: str) -> None:
    """Refuse a way to combine gradients whose solver is not installed."""
    row = AGGREGATORS.get(gradients)
    missing = [name for name in row.needs if find_spec(name) is None] if row else []
    if row and missing:
        raise RecipeError(
            f"training.gradients: {gradients} needs {' and '.join(missing)}, not installed here; "
            f"pip install 'torchjd[{row.extra}]', or choose another"
        )
