"""Answers from a trained model: inference, the bundle folder and the predictor."""
