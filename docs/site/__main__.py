"""``python -m docs.site DIRECTORY`` (``make docs``): render the site there.

What it is: writes the pages' source beside the directory and runs Sphinx on it; every warning, a
broken link for example, is an error.  What it is not: needed to read the pages.

Read next: ``docs/site/pages.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from docs.site.pages import ROOT, write


def main(target: Path) -> int:
    """Render the site into a directory.

    Returns:
        the exit code: not 0 if anything was to be complained about.
    """
    source = target.with_name(f"{target.name}-source")
    write(source)
    strict = ["--fail-on-warning", "--quiet", "--fresh-env"]
    places = [f"--conf-dir={Path(__file__).parent}", f"--doctree-dir={source / '.doctrees'}"]
    command = [sys.executable, "-m", "sphinx", *strict, *places, str(source), str(target)]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        print(f"open {target / 'index.html'}")
    return code


sys.exit(main(Path(sys.argv[1]).resolve()))
