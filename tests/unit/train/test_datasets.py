"""The data sets: what they promise, in the files' true formats, and what a user is told who has not got them."""

import subprocess
import sys

import numpy as np
import pytest

from pycollectives.train.datasets.base import Dataset, chunks
from pycollectives.train.datasets.characters import SYMBOLS, characters
from pycollectives.train.datasets.cifar10 import DEVIATION, MEAN, TEST, TRAIN, cifar10
from pycollectives.train.datasets.digits import digits
from pycollectives.train.datasets.hyperplane import Points, hyperplane, split_mix
from pycollectives.train.datasets.sequences import frame_counts, sequences


def test_extras_are_not_loaded():
    modules = (
        "pycollectives.train.datasets.digits, pycollectives.train.models.mlp, pycollectives.train.models.hyperplane"
    )
    program = (
        f"import sys, {modules}; print([name for name in ('torch', 'sklearn', 'mpi4py.MPI') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_arrays_must_be_parallel():
    with pytest.raises(ValueError, match=r"validation: .* got \[3, 2\]"):
        Dataset((np.zeros(4), np.zeros(4)), (np.zeros(3), np.zeros(2)))
    with pytest.raises(ValueError, match=r"train: .* got \[0\]"):
        Dataset((np.zeros(0),), (np.zeros(1),))


def test_chunks_are_everything_in_order():
    arrays = (np.arange(10), np.arange(20).reshape(10, 2))
    pieces = [*chunks(arrays, 4)]
    assert [len(piece[0]) for piece in pieces] == [4, 4, 2]
    for number, array in enumerate(arrays):
        np.testing.assert_array_equal(np.concatenate([piece[number] for piece in pieces]), array)


# ---- hyperplane


def test_split_mix_is_the_published_generator():
    """The first values of Vigna's splitmix64.c for the seed 1234567."""
    got = split_mix(np.arange(3, dtype=np.uint64), 1234567)
    assert [int(value) for value in got] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("dimensions", [1, 8, 13, 64])
def test_points_do_not_depend_on_how_they_are_asked_for(dimensions):
    points = Points(50, dimensions, seed=3)
    everything = points[:]
    assert (everything.shape, everything.dtype) == ((50, dimensions), np.float32)
    assert points.shape == everything.shape
    assert len(points) == 50
    which = np.array([49, 0, 7, 7])
    np.testing.assert_array_equal(points[which], everything[which])
    np.testing.assert_array_equal(points[10:20], everything[10:20])
    np.testing.assert_array_equal(Points(40, dimensions, seed=3, first=10)[:], everything[10:])
    assert (Points(50, dimensions, seed=4)[:] != everything).any()


def test_coordinates_are_independent_with_variance_1():
    points = Points(512, 512, seed=0)[:].astype(np.float64)
    assert abs(points.mean()) < 0.01
    assert abs(points.var() - 1) < 0.01
    for covariance in (points @ points.T / 512, points.T @ points / 512):
        assert np.abs(covariance - np.eye(512)).max() < 6 / np.sqrt(512)


def test_values_are_those_of_a_hyperplane_with_noise():
    data = hyperplane(dimensions=32, points=4096, validation=1024, noise=0.5, seed=5)
    x, y = (array[:] for array in data.train)
    coefficients, *_ = np.linalg.lstsq(x, y)
    assert abs(np.std(y - x @ coefficients) - 0.5) < 0.03
    x, y = (array[:] for array in data.validation)
    assert abs(np.std(y - x @ coefficients) - 0.5) < 0.04
    assert len(np.unique(np.concatenate([x, data.train[0][:]]), axis=0)) == 5120  # no point is in both


def test_hyperplane_is_the_papers():
    data = hyperplane()
    assert [array.shape for array in data.train] == [(32768, 8192), (32768,)]
    assert data.validation[0].shape == (4096, 8192)
    assert {array[:1].dtype for array in (*data.train, *data.validation)} == {np.dtype(np.float32)}
    again = hyperplane()
    for one, other in zip((*data.train, *data.validation), (*again.train, *again.validation), strict=True):
        np.testing.assert_array_equal(one[100:110], other[100:110])


# ---- digits


def test_digits():
    pytest.importorskip("sklearn")
    data = digits(seed=1)
    assert [array.shape for array in data.train] == [(1437, 1, 8, 8), (1437,)]
    assert [array.shape for array in data.validation] == [(360, 1, 8, 8), (360,)]
    assert data.classes == 10
    images = np.concatenate([data.train[0], data.validation[0]])
    assert (images.dtype, images.min(), images.max()) == (np.float32, 0, 1)
    assert len(np.unique(images.reshape(1797, -1), axis=0)) == 1797  # all of them, each once
    np.testing.assert_array_equal(digits(seed=1).train[0], data.train[0])
    assert (digits(seed=2).train[0] != data.train[0]).any()


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr("pycollectives.train.datasets.digits.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pycollectives\[train\]'"):
        digits()


# ---- CIFAR-10


@pytest.fixture
def cifar(tmp_path):
    """A folder with six files of seven records, and the pixels and labels in them."""
    random = np.random.default_rng(0)
    pixels = random.integers(256, size=(6, 7, 3, 32, 32), dtype=np.uint8)
    labels = random.integers(10, size=(6, 7), dtype=np.uint8)
    labels[0, 0] = 9
    for name, some_pixels, some_labels in zip((*TRAIN, TEST), pixels, labels, strict=True):
        records = (bytes([label]) + image.tobytes() for image, label in zip(some_pixels, some_labels, strict=True))
        (tmp_path / name).write_bytes(b"".join(records))
    return tmp_path, pixels, labels


def test_cifar10(cifar, monkeypatch):
    folder, pixels, labels = cifar
    monkeypatch.setenv("PYC_CIFAR10", str(folder))
    data = cifar10()
    expected = (pixels / np.float32(255) - MEAN) / DEVIATION
    images, got = data.train
    assert images.shape == (35, 3, 32, 32)
    assert (images[:].dtype, got.dtype) == (np.float32, np.int64)
    np.testing.assert_allclose(images[:], expected[:5].reshape(35, 3, 32, 32), atol=1e-5)
    which = np.array([34, 0, 7, 7, 13])
    np.testing.assert_array_equal(images[which], images[:][which])
    np.testing.assert_array_equal(got, labels[:5].ravel())
    np.testing.assert_allclose(data.validation[0][2:4], expected[5, 2:4], atol=1e-5)
    np.testing.assert_array_equal(data.validation[1], labels[5])
    assert data.classes == 10


def test_cifar10_says_where_to_put_what(tmp_path, cifar, monkeypatch):
    monkeypatch.delenv("PYC_CIFAR10", raising=False)
    with pytest.raises(
        FileNotFoundError, match=r"data_batch_1\.bin to data_batch_5\.bin and test_batch\.bin .*PYC_CIFAR10"
    ):
        cifar10()
    with pytest.raises(FileNotFoundError, match=r"there is no .*none.data_batch_1\.bin: unpack"):
        cifar10(folder=str(tmp_path / "none"))
    (cifar[0] / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*data_batch_4\.bin: unpack"):
        cifar10(folder=str(cifar[0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"data_batch_2\.bin has 0 bytes"),
        (bytes(3072), r"data_batch_2\.bin has 3072 bytes, not a multiple of 3073"),
        (bytes(3073 * 7 + 1), "has 21512 bytes"),
        (bytes(3073 * 6), r"the same number of images, got \[7, 6, 7, 7, 7, 7\]"),
        (bytes([10]) + bytes(3072), r"data_batch_2\.bin has a label 10, expected 0 to 9"),
    ],
)
def test_cifar10_refuses_other_files(cifar, content, message):
    (cifar[0] / "data_batch_2.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        cifar10(folder=str(cifar[0]))


# ---- sequences


def test_lengths_are_those_of_the_papers_videos():
    frames = frame_counts(100_000, np.random.default_rng(0))
    assert abs(frames.mean() / 187 - 1) < 0.02
    assert abs(frames.std() / 97 - 1) < 0.05
    assert frames.min() >= 29
    assert frames.max() <= 1776
    assert frame_counts(10_000_000, np.random.default_rng(0)).max() == 1776  # 1 in a million is clipped


def test_sequences():
    data = sequences(examples=300, validation=100, features=5, classes=6, scale=16, seed=2)
    x, length, label = data.train
    assert [array.dtype for array in data.train] == [np.float32, np.int64, np.int64]
    assert x.shape == (300, max(length.max(), data.validation[1].max()), 5)
    assert data.validation[0].shape == (100, *x.shape[1:])
    assert (data.classes, label.min()) == (6, 0)
    assert abs(data.lengths.mean() - 187 / 16) < 1
    inside = np.arange(x.shape[1]) < length[:, np.newaxis]
    assert (x[~inside] == 0).all()
    assert (x[inside] != 0).all()
    again = sequences(examples=300, validation=100, features=5, classes=6, scale=16, seed=2)
    for one, other in zip((*data.train, *data.validation), (*again.train, *again.validation), strict=True):
        np.testing.assert_array_equal(one, other)


def test_scale_divides_lengths():
    one, sixteenth = (sequences(examples=200, validation=1, features=1, scale=scale).lengths for scale in (1.0, 16.0))
    assert abs(one.mean() / 187 - 1) < 0.15
    np.testing.assert_allclose(sixteenth, one / 16, atol=0.5)


def test_classes_differ_by_the_order_of_their_patterns_only():
    data = sequences(examples=4000, validation=1, features=3, classes=4, signal=1.0, seed=0)
    x, length, label = data.train
    first = [x[i, : length[i] // 2].mean(axis=0) for i in range(4000)]
    second = [x[i, -(-length[i] // 2) : length[i]].mean(axis=0) for i in range(4000)]
    of_class = [
        [np.mean([half[i] for i in np.flatnonzero(label == c)], axis=0) for half in (first, second)] for c in range(4)
    ]
    for c in range(2):
        np.testing.assert_allclose(of_class[c], of_class[c + 2][::-1], atol=0.1)
    assert np.abs(np.subtract(*of_class[0])).max() > 0.2
    assert np.abs(np.subtract(of_class[0], of_class[1])).max() > 0.2


@pytest.mark.parametrize("options", [{"classes": 3}, {"classes": 0}, {"scale": 0.0}])
def test_sequences_refuse(options):
    with pytest.raises(ValueError, match="expected"):
        sequences(**options)


# ---- characters


def test_characters():
    data = characters(examples=50, validation=20, context=16, seed=3)
    for (pieces, following), count in ((data.train, 50), (data.validation, 20)):
        assert pieces.shape == following.shape == (count, 16)
        assert pieces.dtype == following.dtype == np.int64
        np.testing.assert_array_equal(pieces[:, 1:], following[:, :-1])
    assert data.train[0].min() >= 0
    assert data.classes <= len(SYMBOLS)
    text = "".join(SYMBOLS[symbol] for symbol in characters(examples=1, validation=1, context=20000).train[0][0])
    assert "\n    def " in text
    again = characters(examples=50, validation=20, context=16, seed=3)
    assert again.fingerprints == data.fingerprints
    other = characters(examples=50, validation=20, context=16, seed=4)
    assert other.fingerprints != data.fingerprints


def test_what_is_held_out_is_not_trained_on():
    data = characters(examples=20000, validation=500, context=40, held_out=0.3)
    trained = {piece.tobytes() for piece in data.train[0]}
    shared = sum(piece.tobytes() in trained for piece in data.validation[0])
    assert shared < 5  # lines that occur twice


@pytest.mark.parametrize("options", [{"held_out": 0.0}, {"held_out": 1.0}, {"context": 10**8}])
def test_characters_refuse(options):
    with pytest.raises(ValueError, match="characters: "):
        characters(**options)
