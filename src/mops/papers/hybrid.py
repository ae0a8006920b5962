"""Hybrid BERT: tables 1 and 3, and what it found."""

from __future__ import annotations

from mops.papers.costs import has_at_most
from mops.papers.paper import TASKS, Column, Match, Paper, PaperRow, PaperTable, Setting, Stated
from mops.papers.verdicts import all_of, beats, not_worse

OVERALL = "overall_normalised"
ONE, THREE, HALF = Match("shared"), Match("separate"), Match("hybrid:{half}")
UNTAUGHT = Match("frozen+shared", trains=("sentiment",))
SCORES = (
    Column("sentiment", "Sentiment Acc."),
    Column("paraphrase", "Paraphrase Acc."),
    Column("similarity", "Similarity Corr."),
)
TABLE_1 = tuple(
    PaperRow(label, dict(zip((*TASKS, OVERALL), numbers, strict=True)), match, split=split)
    for label, match, split, *numbers in (
        ("Baseline (dev)", UNTAUGHT, "validation", 0.312, 0.369, -0.009, 0.392),
        ("1-bert (dev)", ONE, "validation", 0.497, 0.854, 0.863, 0.761),
        ("3-bert (dev)", THREE, "validation", 0.513, 0.868, 0.872, 0.772),
        ("hybrid-bert (dev)", HALF, "validation", 0.510, 0.871, 0.869, 0.772),
        ("hybrid-bert (test)", HALF, "test", 0.526, 0.882, 0.879, 0.782),
    )
)


def scheduled(name: str, decay: float) -> Match:
    return Match(
        "shared", needs={"training.lr_scheduler_type": name, "training.weight_decay": decay}
    )


TABLE_3 = tuple(
    PaperRow(label, dict(zip(TASKS, numbers, strict=True)), match)
    for label, match, *numbers in (
        ("OneCycleLR, No Weight Decay", scheduled("one-cycle", 0.0), 0.506, 0.701, 0.337),
        ("CosineAnnealingLR, No Weight Decay", scheduled("cosine", 0.0), 0.505, 0.714, 0.367),
        ("CosineAnnealingLR, 0.001 Weight Decay", scheduled("cosine", 1e-3), 0.505, 0.714, 0.367),
        ("No Scheduler, 0.0001 Weight Decay", scheduled("none", 1e-4), 0.464, 0.676, 0.404),
        ("No Scheduler, 0.001 Weight Decay", scheduled("none", 1e-3), 0.464, 0.676, 0.404),
        ("No Scheduler, 0.01 Weight Decay", scheduled("none", 1e-2), 0.467, 0.726, 0.370),
        ("No Scheduler, No Weight Decay", scheduled("none", 0.0), 0.464, 0.676, 0.404),
    )
)
PLAIN = scheduled("none", 1e-3)  # what the paper chose


def with_gradients(name: str, plan: str = "shared") -> Match:
    return Match(plan, needs={"training.gradients": name})


def reading(pair: str, *features: str) -> Match:
    told = {"training.features": list(features)} if features else {}
    return Match("shared", needs={"training.pair": pair, **told}, rather={"training.pool": "cls"})


def head(depth: int) -> Match:
    return Match("shared", needs={"training.head": {"kind": "mlp", "depth": depth, "width": 256}})


def dropping(share: float) -> Match:
    return Match("shared", needs={"training.head_dropout": share}, rather={"training.dropout": 0.1})


