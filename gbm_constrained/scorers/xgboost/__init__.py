"""The XGBoost classifier: arguments, callbacks, folds and model files."""
