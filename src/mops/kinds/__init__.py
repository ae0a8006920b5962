"""Kinds of tasks: what a task answers, how answers are read, decided, written and scored."""
