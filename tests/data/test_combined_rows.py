"""Training rows with those of further data sets, targets, and partitions into cells."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from random_rows import N, decisions, draw, measure, some_constraints
from scipy import sparse

import gbm_constrained as gc
from gbm_constrained.constraints.rates import (
    coverage,
    mean_loss,
    mean_prediction,
    row_functions_of,
)
from gbm_constrained.constraints.selectors import Mask, dataset
from gbm_constrained.data.fit_data import (
    CombinedRows,
    FitArguments,
    FitData,
    check_targets,
    encode,
)
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints

X = np.arange(12.0).reshape(6, 2)
Y = np.array(["n", "p", "p", "n", "n", "p"])
CLASSES, CODES = np.unique(Y, return_inverse=True)
U, E = X[:2] + 0.25, X[:3] + 0.5


FORMS = {
    "array": np.asarray,
    "list": lambda x: x.tolist(),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "frame": lambda x: pd.DataFrame(x, columns=["a", "b"]),
}


def stacked(table, datasets, weight=None, y=Y):
    return CombinedRows.of(table, y, weight, CODES, CLASSES, datasets)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weight", [None, np.arange(6.0)])
def test_rows_of_data_sets_follow_the_training_rows(form, weight):
    """With weight zero and any label for the library, and no class here where none is known."""
    make = FORMS[form]
    stack = stacked(make(X), {"monitor": make(U), "egregious": (make(E), ["p", "n", "p"])}, weight)
    table = stack.X.toarray() if sparse.issparse(stack.X) else np.asarray(stack.X)
    np.testing.assert_array_equal(table, np.concatenate([X, U, E]))
    assert isinstance(stack.X, pd.DataFrame) == (form == "frame")
    np.testing.assert_array_equal(stack.y[:6], Y)
    assert set(stack.y[6:8]) <= {"n", "p"}
    assert stack.y[8:].tolist() == ["p", "n", "p"]
    np.testing.assert_array_equal(stack.codes, [*CODES, -1, -1, 1, 0, 1])
    expected = np.ones(6) if weight is None else weight
    np.testing.assert_array_equal(stack.sample_weight, [*expected, *np.zeros(5)])
    assert stack.names == ("monitor", "egregious")
    assert stack.sizes == [6, 2, 3]
    assert [np.shape(f)[0] for f in stack.features] == [6, 2, 3]


def test_weights_of_other_rows():
    """One in rates; that of the average training row in the distance of scores."""
    stack = stacked(X, {"monitor": U})
    weight = np.arange(6.0)
    np.testing.assert_array_equal(stack.extend(weight, 1.0), [*weight, 1, 1])
    np.testing.assert_array_equal(stack.extend(weight), [*weight, 2.5, 2.5])
    assert stack.extend(None, 1.0) is stack.extend(None) is None
    column = stacked(X, {"monitor": U}, weight[:, None])
    np.testing.assert_array_equal(column.sample_weight, [*weight, 0, 0])


@pytest.mark.parametrize("datasets", [None, {}])
def test_without_data_sets_nothing_is_touched(datasets):
    weight = [1.0] * 6
    stack = stacked(X, datasets, weight)
    assert stack.X is X
    assert stack.y is Y
    assert stack.sample_weight is weight
    assert stack.names == ()
    assert stack.sizes == [6]
    assert stack.extend(np.ones(6), 1.0).size == 6
    stack.refuse_with(init_score=np.ones(6))


def test_categories_are_those_of_the_training_rows():
    """Given as text or in another order; unknown ones are missing values."""
    categories = pd.CategoricalDtype(["x", "y", "z"])
    train = pd.DataFrame(
        {"a": [1, 2, 3, 4, 5, 6], "c": pd.Series(list("xyzxyz"), dtype=categories)}
    )
    for column in (
        list("zxq"),
        pd.Categorical(list("zxq")),
        pd.Categorical(list("zxq"), categories=list("qzyx")),
    ):
        stack = stacked(train, {"m": pd.DataFrame({"a": [7, 8, 9], "c": column})})
        assert stack.X["c"].dtype == categories
        assert stack.X["c"].cat.codes.tolist() == [0, 1, 2, 0, 1, 2, 2, 0, -1]
        assert stack.X["a"].dtype == train["a"].dtype
    ordered = train.astype({"c": pd.CategoricalDtype(["z", "y", "x"], ordered=True)})
    stack = stacked(ordered, {"m": train})
    assert stack.X["c"].dtype == ordered["c"].dtype
    assert stack.X["c"].tolist() == list("xyzxyz") * 2
    assert train["c"].dtype == categories  # the user's table is left alone


def test_numbers_are_kept_as_they_are():
    """Fractions and missing values below a column of integers are not cut off."""
    train = pd.DataFrame({0: np.arange(6), 1: np.arange(6) > 2, 2: np.float32(np.arange(6))})
    other = pd.DataFrame({0: [2.75, np.nan], 1: [True, False], 2: [0.1, 0.2]})
    stack = stacked(train, {"m": other})
    np.testing.assert_array_equal(stack.X[0][6:], [2.75, np.nan])
    assert stack.X[1].dtype == bool
    np.testing.assert_array_equal(stack.X[2][6:], [0.1, 0.2])


def test_labels_of_data_sets():
    frame = pd.DataFrame({"y": ["p", "n"]})
    for y in (["p", "n"], np.array(["p", "n"]), pd.Series(["p", "n"], index=[5, 6]), frame):
        assert encode(y, CLASSES, "d").tolist() == [1, 0]
    assert encode([True, False], np.array([0, 1]), "d").tolist() == [1, 0]
    assert encode([], CLASSES, "d").tolist() == []
    for classes in (np.array([0, 1]), np.array([0.0, 1.0]), np.array([False, True])):
        for y in ([1, 0], [1.0, 0.0], [True, False], np.array([1, 0], dtype=object)):
            assert encode(y, classes, "d").tolist() == [1, 0]
    for unit in ("ns", "D"):
        days = np.array(["2020-01-01", "2020-01-02"], dtype=f"datetime64[{unit}]")
        assert encode(days[::-1], days, "d").tolist() == [1, 0]


def test_labels_of_data_sets_in_a_dictionary_of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow")
    labels = pyarrow.chunked_array([pyarrow.array(["p", None]).dictionary_encode()])
    with pytest.raises(ValueError, match=r"d has 1 missing values .*, the first in row 1"):
        encode(labels, CLASSES, "d")
    assert encode(labels.slice(0, 1), CLASSES, "d").tolist() == [1]


FRAME = FORMS["frame"](X)


@pytest.mark.parametrize(
    ("table", "datasets", "error", "reason"),
    [
        (X, [U], TypeError, "datasets must be a dict from name to X or (X, y), got list"),
        (X, U, TypeError, "datasets must be a dict from name to X or (X, y), got ndarray"),
        (X, {"m": (U, ["n", "p"], [1, 1])}, ValueError, "datasets['m'] must be X, or a tuple"),
        (X, {"m": None}, TypeError, "datasets['m'] has no features"),
        (X, {"m": (None, ["n", "p"])}, TypeError, "datasets['m'] has no features"),
        (X, {"m": U[:0]}, ValueError, "datasets['m'] has no rows"),
        (X.tolist(), {"m": []}, ValueError, "datasets['m'] has no rows"),
        (X, {"m": (U, ["n", "x"])}, ValueError, "datasets['m'] holds label 'x', which is not"),
        (X, {"m": (U, [0, 1])}, ValueError, "datasets['m'] holds label 0, which is not among"),
        (X, {"m": (U, ["n", None])}, ValueError, "datasets['m'] has 1 missing values (NaN"),
        (X, {"m": (U, [np.nan, 1])}, ValueError, "(NaN or None), the first in row 0"),
        (X, {"m": (U, ["n", np.nan])}, ValueError, "datasets['m'] has 1 missing values"),
        (X, {"m": (U, np.ma.array([0, 1], mask=[0, 1]))}, ValueError, "the first in row 1"),
        (
            X,
            {"m": (U, [["n", "p"]])},
            ValueError,
            "must be one-dimensional, one value for each row",
        ),
        (X, {"m": (U, np.array([0, 1], object))}, ValueError, "datasets['m'] holds label 0"),
        (X, {"m": (U, ["n"])}, ValueError, "datasets['m'] has 2 rows of features and 1 labels"),
        (X, {"m": U[:, :1]}, ValueError, "datasets['m'] must have the 2 columns of X, got 1"),
        (X, {"m": U[:, 0]}, ValueError, "datasets['m'] must have the 2 columns of X, got 0"),
        (X.tolist(), {"m": [[1], [2]]}, ValueError, "must have the 2 columns of X, got 1"),
        (X, {"m": [U, ["n", "p"]]}, TypeError, "give X, or a tuple (X, y)"),
        (X, {"m": [U.tolist(), ["n", "p"]]}, TypeError, "a list that begins with a table"),
        (X, {"m": FRAME}, TypeError, "datasets['m'] is a pandas DataFrame and X a numpy ndarray"),
        (FRAME, {"m": U}, TypeError, "datasets['m'] is a numpy ndarray and X a pandas DataFrame"),
        (FRAME, {"m": U}, TypeError, "no step of a Pipeline transforms them: prepare them as X"),
        (X, {"m": sparse.csr_array(U)}, TypeError, "is a scipy csr_array and X a numpy ndarray"),
        (sparse.csr_array(X), {"m": U}, TypeError, "is a numpy ndarray and X a scipy csr_array"),
        (X, {"m": U[:, :1]}, ValueError, "got 1 (rows of datasets= are taken as they are given"),
        (
            sparse.csr_array(X),
            {"m": sparse.csr_array(U[:, :1])},
            ValueError,
            "must have the 2 columns of X, got 1",
        ),
        (
            FRAME,
            {"m": FRAME[["b", "a"]]},
            ValueError,
            "the columns of X in the same order: ['a', ",
        ),
        (FRAME, {"m": FRAME[["a"]]}, ValueError, "got ['a']"),
        (memoryview(X), {"m": memoryview(X)}, TypeError, "not below a memoryview"),
    ],
)
def test_what_cannot_be_stacked_is_refused(table, datasets, error, reason):
    with pytest.raises(error) as caught:
        stacked(table, datasets)
    assert reason in str(caught.value)


@pytest.mark.parametrize("form", ["array", "list", "frame"])
@pytest.mark.parametrize("move", [lambda x: 10 * x + 100, lambda x: x - 25, lambda x: 1e3 * x])
def test_rows_that_are_unlike_all_training_rows_are_warned_of(form, move):
    """As those that a step of a pipeline should have transformed."""
    table, other = X.copy(), X[:2] + 1.0
    other[:, 1] = move(other[:, 1])
    column = "'b'" if form == "frame" else "1"
    with pytest.warns(
        UserWarning,
        match=rf"datasets\['m'\] is unlike X: in column {column} X goes from 1 to 11, .* prepare",
    ):
        stacked(FORMS[form](table), {"near": FORMS[form](U), "m": FORMS[form](other)})


@pytest.mark.parametrize("form", FORMS)
def test_drift_is_not_warned_of(form):
    """Rows beyond all training rows, single outliers, constant columns and missing values."""
    rng = np.random.default_rng(0)
    table = np.column_stack([np.linspace(-1, 1, 6), np.arange(2010, 2016), np.zeros(6)])
    other = np.column_stack([rng.normal(1.5, 0.5, 40), np.full(40, 2020), np.full(40, 7.0)])
    other[:15, 0] = 1e9
    if form == "list" or form == "frame":
        table[0, 0] = other[20, 0] = np.nan
    make = FORMS[form] if form != "frame" else pd.DataFrame
    stacked(make(table), {"m": make(other)})


def test_columns_that_are_no_numbers_are_not_compared():
    table = pd.DataFrame({"a": list("xyzxyz"), "b": pd.date_range("2020", periods=6)})
    stacked(table, {"m": table + pd.DataFrame({"a": [""] * 6, "b": [pd.Timedelta("900D")] * 6})})


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_tables_of_other_libraries(package):
    """Stacked as they are; of another library, with other columns or categories refused."""
    module = pytest.importorskip(package, reason=f"{package} is in the extra 'ecosystem'")
    make = module.DataFrame if package == "polars" else module.table
    table, other = ({"a": x[:, 0], "b": x[:, 1]} for x in (X.astype(int), U))
    stack = stacked(make(table), {"m": (make(other), ["p", "n"])})
    assert type(stack.X) is type(make(table))
    np.testing.assert_array_equal(stack.X.to_pandas(), np.concatenate([X, U]))
    with pytest.raises(TypeError, match=rf"is a pandas DataFrame and X a {package} \w+"):
        stacked(make(table), {"m": pd.DataFrame(other)})
    with pytest.raises(ValueError, match=r"in the same order: \['a', 'b'\]; got \['b"):
        stacked(make(table), {"m": make({"b": U[:, 1], "a": U[:, 0]})})
    words = list("xyzxyz")
    if package == "polars":
        named = make({"a": words}, schema={"a": module.Categorical})
    else:
        named = make({"a": module.array(words).dictionary_encode()})
    with pytest.raises(TypeError, match=rf"categorical columns \['a'\] of a {package} .* pandas"):
        stacked(named, {"m": named})


def test_values_of_rows_that_data_sets_lack_are_refused():
    stack = stacked(X, {"m": U})
    stack.refuse_with(init_score=None)
    with pytest.raises(
        ValueError, match=r"init_score cannot be given together with datasets=\['m"
    ):
        stack.refuse_with(init_score=np.ones(6))


@pytest.mark.parametrize(
    "y",
    [
        [1, 2, 3],
        np.array([1, 2, 3], dtype=np.float32),
        pd.Series([1.0, 2.0, 3.0]),
        np.array([[1.0], [2.0], [3.0]]),
        np.array(["1", "2", "3"]),
    ],
)
def test_targets_are_read_as_numbers(y):
    found = check_targets(y)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.inf], "y is inf in row 1: drop those rows, or clip them"),
        (["low", "high"], "y holds 'low', which is no number: a regressor needs numbers"),
        (np.ones((3, 2)), "y"),
        ([1.0, np.nan], "y"),
    ],
)
def test_refused_targets(y, message):
    with pytest.raises(ValueError, match=message):
        check_targets(y)


def make(rules, datasets=None, n=6, **given):
    X = np.arange(float(n))[:, None]
    return FitData.of(
        FitArguments(X, np.arange(1.0, n + 1), datasets=datasets, **given), rules, has_targets=True
    )


def test_functions_stand_in_the_place_of_classes():
    rules = [mean_prediction() <= 1, mean_loss() <= 1, mean_loss() >= 0.1, coverage() >= 0.5]
    data = make(rules)
    assert data.classes.tolist() == [function.key for function in row_functions_of(rules)]
    assert len(data.classes) == 3
    np.testing.assert_array_equal(data.y, 0)
    np.testing.assert_array_equal(data.targets, np.arange(1.0, 7.0))
    assert data.columns == 1
    assert make([]).classes.size == 1


def test_further_rows_have_targets_or_none():
    X = np.zeros((2, 1))
    rules = [
        mean_prediction(on=dataset("new")) <= 1,
        mean_loss(on=dataset("known")) <= 1,
    ]
    data = make(rules, {"new": X, "known": (X, [7.0, 8.0])})
    np.testing.assert_array_equal(data.targets, [1, 2, 3, 4, 5, 6, 0, 0, 7, 8])
    np.testing.assert_array_equal(data.rows.y, [0] * 6 + [-1] * 2 + [0] * 2)


def test_further_targets_of_another_length_are_refused():
    rules = [mean_loss(on=dataset("known")) <= 1]
    message = r"datasets\['known'\] has 2 rows of features and 3 targets"
    with pytest.raises(ValueError, match=message):
        make(rules, {"known": (np.zeros((2, 1)), [1.0, 2.0, 3.0])})
    with pytest.raises(ValueError, match=r"y of datasets\['known'\] is inf in row 0"):
        make(rules, {"known": (np.zeros((2, 1)), [np.inf, 1.0])})


def test_losses_of_rows_without_targets_are_refused():
    rules = [mean_loss(on=dataset("new")) <= 1]
    with pytest.raises(ValueError, match="new"):
        compile_constraints(rules, make(rules, {"new": np.zeros((2, 1))}).rows)


def test_evaluation_rows_are_encoded_alike():
    rules = [gc.gap(mean_loss(), by="group", min_group_size=1) <= 1]
    group = np.array(list("aabbab"))
    data = make(rules, sensitive_features={"group": group})
    rows = data.evaluation_rows("eval", np.zeros((2, 1)), [5.0, 6.0], None, {"group": ["b", "a"]})
    np.testing.assert_array_equal(rows.y, 0)
    assert rows.classes.tolist() == data.classes.tolist()
    with pytest.raises(ValueError, match="y of eval"):
        data.evaluation_rows("eval", np.zeros((2, 1)), [5.0, np.nan])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_small_and_large_numbers_of_cells_are_summed_alike(n_classes, dtype):
    """The two ways of summing by cell agree: idle masks make more cells, and other sums."""
    y, margin, weight, masks = draw(n_classes, n=3000, seed=4)
    idle = np.random.default_rng(4).random((3, 3000)) < 0.5
    few = some_constraints(n_classes, [masks[0], masks[0]])
    many = [*few, *(gc.error_rate(on=mask) <= 0.1 for mask in idle)]
    assert n_cells(few, y, n_classes) <= 12
    assert n_cells(many, y, n_classes) > 12
    tables = [
        measure(constraints, y, margin.astype(dtype), weight, dtype=dtype)[: len(few)]
        for constraints in (few, many)
    ]
    np.testing.assert_allclose(*tables, rtol=1e-6 if dtype == np.float32 else 1e-12)


def n_cells(constraints, y, n_classes):
    return len(compile_constraints(constraints, Rows(y, np.arange(n_classes)))[0])


def test_more_cells_than_a_byte_can_number():
    """Eight masks make 512 cells; their sums are right and add up to those of the rows."""
    rng = np.random.default_rng(5)
    y, margin, weight, _ = draw(2, n=4000, seed=5)
    masks = rng.random((8, 4000)) < 0.5
    constraints = [gc.error_rate(on=mask) <= 0.1 for mask in masks]
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(2), weight))
    assert len(cells) == 512
    sums = cells.sum_by_cell(margin, slice(0, 4000))
    expected = [margin[cells.codes == c].sum() for c in range(512)]
    np.testing.assert_allclose(sums, expected, atol=1e-12)
    found = measure(constraints, y, margin, weight)
    wrong = (decisions(margin) != y) * weight
    np.testing.assert_allclose(found, masks @ wrong / (masks @ weight), rtol=1e-12)


def test_the_sum_of_a_block_is_that_of_its_rows_alone():
    y, _, weight, masks = draw(3, seed=6)
    rule = gc.error_rate(on=masks[0]) <= 0.1
    cells, _ = compile_constraints([rule], Rows(y, np.arange(3), weight))
    parts = [cells.sum_by_cell(weight[s], s) for s in (slice(0, 17), slice(17, N))]
    np.testing.assert_allclose(sum(parts), cells.weight, rtol=1e-12)


def test_cells_are_the_rows_that_share_label_and_masks():
    """Each combination has one cell, whether a row is in it or not."""
    y, _, weight, masks = draw(3, seed=7)
    constraints = [gc.error_rate(on=masks[0]) <= 0.1, gc.class_error(0, on=masks[1]) <= 0.1]
    constraints.append(gc.log_loss(on=masks[0]) <= 0.1)
    cells, _ = compile_constraints(constraints, Rows(y, np.arange(3), weight))
    assert len(cells) == 3 * 2 * 2
    (view,) = cells.views
    keys = [Mask.from_array(mask) for mask in masks]
    assert set(view.levels) == {"label", *keys}
    for i, c in enumerate(cells.codes):
        assert cells.labels[c] == y[i]
        assert [bool(view.levels[key][c]) for key in keys] == masks[:, i].tolist()
    attributes = {
        (cells.labels[c], *(bool(view.levels[key][c]) for key in keys)) for c in range(len(cells))
    }
    assert len(attributes) == len(cells)
    np.testing.assert_allclose(cells.weight, np.bincount(cells.codes, weight, len(cells)))
    assert cells.count.tolist() == np.bincount(cells.codes, minlength=len(cells)).tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1001])
def test_the_size_of_a_mask_is_its_number_of_rows(n):
    """Bits beyond the last row do not count."""
    rows = np.random.default_rng(n).random(n) < 0.4
    packed = bytearray(Mask.from_array(rows).packed)
    assert Mask(bytes(packed), n).size == rows.sum()
    if n % 8:
        packed[-1] |= 1
    mask = Mask(bytes(packed), n)
    assert mask.size == rows.sum()
    assert mask.to_array().tolist() == rows.tolist()


def test_a_mask_given_twice_adds_no_cells():
    y, *_, masks = draw(2)
    one = [gc.error_rate(on=masks[0]) <= 0.1]
    two = [*one, gc.fnr(on=masks[0].copy()) <= 0.2]
    for constraints in (one, two, [*one, *two]):
        cells, _ = compile_constraints(constraints, Rows(y, np.arange(2)))
        assert len(cells) == 4
    cells, _ = compile_constraints([gc.error_rate(on=(masks[0], masks[0])) <= 0.1], cells.rows)
    assert len(cells) == 4


def test_cells_without_rows_change_nothing():
    """A mask that is a class leaves half of the combinations empty."""
    y, margin, weight, _ = draw(2, seed=8)
    found = measure([gc.error_rate(on=y == 1) <= 0.1, gc.fnr() <= 0.1], y, margin, weight)
    assert found[0] == pytest.approx(found[1], rel=1e-14)
