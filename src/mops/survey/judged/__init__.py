"""What a survey found: results joined, compared, said in words. No torch."""
