"""``python -m millstream`` is ``millstream``."""

from __future__ import annotations

import sys

from millstream.cli.main import main

__all__: list[str] = []

sys.exit(main())
