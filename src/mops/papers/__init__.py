"""The tables of the five papers with our numbers beside theirs, and a verdict on each finding."""

from mops.papers.compare import PaperView, claim_table, compare_with
from mops.papers.findings import Claim
from mops.papers.paper import NAMES, read_paper

__all__ = ["NAMES", "Claim", "PaperView", "claim_table", "compare_with", "read_paper"]
