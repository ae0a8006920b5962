"""Hand-written material of the sample data and the code that puts it together."""
