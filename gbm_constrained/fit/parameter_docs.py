"""Documentation of the parameters that the classifiers add."""

from __future__ import annotations

SOLVER_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        Constraints, such as ``[fnr() <= 0.05]`` (:mod:`gbm_constrained.constraints.rates`). With
        none, the parent's own ``fit`` is called and nothing else happens.
    positive : label, default=None
        The positive class of all rates that name none: with ``positive="fraud"`` the constraint
        ``fnr() <= 0.05`` is ``fnr("fraud") <= 0.05``. By default the last of two sorted labels.
        Of more classes, it is one against all others. ``classes_`` and ``predict_proba`` keep the
        parent's order.
    iterate : {"last", "best", "randomized"}, default="last"
        Which iterate is returned: the last one (where constraints are measured on training rows
        and it violates them, the last of the later half that meets them, or violates them
        least); the one of smallest error among those that meet all constraints, on the rows that
        these are measured on; or a
        distribution over prefixes of the ensemble that meets the constraints in the mean, or
        nearest to that with a warning (``prefixes_``), from which ``predict(...,
        random_state=)`` draws one for each row.
    solver : {"auto", "abpp", "cbpr", "threshold"} or object, default="auto"
        The outer loop: a name, or an object with its own options such as
        ``ABPP(rounds_per_iteration=1)`` of :mod:`gbm_constrained.solvers`, which ``set_params``
        reaches as ``solver__rounds_per_iteration``. "auto" takes CBPR for
        differences of mean losses, such as ``gap(log_loss(), by=...)``, which are not convex, and
        ABPP for everything else.
        "threshold" takes none: the library's own boosters, whose threshold (or class biases) is
        moved on held-out rows until the constraints are met. Constraints on labels and decisions
        alone, such as ``fnr() <= 0.05``, may do better without multipliers; "auto" compares both
        for those, where boosters are grown on part of the rows; see
        :mod:`gbm_constrained.fit.cross_fit`. With a black box as the objective, "auto" or
        :class:`~gbm_constrained.solvers.AdaptiveSurrogates` with other options."""
UNSEEN_PARAMETERS_DOC = """
    measure_on : {"auto", "train", "holdout", "crossfit", "forward"}, object or splitter, \
            default="auto"
        The rows whose rates move the multipliers; see :mod:`gbm_constrained.fit.fit`.
        "crossfit" grows four boosters in step, each without one fold, "holdout" one, and the model
        is then trained on all rows with the multipliers found. "auto" takes "holdout" if every
        rate is taken over 50,000 rows, and "crossfit" if not; "train" in continued training, where
        neither is possible. "forward" needs `time` in ``fit``: it grows each booster on all
        periods before the one that it is measured on. Rows of a guarantee are then the latest.
        ``CrossFit(n_folds=3)``, ``Holdout(0.25)`` and ``Forward(n_folds=3)`` have options. A
        splitter of scikit-learn, which gets `X`, `y` and `groups` of ``fit``, or a list of pairs
        (train, test) of positions of rows, makes the folds of "crossfit". Each row is held out
        once at most; rows that are never held out do not measure the constraints.
    guarantee : {None, "expected", "high_probability"} or object, default=None
        Guarantee for new rows, by a fifth of the rows that is set aside for it; see
        :mod:`gbm_constrained.decision.guarantees`. ``HighProbability(delta=0.05, fraction=0.2)``
        and ``Expected(fraction=0.2)`` have options.
    probabilities : {"shifted", "calibrated"}, default="shifted"
        Whether the shift of the decisions is folded into the model, or kept beside it
        (``shift_``), where ``predict`` applies it and probabilities stay as trained. Bounds of
        ``calibration_error()`` need "calibrated".
    on_infeasible : {"warn", "raise"}, default="warn"
        Whether constraints that cannot be met raise a warning or an error, once the model is
        trained. "raise" is refused where no conflict is looked for: on training rows, and for
        averages of models.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        Criterion of early stopping, after the parent's ``early_stopping_rounds``: the parent's
        metric; the log loss plus the price of the constraints on the last evaluation set; or the
        metric among the rounds that meet the constraints. The last two look at each round under
        the best threshold on its scores, where the model gets a threshold in the end. See
        :mod:`gbm_constrained.fit.options`.
    select : {"error", "auc"}, default="error"
        What is best among the prefixes that meet the constraints, with ``iterate="best"``: the
        smallest error on held-out rows, or the largest AUC there. "auc" is for scores of two
        classes that are used without a threshold, and needs held-out rows.
    group_thresholds : bool, default=False
        Whether the final decision uses the group, by a threshold for each group of the columns
        that constraints group by. These must be columns of X. The thresholds are one more tree of
        the model (``group_shifts_``), and chosen on held-out rows. A warning says once that
        decisions by group are unlawful in places; see
        :mod:`gbm_constrained.decision.groups`."""
METRIC_PARAMETERS_DOC = """
    maximize, minimize : Metric, Rate, Quotient or str, default=None
        The objective of the decisions, such as ``maximize=g_mean()``, ``maximize=recall()`` or
        ``minimize=error_rate()`` (see :mod:`gbm_constrained.metrics`); at most one of them. The
        boosters are the library's own, and decision rules on their probabilities are optimised
        under the constraints on rows that the boosters have not seen. A
        :class:`~gbm_constrained.metrics.BlackBox` is a function to call: the weights of the
        booster's trees are optimised for it, on rows that ``fit`` is given or holds out.
        ``solver=Reduction(...)`` has options of the search, such as whether boosters take part in
        it (`oracle`), whether the boosters of the folds are merged (`ensemble`), and whether one
        rule is returned (`deterministic`)."""
FITTED_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows (``train``), its value
        on held-out rows (``held_out``) with a 95% interval (``low``, ``high``), the rows that the
        verdict is by (``rows``: those of a certificate, else the last evaluation set, else those
        that measured the constraints; out of fold the interval is that of one more booster than
        those of the folds), its multiplier, whether the value is within the bound on the training
        rows (``train_satisfied``) and on held-out ones (``satisfied``, missing without any), and
        the ``verdict``; see :class:`~gbm_constrained.evaluation.verdicts.Verdict`.
    cost_report_ : DataFrame
        What the constraints cost: the error on held-out rows and the value of each constraint
        there, of the plain model (row ``plain``, NaN where none was grown) and of the one returned
        (row ``returned``). With `maximize` or `minimize` there is none.
    shift_ : ndarray of shape (1,) or (n_classes,)
        Shift that was added to the scores; zero where the decisions stayed.
    adjustment_ : Series
        With bounds of ``calibration_error()``: ``scale`` and ``shift`` of the scores, one and zero
        where these stayed.
    group_shifts_ : DataFrame
        With `group_thresholds`: one row per group, with its values of the columns, the ``shift``
        of its scores, which contains ``shift_``, and its training ``rows``. Groups that have too
        few rows or a missing value have the common shift, as have values that training lacks.
    history_ : DataFrame
        One row per outer iteration: objective, values, bounds and multipliers of the constraints,
        Bregman distance, seconds.
    group_report_ : DataFrame
        One row per group of each constraint that compares groups: its training rows and its
        rates, with the interval of that on held-out rows. Groups of the last evaluation set that
        no training row is of have no training rows.
    period_report_ : DataFrame
        With ``measure_on="forward"``: one row per constraint and held-out period, with its number
        (``period``), its ``first`` and ``last`` time, its ``rows``, and the ``value`` of the
        constraint with its 95% interval (``low``, ``high``), by the decisions of the boosters
        before the period. In the last period also the interval that earlier ones leave for the
        value (``expected_low``, ``expected_high``), and whether the value is outside
        (``drifts``). Decisions that optimise a metric have rows of it after the constraints.
    small_groups_ : DataFrame
        One row per group of each constraint that compares groups, in which its rate is taken over
        fewer than `min_group_size` training rows: their number, and whether the group is kept,
        merged with others or left out.
    multipliers_ : Series
        Multipliers of the returned model, by linear row that the constraints compile to.
    unseen_accuracy_ : Estimate
        Accuracy on the rows of ``constraint_report_["held_out"]``, and its interval; NaN where
        there are none, and of a randomised classifier.
    feasibility_ : Feasibility
        Verdict on each constraint as an object, the constraints that conflict, and the values
        that were reached instead. The ``status`` is the gravest verdict.
    stopping_message_ : str or None
        Cause of an end before all rounds (a constraint callback, ``time_limit``), the rounds
        until then, and what was given up for the time limit; None without such an end.
    metric_report_ : DataFrame
        With `maximize` or `minimize`: one row per candidate (decisions by the largest
        probability, by the largest one divided by the share of the class, by the optimum for the
        model's probabilities, and by the optimum for the labels), with the metric on held-out
        rows and its 95% interval, the largest violation of a constraint there, the number of
        rules, and which one is returned; of that one also its value on the training rows, the
        bound for the model's probabilities, and the value of the mixture that one rule stands
        for. One more row per evaluation set has the value of the returned decisions there.
    mixture_ : DataFrame
        With `maximize` or `minimize`: the rules that decisions are drawn from, with their
        probability and, where a rule weighs classes, its weights.
    blackbox_report_ : DataFrame
        With a :class:`~gbm_constrained.metrics.BlackBox`: one row per model (the library's own,
        its best threshold, the best threshold of each group, and the returned one), with the
        metric on rows that chose nothing (``evaluation``) and its 95% interval (``low``,
        ``high``), by how much the returned model is better there (``gain``, with the interval of
        the paired difference, and the ``verdict``), the metric on the rows that chose
        (``validation``), the largest ``violation`` of a constraint on the rows of evidence, both
        numbers of rows, and the number of ``calls``. Intervals are of standard errors by a
        bootstrap within each label of each group.
    blackbox_parameters_ : DataFrame
        With a black box: each parameter of the model ``before`` and ``after``, the offset of each
        group, and what is added to all scores. ``history_`` then has one row per iteration, with
        the metric on the rows that choose (and the price of violations), the surrogates, their
        targets and the estimated gradient of the metric in them.
    prefixes_ : DataFrame
        With ``iterate="randomized"``: boosting rounds of each prefix, and its probability.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5.
"""
