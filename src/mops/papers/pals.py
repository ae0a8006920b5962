"""BERT Multitask Methods for Low-Parameter Fine-Tuning: tables 1 to 3, and what it found."""

from __future__ import annotations

from mops.papers.paper import TASKS, Column, Match, Paper, PaperRow, PaperTable, Setting, Stated
from mops.papers.verdicts import all_of, beats

OVERALL = "overall_normalised"
SINGLE, MULTI, EMBERT = Match("separate"), Match("shared"), Match("embert")
TOP, PARALLEL = Match("pals:top"), Match("pals:parallel")
WEIGHTED, SAME = Match("pals:parallel-weighted"), Match("pals:both-same")
DIFFERENT, COMBINED = Match("pals:both-different"), Match("embert-pals")
OTHERS = (MULTI, EMBERT, TOP, PARALLEL, WEIGHTED, DIFFERENT, COMBINED)
SCORES = (
    Column("sentiment", "Sentiment"),
    Column("paraphrase", "Paraphrase"),
    Column("similarity", "STS"),
)
BY_PARTS = "by its three task scores"


def row(label: str, match: Match, *numbers: float, **facts: float) -> PaperRow:
    """`overall` in facts is what the printed one should be."""
    should = {OVERALL: facts["overall"]} if facts else {}
    split = "test" if label.endswith("(test)") else "validation"
    told = dict(zip((*TASKS, OVERALL), numbers, strict=False))
    return PaperRow(label, told, match, split, should, remark=BY_PARTS if facts else "")


ALONE = (
    row("Single Task", SINGLE, 0.522),
    row("Multitask", MULTI, 0.501, 0.709, 0.097),
)
METHODS = (
    row("Multitask", MULTI, 0.501, 0.709, 0.097, 0.586),
    row("EmBERT", EMBERT, 0.467, 0.550, 0.125, 0.527),
    row("PALs Top", TOP, 0.483, 0.674, 0.302, 0.602),
    row("PALs Parallel", PARALLEL, 0.482, 0.606, 0.069, 0.541),
    row("PALs Parallel Weighted", WEIGHTED, 0.503, 0.550, 0.147, 0.567, overall=0.542),
)
BOTH_PLACES = (
    row("Top + Parallel (Same)", SAME, 0.496, 0.680, 0.293, 0.608),
    row("Top + Parallel (Different)", DIFFERENT, 0.464, 0.626, 0.263, 0.573),
    row("Combined", COMBINED, 0.449, 0.686, 0.249, overall=0.586),
    row("Top + Parallel (Same) (test)", SAME, 0.505, 0.676, 0.315, 0.615, overall=0.613),
)
FINDINGS = (
    Stated(
        "A model for sentiment alone is better at it than the multitask model: 0.522 against 0.501 "
        "(section 5).",
        beats(SINGLE, MULTI, "sentiment"),
    ),
    Stated(
        "PALs on top beat the multitask baseline: 0.602 against 0.586 (section 5).",
        beats(TOP, MULTI, OVERALL),
    ),
    Stated(
        "EmBERT is worse than the baseline: 0.527 (section 5).",
        beats(MULTI, EMBERT, OVERALL),
    ),
    Stated(
        "PALs beside every layer are worse than the baseline: 0.541 (section 5).",
        beats(MULTI, PARALLEL, OVERALL),
    ),
    Stated(
        "PALs on top beat PALs beside every layer (section 5 and conclusion).",
        beats(TOP, PARALLEL, OVERALL),
    ),
    Stated(
        "A learned scalar per layer improves PALs beside the layers: 0.567 against 0.541 (section "
        "5; by its own task scores 0.542).",
        beats(WEIGHTED, PARALLEL, OVERALL),
    ),
    Stated(
        "The same PALs on top and beside the layers are the best of all: 0.608 (section 5; the "
        "abstract names those on top).",
        all_of(*(beats(SAME, other, OVERALL) for other in OTHERS)),
    ),
    Stated(
        "Two PALs per task are worse than one in both places: 0.573 against 0.608 (table 3).",
        beats(SAME, DIFFERENT, OVERALL),
    ),
    Stated(
        "The best model triples the baseline's similarity: 0.293 against 0.097 (analysis).",
        beats(SAME, MULTI, "similarity"),
    ),
    Stated(
        "The baseline has the best sentiment of all multitask models (analysis; its table 2 has "
        "0.503 for the weighted PALs, 0.501 for the baseline).",
        all_of(*(beats(MULTI, other, "sentiment") for other in (*OTHERS[1:], SAME))),
    ),
)

NORMALISED = "Overall: mean with (r + 1) / 2 in place of the correlation r."
PALS = Paper(
    name="pals",
    title="BERT Multitask Methods for Low-Parameter Fine-Tuning",
    source="Manchester: PALs and EmBERT, Stanford CS224N default project",
    surveys=("pals",),
    setting=Setting(steps=4_000),
    tables=(
        PaperTable("pals-baselines", "Table 1, baselines", SCORES, ALONE,
                   "Single Task there: sentiment alone (SST and CFIMDB); ours: a model per task."),
        PaperTable("pals-methods", "Table 2, individual methods",
                   (*SCORES, Column(OVERALL, "Overall")), METHODS, NORMALISED),
        PaperTable("pals-combined", "Table 3, combined methods, and the test scores",
                   (*SCORES, Column(OVERALL, "Overall")), BOTH_PLACES, NORMALISED),
    ),
    findings=FINDINGS,
    differences=(
        "4,000 batches in all with annealed sampling: about 460 of similarity, 15 of them in the "
        "first epoch, which is enough to explain correlations near 0.1.",
        "CFIMDB is a fourth training set there.",
        "PALs are inserted at random strength there; here what is added starts at identity and "
        "learns ten times as fast.",
        "Projections have copies for each layer there (5.28 M parameters a task on BERT-base); "
        "here they are shared over layers as in the original (1.82 M).",
        "Batch size, number of heads and the first scalar are not given there.",
    ),
)  # fmt: skip
