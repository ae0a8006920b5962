"""Surveys: many recipes that differ in stated ways, their records, and the comparison."""
