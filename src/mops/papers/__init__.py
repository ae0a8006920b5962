"""The papers' tables with their own numbers beside ours, and their findings with verdicts."""

from __future__ import annotations

from mops.papers.paper import Claim, PaperView
from mops.papers.view import NAMES, PAPERS, claim_table, compare_with

__all__ = ["NAMES", "PAPERS", "Claim", "PaperView", "claim_table", "compare_with"]
