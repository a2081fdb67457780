"""The site: the same Markdown files that the repository shows, by Sphinx and MyST. `./crbo docs` builds it."""

import json
import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
project = "crbo_ros"
copyright = "the crbo_ros authors, Apache-2.0"
release = re.findall(r'__version__ = "(.+)"', (ROOT / "crbo_ros" / "__init__.py").read_text())[0]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4  # links to a heading, as on the repository's page
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
myst_enable_extensions = ["colon_fence"]  # (for a notebook's outputs)
html_theme = "alabaster"
html_theme_options = {
    "description": "Improves a robot's policy on the robot itself, cautiously",
    "page_width": "1100px",
    "sidebar_width": "240px",
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_use_index = html_domain_indices = False  # there is a search, and three pages of reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"
suppress_warnings = ["myst.header"]


def read_notebook(app: Sphinx, document: str, source: list[str]) -> None:
    """A notebook as the Markdown page that it nearly is: its cells, and below each what it printed and drew."""
    if Path(app.env.doc2path(document)).suffix != ".ipynb":
        return
    parts = []
    for cell in json.loads(source[0])["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            if "text" in output:
                parts.append(f":::{{container}} output\n```text\n{''.join(output['text'])}```\n:::")
            else:
                picture = f"data:image/png;base64,{output['data']['image/png']}"
                parts.append(f'<img alt="What the cell above draws" src="{picture}">')
    source[0] = "\n\n".join(parts)


def setup(app: Sphinx) -> None:
    app.add_lexer("mermaid", TextLexer)  # diagrams stay text: drawing them would need a script from the network
    app.connect("source-read", read_notebook)
