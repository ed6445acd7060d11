"""``python -m millstream`` is ``millstream``."""

from __future__ import annotations

import sys

from millstream.cli.main import main

sys.exit(main())
