"""What the notebooks share: the command line, and figures."""

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import matplotlib

if not os.environ.get("JPY_SESSION_NAME"):
    matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("TONNAGE", str(ROOT / "target" / "release" / "tonnage"))


def work(name):
    """A folder for what a notebook writes; it is kept from run to run."""
    folder = Path(os.environ.get("TONNAGE_NOTEBOOKS", ROOT / "target" / "notebooks")) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def tonnage(*arguments, codes=(0,)):
    """Runs tonnage from the project's folder; gives what it prints, read if that is JSON."""
    command = [PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout) if "--json" in command else done.stdout


@contextmanager
def figure(path, title):
    """Axes to draw on; the drawing is shown and written."""
    picture, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
    yield axes
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    picture.savefig(path, dpi=150)
    plt.show()
    plt.close(picture)
