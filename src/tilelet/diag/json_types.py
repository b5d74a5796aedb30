"""The type of JSON data."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object: what `json.dumps` takes, `json.loads` returns, and `to_data` methods build."""