FINDINGS = (
    Stated(
        "Three encoders beat one: 0.772 against 0.761 (section 4.3, table 1).",
        beats(THREE, ONE, OVERALL),
    ),
    Stated(
        "Half of the layers shared is as good as three encoders: 0.772 both (section 5.4).",
        not_worse(HALF, THREE, OVERALL),
    ),
    Stated(
        "Half of the layers shared beats one encoder: 0.772 against 0.761 (abstract, table 1).",
        beats(HALF, ONE, OVERALL),
    ),
    Stated(
        "It has half as many parameters as three encoders (section 2; BERT-base: 59.6 %).",
        has_at_most(0.5, HALF, THREE),
    ),
    Stated(
        "Gradient surgery (PCGrad) does not raise the scores (section 4.2).",
        not_worse(with_gradients("sum"), with_gradients("pcgrad"), OVERALL),
    ),
    Stated(
        "A pair read as one text beats two vectors and their product, for both pair tasks "
        "(section 4.2).",
        all_of(
            *(
                beats(reading("cross"), reading("bi", "concat", "product"), task)
                for task in ("paraphrase", "similarity")
            )
        ),
    ),
    Stated(
        "The product of the two vectors adds to the vectors themselves (section 4.2).",
        all_of(
            *(
                beats(reading("bi", "concat", "product"), reading("bi", "concat"), task)
                for task in ("paraphrase", "similarity")
            )
        ),
    ),
    Stated(
        "The one-cycle schedule raises sentiment (section 4.1).",
        beats(scheduled("one-cycle", 0.0), PLAIN, "sentiment"),
    ),
    Stated(
        "It lowers similarity, and paraphrase too (section 4.1; its table 3 shows paraphrase "
        "higher, 0.701 against 0.676).",
        all_of(
            *(
                beats(PLAIN, scheduled("one-cycle", 0.0), task)
                for task in ("similarity", "paraphrase")
            )
        ),
    ),
    Stated(
        "Weight decay raises paraphrase (section 4.1; 0.726 with 0.01 in table 3).",
        beats(scheduled("none", 1e-2), PLAIN, "paraphrase"),
    ),
    Stated(
        "Heads of three layers beat shallower ones (section 4.2).",
        beats(head(2), Match("shared", needs={"training.head": "linear"}), OVERALL),
    ),
    Stated(
        "Deeper heads are no better (section 4.2).",
        not_worse(head(2), head(3), OVERALL),
    ),
    Stated(
        "More dropout than 0.3 in the heads is no better (section 5.3).",
        not_worse(dropping(0.3), dropping(0.5), OVERALL),
    ),
)  # fmt: skip

HYBRID = Paper(
    name="hybrid",
    title="Hybrid BERT",
    source="North and Weissberg: Hybrid BERT, Stanford CS224N default project, 2024",
    surveys=(
        "trunks", "hybrid-depth", "schedulers", "pairs", "heads", "dropout", "surgery",
        "single-task",
    ),
    setting=Setting(
        rows={"sentiment": 8_544, "paraphrase": 141_498, "similarity": 6_040},
        dev_rows={"sentiment": 1_101, "paraphrase": 20_212, "similarity": 863},
    ),
    tables=(
        PaperTable("hybrid-models", "Table 1, the final models",
                   (*SCORES, Column(OVERALL, "Overall Score")), TABLE_1,
                   "Overall: mean with (r + 1) / 2 in place of the correlation r. The baseline "
                   "trains sentiment alone, the other heads are as they were made."),
        PaperTable("hybrid-schedulers", "Table 3, schedulers and weight decay", SCORES, TABLE_3,
                   "With no scheduler, decays of 0, 0.0001 and 0.001 print the same digits in all "
                   "tasks, and so do both cosine rows: the option had no effect there. By its own "
                   "overall the cosine is best (0.634), not the rows without a scheduler (0.614) "
                   "that the text picks. The model of this table trained task after task, with "
                   "the two texts of a pair apart."),
    ),
    findings=FINDINGS,
    differences=(
        "Budget there: 20 epochs, without the number of steps or rows; the experiments here take "
        "500 steps of 8 rows of each task an epoch.",
        "Its data sizes count header lines (6,041 for 6,040); its course had a larger Quora file "
        "(283,010) than the one it quotes, so paraphrase may not be on the same rows.",
        "Half of the layers shared is 195.7 M of 328.4 M parameters on BERT-base, with embeddings "
        "shared: 59.6 %, not half.",
        "ReLU stands after each layer of its heads, perhaps on the logits too; here the last layer "
        "is linear.",
    ),
)  # fmt: skip
