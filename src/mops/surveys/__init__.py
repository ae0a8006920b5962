"""Surveys: many recipes, their runs, their costs and the comparison between them."""
