"""The notebook's cells run, without Jupyter, and print what stands below them.

Run as a program (./crbo shell python test/documentation/test_notebook.py) this file writes the outputs anew.
"""

import base64
import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from blocks import ROOT, shows

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def run(notebook: dict[str, Any]) -> list[tuple[dict[str, Any], str, list[bytes]]]:
    """(cell, what it printed, its pictures as PNG) of each code cell, run in order in one namespace."""
    mpl.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {}
    found = []
    for number, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        printed, pictures = io.StringIO(), []
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show()
            exec(compile("".join(cell["source"]), f"cell {number + 1}", "exec"), names)
        for figure in map(pyplot.figure, pyplot.get_fignums()):
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=90)
            pictures.append(picture.getvalue())
        pyplot.close("all")
        found.append((cell, printed.getvalue(), pictures))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run_and_print_what_stands_below_them(path: Path) -> None:
    for cell, printed, pictures in run(json.loads(path.read_text())):
        kept = [output for output in cell["outputs"] if output["output_type"] == "stream"]
        for line in "".join(line for output in kept for line in output["text"]).splitlines():
            assert shows(line, printed)
        assert bool(printed) == bool(kept)
        assert len(pictures) == len(cell["outputs"]) - len(kept)


def write(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for number, (cell, printed, pictures) in enumerate(run(notebook)):
        cell["execution_count"], cell["outputs"] = number + 1, []
        if printed:
            stream = {"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}
            cell["outputs"].append(stream)
        for picture in pictures:
            data = {"image/png": base64.b64encode(picture).decode(), "text/plain": ["<Figure>"]}
            cell["outputs"].append({"data": data, "metadata": {}, "output_type": "display_data"})
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for path in NOTEBOOKS:
        write(path)
