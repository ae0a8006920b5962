"""Export: a trained model as folders that other tools load."""
