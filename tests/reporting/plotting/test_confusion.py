"""Confusion matrices of groups are scikit-learn's, and their names are apart."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import Fixed
from sklearn.metrics import confusion_matrix

import gbm_constrained as gc
from gbm_constrained.plotting import GroupConfusionDisplay


@pytest.mark.parametrize("normalize", ["true", "pred", "all", None])
@pytest.mark.parametrize("weighted", [False, True])
def test_confusion_of_each_group_is_scikit_learns(decided, normalize, weighted):
    y, predicted, columns, weight = decided
    names = np.array(["no", "yes"])
    given = {"sample_weight": weight} if weighted else {}
    display = GroupConfusionDisplay.from_predictions(
        names[y], names[predicted], sensitive_features=columns, normalize=normalize, **given
    )
    for i, g in enumerate("abc"):
        inside = columns["g"] == g
        part = {"sample_weight": weight[inside]} if weighted else {}
        expected = confusion_matrix(y[inside], predicted[inside], normalize=normalize, **part)
        np.testing.assert_allclose(display.shown_[i], expected)
        shown = "{:,.6g}" if normalize is None else "{:.3f}"
        for (k, j), value in np.ndenumerate(expected):
            text = display.text_[i, k, j]
            assert text.get_text() == shown.format(value)
            assert text.get_position()[0] == j
        assert display.groups[i] == f"g={g} (n={inside.sum()})"
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["no", "yes"] * 3
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["no", "yes"]
    meshes = display.ax_.collections
    np.testing.assert_array_equal([m.get_array() for m in meshes], display.shown_)
    assert len({m.norm for m in meshes}) == 1  # colours can be compared between groups
    assert display.ax_.get_ylabel() == "true class"
    assert display.ax_.get_xlabel() == "predicted class"


def test_numbers_of_rows_are_whole():
    """As scikit-learn's, which take values_format="d"; of millions, all digits."""
    y, columns = [0, 1, 1, 0], {"sensitive_features": {"g": ["a", "a", "b", "b"]}}
    display = GroupConfusionDisplay.from_predictions(
        y, y, **columns, normalize=None, values_format="d"
    )
    assert display.text_[0, 0, 0].get_text() == "1"
    display.confusion_matrix = 1_234_567 * display.confusion_matrix
    assert display.plot(normalize=None).text_[1, 0, 0].get_text() == "1,234,567"
    weighted = GroupConfusionDisplay.from_predictions(
        y, y, **columns, normalize=None, sample_weight=[0.5, 1.0, 1.0, 1.0]
    )
    assert weighted.text_[0, 0, 0].get_text() == "0.5"


def test_confusion_of_drawn_decisions_is_drawn_alike(data):
    X, y, *_ = data
    model = gc.ConstrainedXGBClassifier(
        constraints=[gc.fnr() <= 0.1], iterate="randomized", n_estimators=20, n_jobs=1
    ).fit(X, y)
    model.prefixes_ = pd.DataFrame({"rounds": [1, 20], "probability": [0.5, 0.5]})
    assert (model.predict(X, random_state=0) != model.predict(X, random_state=1)).any()
    group = {"g": X[:, 0] > 0.0}
    shown = [
        GroupConfusionDisplay.from_estimator(model, X, y, sensitive_features=group)
        for _ in range(3)
    ]
    for display in shown[1:]:
        np.testing.assert_array_equal(display.confusion_matrix, shown[0].confusion_matrix)


def test_confusion_of_an_estimator(decided):
    y, predicted, columns, _ = decided
    X = pd.DataFrame({"g": columns["g"], "x": 0.0})
    display = GroupConfusionDisplay.from_estimator(
        Fixed(predicted), X, y, by="g", display_labels=["-", "+"], include_values=False,
        colorbar=False,
    )  # fmt: skip
    same = GroupConfusionDisplay.from_predictions(y, predicted, sensitive_features=columns)
    np.testing.assert_array_equal(display.confusion_matrix, same.confusion_matrix)
    assert display.groups == same.groups
    assert display.text_ is None
    assert display.colorbar_ is None
    assert len(display.figure_.axes) == 1
    assert same.colorbar_.ax.get_ylabel() == "fraction of the true class"
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["-", "+"]
    again = display.plot(values_format=".1f", normalize=None)
    assert again is display
    assert display.text_[0, 0, 0].get_text() == f"{display.confusion_matrix[0, 0, 0]:.1f}"


