"""The page: one file that needs nothing else."""

from mops.reports.page.render import render_page

__all__ = ["render_page"]
