"""What Python and the commands share: check, train, survey, recommend, report."""
