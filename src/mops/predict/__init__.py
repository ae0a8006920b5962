"""Predictions of a trained model: inference, the bundle folder and the predictor."""
