"""Shared descriptions of parameters in docstrings."""

import inspect

from gbm_constrained._docstrings import document_parameters

SHARED = {"a": "a : int\n    First.", "c": "c : int\n    Third.", "d": "d : int\n    Elsewhere."}


def test_parameters_stand_in_the_order_of_the_signature():
    def f(a, b, *, c, **options):
        """Do it.

        More text.

        Parameters
        ----------
        b, other : int
            Second.
        c : float
            The function's own.
        option : bool
            One of the keywords.

        Raises
        ------
        ValueError
            Never.
        """

    assert document_parameters(f, SHARED, "Returns\n-------\nint") is f
    assert f.__doc__ == inspect.cleandoc(
        """Do it.

        More text.

        Parameters
        ----------
        a : int
            First.
        b, other : int
            Second.
        c : float
            The function's own.
        option : bool
            One of the keywords.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            Never.
        """
    )


def test_a_summary_alone_gets_a_section():
    def f(c, a):
        """Do it."""

    document_parameters(f, SHARED)
    assert f.__doc__ == (
        "Do it.\n\nParameters\n----------\nc : int\n    Third.\na : int\n    First."
    )
