"""One claim: a map of a loss over both of its parameters, 60 nets in all, is one training.

python examples/deep_map.py                       print the map (a minute or two)
python examples/deep_map.py --picture map.png     draw it, too
python examples/deep_map.py --epochs 2            a quick look
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from raresight.losses import TBL
from raresight.nn import Recipe, Replicas, TableRows, train
from raresight.nn.nets import MLP
from raresight.tables import load_sample
from raresight.tables.splits import split_rows

ALPHAS = (0.6, 0.7, 0.8, 0.9, 1.0)
CS = (0.0, 0.4, 0.8, 1.2)
SEEDS = (0, 1, 2)
METRICS = {"partial_auc_0.01": "opAUC, FPR <= 0.01", "recall_0.001": "recall at FPR 0.001"}


def rows() -> tuple[TableRows, TableRows]:
    """Half of the bundled card payments to learn from, half to be judged on, frauds in the same share."""
    table = load_sample()
    values = np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])
    # Without exact duplicates, of which one could be learned from and the other be judged.
    values = values[np.sort(np.unique(values, axis=0, return_index=True)[1])]
    *_, amount, y = values.T
    X = np.column_stack([values[:, 1:-2], np.log1p(amount)]).astype(np.float32)
    split = split_rows(y, test_size=0.5, seed=0)
    learnt = TableRows.standardised(X[split.train], y[split.train])
    return learnt, learnt.like(X[split.test], y[split.test])


def measure(epochs: int) -> tuple[dict[str, np.ndarray], float]:
    """Each metric of the last epoch as an array (alpha, C, seed), and the seconds of the training."""
    learnt, judged = rows()
    losses = [TBL(alpha, C) for alpha in ALPHAS for C in CS]
    nets = Replicas.grid(partial(MLP, learnt.row_numbers, hidden=(64, 64)), losses, SEEDS)
    recipe = Recipe(epochs=epochs, batch=256, warmup_epochs=1, start_at_prior=True, evaluate_every=epochs)
    training = train(nets, learnt, recipe, evaluation=judged, progress=False)
    for report in training.frozen.values():
        print(report)
    shape = len(ALPHAS), len(CS), len(SEEDS)
    found = {name: np.array([row[name] for row in training.last]).reshape(shape) for name in METRICS}
    return found, training.seconds


def error_of(values: np.ndarray) -> float:
    """The standard error of a cell's mean over the seeds, from the spread within all cells together.

    It is the luck of first weights and batches alone: all nets are judged on the same rows.
    """
    return float(np.sqrt(values.var(axis=-1, ddof=1).mean() / values.shape[-1]))


def tell(name: str, values: np.ndarray) -> None:
    means = values.mean(-1)
    print(f"\n{METRICS[name]}: mean of {len(SEEDS)} seeds, standard error of a mean {error_of(values):.4f}")
    print("         " + "".join(f"   C = {C:<4g}" for C in CS))
    for alpha, line in zip(ALPHAS, means):
        print(f"alpha {alpha:<4g}" + "".join(f"{value:11.4f}" for value in line))
    i, j = np.unravel_index(means.argmax(), means.shape)
    # Nets of one seed start alike and see the same batches, so that they are compared seed by seed.
    print(
        f"cross entropy (alpha 1, C 0) {means[-1, 0]:.4f}; best of {means.size} cells {means[i, j]:.4f} "
        f"at alpha {ALPHAS[i]:g}, C {CS[j]:g}\n"
        f"standard error of the difference to cross entropy, alpha < 1: "
        f"{error_of(values[:-1] - values[-1, 0]):.4f}"
    )


def draw(found: dict[str, np.ndarray], path: Path) -> None:
    from matplotlib.patches import Rectangle

    from raresight.report.drawing import figure_class, picture_path, save

    figure = figure_class()(figsize=(11.0, 4.4), layout="constrained")
    for ax, (name, values) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        means = values.mean(-1).T
        image = ax.imshow(means, cmap="cividis", origin="lower", aspect="auto")
        figure.colorbar(image, ax=ax)
        middle = (means.min() + means.max()) / 2
        for (j, i), mean in np.ndenumerate(means):
            colour = "white" if mean < middle else "black"
            ax.text(i, j, f"{mean:.3f}", ha="center", va="center", color=colour, fontsize=10)
        corner = ALPHAS.index(1.0) - 0.5, CS.index(0.0) - 0.5
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=3, clip_on=False))
        ax.set_xticks(range(len(ALPHAS)), [f"{alpha:g}" for alpha in ALPHAS])
        ax.set_yticks(range(len(CS)), [f"{C:g}" for C in CS])
        ax.set(xlabel="alpha", ylabel="C")
        ax.set_title(
            f"{METRICS[name]}; standard error over seeds {error_of(values):.4f}\norange: cross entropy",
            fontsize=10,
        )
        ax.spines[:].set_visible(False)
    print(f"\ndrawn to {save(figure, picture_path(path))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training rows")
    parser.add_argument("--picture", type=Path, help="where to draw the map: .png, .svg or .pdf")
    options = parser.parse_args()
    found, seconds = measure(options.epochs)
    count = len(ALPHAS) * len(CS) * len(SEEDS)
    print(f"{count} nets trained together in {seconds:.0f} s, judged on rows they have not seen")
    for name, values in found.items():
        tell(name, values)
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
