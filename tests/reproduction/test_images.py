"""Readers of image sets on small files of the official formats, and the moves of images in training."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from raresight.nn.batches import generators
from reproduction.images import Images, read_cifar10, read_cifar100, read_tiny_imagenet

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def records(generator, count, *label_sizes):
    labels = [generator.integers(0, size, count) for size in label_sizes]
    pixels = generator.integers(0, 256, (count, 3072))
    return np.column_stack([*labels, pixels]).astype(np.uint8)


@pytest.fixture
def cifar10(tmp_path):
    """A folder with 20 images a file, and those images."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    generator = np.random.default_rng(0)
    parts = {}
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        parts[name] = records(generator, 20, 10)
        parts[name].tofile(folder / f"{name}.bin")
    # The published file ends with empty lines.
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return folder, parts


@pytest.fixture
def cifar100(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    generator = np.random.default_rng(0)
    parts = {name: records(generator, 30, 20, 100) for name in ("train", "test")}
    for name, part in parts.items():
        part.tofile(folder / f"{name}.bin")
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine {k}" for k in range(100)))
    (folder / "coarse_label_names.txt").write_text("\n".join(f"coarse {k}" for k in range(20)))
    return folder, parts


def test_cifar10(cifar10):
    folder, parts = cifar10
    images = read_cifar10(folder, complete=False)
    assert images.train.class_names == NAMES
    assert len(images.train) == 100
    assert images.train.pixels.shape == (100, 3, 32, 32)
    assert (images.train.pixels.dtype, images.train.labels.dtype) == (np.uint8, np.int64)
    third = parts["data_batch_3"][7]
    assert images.train.labels[47] == third[0]
    # Red plane first, row by row.
    assert images.train.pixels[47, 0, 0, 1] == third[2]
    assert images.train.pixels[47, 2, 31, 30] == third[1 + 2 * 1024 + 31 * 32 + 30]
    assert np.array_equal(images.test.labels, parts["test_batch"][:, 0])
    from_above = read_cifar10(str(folder.parent), complete=False)
    assert np.array_equal(from_above.train.pixels, images.train.pixels)


def test_cifar100(cifar100):
    folder, parts = cifar100
    fine = read_cifar100(folder, complete=False)
    coarse = read_cifar100(folder, coarse=True, complete=False)
    assert np.array_equal(fine.train.labels, parts["train"][:, 1])
    assert np.array_equal(coarse.test.labels, parts["test"][:, 0])
    assert fine.test.class_names[99] == "fine 99"
    assert len(coarse.train.class_names) == 20
    assert np.array_equal(fine.train.pixels.reshape(30, -1), parts["train"][:, 2:])


def test_damaged_cifar_is_refused(cifar10, cifar100, tmp_path):
    folder, _ = cifar10
    with pytest.raises(ValueError, match="61,460 bytes, but 10,000 images take 30,730,000"):
        read_cifar10(folder)
    with pytest.raises(ValueError, match="50,000 images take 153,700,000"):
        read_cifar100(cifar100[0])
    whole = (folder / "data_batch_4.bin").read_bytes()
    (folder / "data_batch_4.bin").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"data_batch_4.bin has 61,459 bytes, which is not a whole number"):
        read_cifar10(folder, complete=False)
    (folder / "data_batch_4.bin").write_bytes(whole[:3073] + bytes([10]) + whole[3074:])
    with pytest.raises(ValueError, match="image 1 has label 10, but labels are 0 to 9"):
        read_cifar10(folder, complete=False)
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_4.bin"):
        read_cifar10(folder, complete=False)
    (folder / "batches.meta.txt").write_text("cat\ndog\n")
    with pytest.raises(ValueError, match="names 2 classes, but the set has 10"):
        read_cifar10(folder, complete=False)
    (folder / "batches.meta.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"batches.meta.txt is no text in UTF-8"):
        read_cifar10(folder, complete=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="binary version"):
        read_cifar10(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"cifar-100-binary.tar.gz"):
        read_cifar100(tmp_path / "empty")


@pytest.fixture
def tiny(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="Tiny ImageNet needs Pillow")
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "words.txt").write_text("n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tbullfrog\n")
    lines = []
    for number, name in enumerate(("n01", "n02")):
        (folder / "train" / name / "images").mkdir(parents=True)
        for image in range(11):
            colour = (200, 20 * image, 100 * number)
            path = folder / "train" / name / "images" / f"{name}_{image}.JPEG"
            pillow.new("RGB", (64, 64), colour).save(path)
        pillow.new("L", (64, 64), 90 + number).save(folder / "val" / "images" / f"val_{number}.JPEG")
        lines.append(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return folder


def test_tiny_imagenet(tiny):
    images = read_tiny_imagenet(tiny, complete=False)
    assert images.train.class_names == ("goldfish, Carassius auratus", "bullfrog")
    assert images.train.labels.tolist() == [0] * 11 + [1] * 11
    assert images.train.pixels.shape == (22, 3, 64, 64)
    # In the order of the numbers, 10 after 9; JPEG is not exact.
    green = images.train.pixels[:11, 1].mean((1, 2))
    assert green == pytest.approx(20.0 * np.arange(11), abs=3)
    assert images.train.pixels[11:, 2].mean() == pytest.approx(100, abs=3)
    # Grey images have three equal colours; labels come from the annotations.
    assert images.test.labels.tolist() == [1, 0]
    assert images.test.pixels[0, :, 5, 5].tolist() == [91, 91, 91]


def test_damaged_tiny_imagenet_is_refused(tiny):
    from PIL import Image

    with pytest.raises(ValueError, match="names 2 classes, but the set has 200"):
        read_tiny_imagenet(tiny)
    annotations = tiny / "val" / "val_annotations.txt"
    kept = annotations.read_text()
    annotations.write_text(kept + "val_2.JPEG\tn03\t0\t0\t1\t1\n")
    with pytest.raises(ValueError, match=r"val_2.JPEG has class 'n03'"):
        read_tiny_imagenet(tiny, complete=False)
    annotations.write_text(kept + "val_2.JPEG\tn02\t0\t0\t1\t1\n")
    with pytest.raises(FileNotFoundError, match=r"val_2.JPEG"):
        read_tiny_imagenet(tiny, complete=False)
    annotations.write_text(kept.splitlines()[0] + "\n")
    with pytest.raises(ValueError, match="0 images of the class 'goldfish"):
        read_tiny_imagenet(tiny, complete=False)
    annotations.write_text(kept)
    spoiled = tiny / "train" / "n02" / "images" / "n02_3.JPEG"
    Image.new("RGB", (64, 32)).save(spoiled)
    with pytest.raises(ValueError, match=r"n02_3.JPEG is 32 x 64"):
        read_tiny_imagenet(tiny, complete=False)
    spoiled.write_bytes(b"not an image")
    with pytest.raises(ValueError, match="cannot be decoded"):
        read_tiny_imagenet(tiny, complete=False)


def test_missing_library_is_named():
    script = (
        "import sys; sys.modules['PIL'] = None\n"
        "from reproduction.images import read_tiny_imagenet; read_tiny_imagenet('x')"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install pillow" in run.stderr.splitlines()[-1]


def test_reading_needs_numpy_alone():
    script = (
        "import reproduction.images, reproduction.images.imbalance, sys\n"
        "print(set(sys.modules) & {'torch', 'scipy', 'sklearn', 'PIL', 'pyarrow', 'pandas'})"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_images_check_themselves():
    pixels, labels = np.zeros((2, 3, 4, 4), np.uint8), np.array([0, 1])
    with pytest.raises(ValueError, match="float64"):
        Images(pixels.astype(float), labels, ("a", "b"))
    with pytest.raises(ValueError, match=r"shape \(2,\), one an image"):
        Images(pixels, labels[:1], ("a", "b"))
    with pytest.raises(ValueError, match="image 1 has label 1, but there are 1 class names"):
        Images(pixels, labels, ("a",))


def test_channel_moments(cifar10):
    train = read_cifar10(cifar10[0], complete=False).train
    assert train.channel_means() == pytest.approx((train.pixels / 255).mean((0, 2, 3)))
    assert train.channel_deviations() == pytest.approx((train.pixels / 255).std((0, 2, 3)))


@pytest.mark.skipif(
    "RARESIGHT_CIFAR10" not in os.environ,
    reason="RARESIGHT_CIFAR10 does not name the folder with CIFAR-10's binary version",
)
def test_real_cifar10():
    images = read_cifar10(os.environ["RARESIGHT_CIFAR10"])
    assert images.train.class_names == NAMES
    assert np.bincount(images.train.labels).tolist() == [5000] * 10
    assert np.bincount(images.test.labels).tolist() == [1000] * 10
    assert images.train.channel_means() == pytest.approx((0.4914, 0.4822, 0.4465), abs=1e-4)
    assert images.train.channel_deviations() == pytest.approx((0.2470, 0.2435, 0.2616), abs=1e-4)
    # The first training image is a frog, the first test image a cat.
    assert (images.train.labels[0], images.test.labels[0]) == (6, 3)
    assert images.train.pixels[0, :, 0, 0].tolist() == [59, 62, 63]


PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255,) * 3}


@pytest.fixture
def moving():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    from reproduction.images import rows as augmentation

    return torch, augmentation


@pytest.fixture
def pixels(moving):
    torch, _ = moving
    return torch.randint(1, 256, (12, 3, 9, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def test_augment_pads_crops_and_mirrors(moving, pixels):
    """Against one image at a time with slices."""
    torch, augmentation = moving
    moves = augmentation.draw_moves(generators((3, 4)), 12)
    out = augmentation.augment(pixels, generators((3, 4)), **PLAIN)
    assert out.shape == (2, 12, 3, 9, 8)
    assert out.dtype == torch.float32
    padded = torch.nn.functional.pad(pixels, (4, 4, 4, 4))
    for k in range(2):
        for n in range(12):
            down, right = int(moves.down[k, n]), int(moves.right[k, n])
            expected = padded[n, :, down : down + 9, right : right + 8]
            if moves.mirrored[k, n]:
                expected = expected.flip(-1)
            torch.testing.assert_close(out[k, n], expected.float())


def test_each_replica_has_its_own_reproducible_moves(moving, pixels):
    torch, augmentation = moving

    def run(seeds, epoch=0):
        return augmentation.augment(pixels, generators(seeds, epoch=epoch), **PLAIN)

    three = run((5, 6, 7))
    assert torch.equal(three, run((5, 6, 7)))
    assert torch.equal(three[1:2], run((6,)))
    assert not torch.equal(three[0], three[1])
    assert not torch.equal(three, run((5, 6, 7), epoch=1))
    own = generators((5,))
    first = augmentation.augment(pixels, own, **PLAIN)
    assert not torch.equal(first, augmentation.augment(pixels, own, **PLAIN))


def test_index_chooses_images(moving, pixels):
    torch, augmentation = moving
    one, each = torch.tensor([3, 3, 0]), torch.tensor([[1, 2, 3], [11, 0, 5]])
    for index in (one, each):
        out = augmentation.augment(pixels, generators((1, 2)), index=index, **PLAIN)
        for k in range(2):
            rows = index if index.dim() == 1 else index[k]
            generator = generators((1, 2)[k : k + 1])
            torch.testing.assert_close(out[k], augmentation.augment(pixels[rows], generator, **PLAIN)[0])
    with pytest.raises(ValueError, match=r"index must have shape \(3,\) or \(2, 3\)"):
        augmentation.augment(pixels, generators((1, 2)), index=each[:, None], **PLAIN)


def test_moves_are_evenly_spread(moving):
    torch, augmentation = moving
    moves = augmentation.draw_moves(generators((0,)), 90_000)
    for values in (moves.down, moves.right):
        counts = torch.bincount(values[0], minlength=9)
        assert len(counts) == 9
        assert ((counts - 10_000).abs() < 500).all()
    assert moves.mirrored.double().mean().item() == pytest.approx(0.5, abs=0.01)
    assert torch.corrcoef(torch.cat([moves.down, moves.right]).double())[0, 1].abs() < 0.02


def test_normalise(moving, pixels):
    torch, augmentation = moving
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    out = augmentation.normalise(pixels, mean=mean, std=std, dtype=torch.float64)
    expected = (pixels[5, 1, 2, 3].double() / 255 - 0.4) / 0.25
    torch.testing.assert_close(out[5, 1, 2, 3], expected)
    half = augmentation.normalise(
        pixels, mean=torch.tensor(mean), std=torch.tensor(std), dtype=torch.bfloat16
    )
    torch.testing.assert_close(half, out.to(torch.bfloat16), rtol=0.01, atol=0.01)


def test_what_cannot_be_moved_is_refused(moving, pixels):
    _, augmentation = moving
    with pytest.raises(ValueError, match="must be uint8"):
        augmentation.augment(pixels.float(), generators((1,)), **PLAIN)
    with pytest.raises(ValueError, match="there is none"):
        augmentation.augment(pixels, [], **PLAIN)
    with pytest.raises(ValueError, match="padding"):
        augmentation.draw_moves(generators((1,)), 3, padding=-1)


def test_augment_on_a_gpu(moving, pixels):
    torch, augmentation = moving
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    there = augmentation.augment(pixels.cuda(), generators((3, 4)), **PLAIN)
    here = augmentation.augment(pixels, generators((3, 4)), **PLAIN)
    torch.testing.assert_close(there.cpu(), here)
