"""Let this Python process log everything that any library has to say, down to DEBUG, on standard error."""

from __future__ import annotations

import logging

logging.basicConfig(level=logging.DEBUG)