def test_confusion_of_intersections_missing_values_and_absent_classes():
    y = np.array([0, 1, 2, 0, 1, 1])
    predicted = np.array([0, 2, 2, 0, 1, 0])
    columns = {"s": ["f", "f", "m", "m", "f", None], "r": [1, 1, 1, 2, 2, 2]}
    display = GroupConfusionDisplay.from_predictions(
        y, predicted, by=["s", "r"], sensitive_features=columns, labels=[2, 0]
    )
    assert display.groups == (  # with the rows that the matrices are of
        "s=f, r=1 (n=1)", "s=f, r=2 (n=0)", "s=m, r=1 (n=1)", "s=m, r=2 (n=1)",
        "s=missing, r=2 (n=0)",
    )  # fmt: skip
    expected = np.zeros((5, 2, 2))
    expected[0, 1, 1] = expected[2, 0, 0] = expected[3, 1, 1] = 1
    np.testing.assert_array_equal(display.confusion_matrix, expected)
    assert np.isnan(display.shown_[1]).all()
    assert display.text_[1, 0, 0].get_text() == "\N{EN DASH}"
    assert display.text_[1, 0, 0].get_color() == "black"  # on no colour
    display.figure_.canvas.draw()


def test_groups_of_confusion_by_a_column_that_is_named_by_a_number():
    """As gap(fpr(), by=0) takes it."""
    y, columns = [0, 1, 1, 0], pd.DataFrame([["a", "u"], ["a", "u"], ["b", "u"], ["b", "u"]])
    display = GroupConfusionDisplay.from_predictions(y, y, by=0, sensitive_features=columns)
    assert display.groups == ("0=a (n=2)", "0=b (n=2)")


def test_confusion_that_does_not_fit(decided):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match="600 labels and 3 decisions"):
        GroupConfusionDisplay.from_predictions(y, predicted[:3], sensitive_features=columns)
    with pytest.raises(ValueError, match="groups are made by no column"):
        GroupConfusionDisplay.from_estimator(Fixed(predicted), np.zeros((600, 1)), y)
    with pytest.raises(ValueError, match="column 'race' is neither"):
        GroupConfusionDisplay.from_predictions(y, predicted, by="race", sensitive_features=columns)
    with pytest.raises(ValueError, match="normalize must be one of"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, normalize="rows"
        )
    with pytest.raises(ValueError, match="must be of shape"):
        GroupConfusionDisplay(np.zeros((2, 2)), ["a", "b"])


def test_display_labels_are_one_for_each_class(decided):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match=r"display_labels must name each of the 2 classes, got"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, display_labels=["no"]
        )


@pytest.mark.parametrize("labels", [["x"], [0, 0], []])
def test_labels_of_confusion_matrices_are_different_and_known(decided, labels):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match="labels must be different ones, some of which are here"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, labels=labels
        )


def test_axes_are_one():
    """plt.subplots(1, 2) gives an array of them."""
    axes = plt.subplots(1, 2)[1]
    with pytest.raises(TypeError, match="ax must be one Axes of matplotlib, got a ndarray: of an"):
        GroupConfusionDisplay.from_predictions(
            [0, 1] * 50, [0, 1] * 50, sensitive_features={"g": ["a"] * 100}, ax=axes
        )


REGION = "region of Extremadura and the islands of the west, other"


@pytest.mark.parametrize(
    ("classes", "name", "colorbar"),
    [
        (["no", "yes"], REGION, True),
        (["acute", "chronic kidney disease, stage 3", "healthy"], "b", True),
        (["acute", "chronic kidney disease, stage 3", "healthy"], REGION, False),
        ([*"abcdef"], REGION, True),
    ],
)
def test_names_in_confusion_matrices_are_apart(classes, name, colorbar):
    rng = np.random.default_rng(0)
    true, decided = np.array(classes)[rng.integers(0, len(classes), (2, 300))]
    given = {"sensitive_features": {"g": np.array(["a", name])[rng.integers(0, 2, 300)]}}
    display = GroupConfusionDisplay.from_predictions(true, decided, colorbar=colorbar, **given)
    display.figure_.canvas.draw()
    ax, inside = display.ax_, display.figure_.bbox
    shown = [*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts, ax.xaxis.label]
    boxes = [artist.get_window_extent() for artist in shown]
    boxes += [other.get_tightbbox() for other in display.figure_.axes if other is not ax]
    for i, box in enumerate(boxes):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_the_scale_beside_many_confusion_matrices_has_room_for_its_label():
    rng = np.random.default_rng(0)
    true, decided = rng.integers(0, 5, (2, 900))
    names = np.array([f"{'x' * 80}{i}" for i in range(12)])
    given = {"sensitive_features": {"g": names[rng.integers(0, 12, 900)]}}
    display = GroupConfusionDisplay.from_predictions(true, decided, **given)
    display.figure_.canvas.draw()
    box, inside = display.colorbar_.ax.get_tightbbox(), display.figure_.bbox
    assert display.ax_.get_window_extent().x1 < box.x0 < box.x1 <= inside.x1
