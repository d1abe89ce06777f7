"""The LightGBM classifier: arguments, callbacks, folds and model files."""
