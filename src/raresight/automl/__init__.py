"""The main job: options, search, evaluation and the outcome.

A family, a loss and parameters are chosen by cross-validation. The search is Optuna's; ours are the space,
the objective and a folder that can be continued after any interruption.
"""
