"""From files to tokenised batches: readers, splits, checks, known data sets and schedules."""
