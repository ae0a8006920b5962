"""What a survey trains: candidates, seeds and budgets."""
