"""Drop-in classifiers of XGBoost and of LightGBM."""
