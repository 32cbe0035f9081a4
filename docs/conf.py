"""The documentation site, which `make docs` builds into build/docs. Warnings are errors: a dead link ends the build."""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "modelbackend-operator"
author = "the modelbackend-operator authors"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["README.md"]
html_theme = "furo"
html_title = "modelbackend-operator"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 3


def setup(app: Sphinx) -> None:
    app.add_lexer("mermaid", TextLexer)  # diagrams are shown as their text, which asks no other server for a program
