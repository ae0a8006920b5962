"""Progressive Layer Sharing on BERT: its table of results, and what it found."""

from __future__ import annotations

from mops.papers.costs import as_quick, slower
from mops.papers.paper import TASKS, Column, Match, Paper, PaperRow, PaperTable, Setting, Stated
from mops.papers.verdicts import beats

HOUR = 3600
NORM = "training.head"
BASELINE = Match("shared", rather={NORM: {"norm": False}})
SHARED = Match("progressive", rather={NORM: {"norm": True}})
FED = Match("progressive", rather={NORM: {"norm": False}})  # all edges, without the norm
ROWS = tuple(
    PaperRow(label, dict(zip((*TASKS, "hours"), numbers, strict=True)), match, split=split)
    for label, match, split, *numbers in (
        ("Baseline", BASELINE, "validation", 0.439, 0.819, 0.508, 8 * HOUR),
        ("Shared Layer", SHARED, "validation", 0.488, 0.829, 0.591, 8 * HOUR),
    )
)
FINDINGS = (
    Stated(
        "Feeding earlier tasks into later ones raises similarity: .508 to .591 (section 5.4).",
        beats(SHARED, BASELINE, "similarity"),
    ),
    Stated(
        "It raises paraphrase a little: .819 to .829 (sections 5.4 and 6).",
        beats(SHARED, BASELINE, "paraphrase"),
    ),
    Stated(
        "It raises sentiment, which hears nobody: .439 to .488 (section 5.4).",
        beats(SHARED, BASELINE, "sentiment"),
    ),
    Stated(
        "Paraphrase fed into similarity improves similarity further (abstract).",
        beats(FED, Match("progressive:sentiment>paraphrase,sentiment>similarity"), "similarity"),
    ),
    Stated(
        "Heads that are heard must be frozen meanwhile: a full gradient is worse (section 6).",
        beats(FED, Match("progressive-full"), "overall"),
    ),
    Stated(
        "Without freezing the training takes much longer, by 400 % (section 5.2).",
        slower(Match("progressive-full"), FED),
    ),
    Stated(
        "With freezing it takes as long as the baseline, 8 hours both (section 5.4).",
        as_quick(SHARED, BASELINE, margin=0.2),
    ),
    Stated(
        "LayerNorm before the heads improves on plain feeding (section 5; mixed there).",
        beats(
            Match("progressive", needs={NORM: {"norm": True}}),
            Match("progressive", needs={NORM: {"norm": False}}),
            "overall",
        ),
    ),
)

PROGRESSIVE = Paper(
    name="progressive",
    title="Progressive Layer Sharing on BERT",
    source="Grudzinski: Progressive Layer Sharing on BERT, Stanford CS224N default project",
    surveys=("progressive", "stages"),
    setting=Setting(),
    tables=(
        PaperTable(
            "progressive-results",
            "Test accuracies and total training time (section 5.4)",
            (
                Column("sentiment", "Sentiment"),
                Column("paraphrase", "Paraphrase"),
                Column("similarity", "Similarity"),
                Column("hours", "Training Time"),
            ),
            ROWS,
            "The paper's table is of test scores, ours of the dev rows, whose labels are public. "
            "It prints no overall score; its text takes the plain mean (0.589 and 0.636). Times "
            "there are of whole runs, about 8 hours each; here of steps. Similarity is a "
            "correlation, which the paper calls an accuracy.",
        ),
    ),
    findings=FINDINGS,
    differences=(
        "The abstract has a dev score of similarity from 50.8 to 60.8, the table a test score from "
        ".508 to .591.",
        "Data sizes of 17688, 1068 and 755 there are batches of 8 rows.",
        "Its final model adds LayerNorm and dropout to the feeds; what they do alone was not "
        "measured with frozen heads.",
        "Dropout stands after its logits; here before the last layer, which is linear. What is "
        "fed here are logits; the paper does not say.",
        "Ten epochs on a frozen encoder and ten of everything there, their steps not given; the "
        "experiment here takes 1,000 steps an epoch.",
    ),
)
