"""The process of one tree in `bench --against`.

The text of this file runs with the package of another tree, perhaps an older one: it imports only
long-standing names of `tilelet.bench`. Requests come as JSON lines: `{"package": FOLDER}` checks
which package is imported, `{"case": [KIND, ...]}` prepares and warms up a case, `{"run": N}` runs
it N times. Each is answered by one JSON line; a failure as `{"error": TEXT}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.diag.json_types import JsonObject

_WARM_UPS = 2


def _prepare(kind: str, *arguments: object) -> Any:
    from tilelet.bench import cases
    from tilelet.bench.data import Data

    case: Any = getattr(cases, f"{kind}_case")(Data(), *arguments)
    for _ in range(_WARM_UPS):
        case.run()
    return case


def _answer(request: JsonObject, state: JsonObject) -> JsonObject:
    if "package" in request:
        import tilelet

        found = Path(tilelet.__file__).resolve().parents[1]
        wanted = Path(request["package"]).resolve()
        return {} if found == wanted else {"error": f"imports {found} instead of {wanted}"}
    if "case" in request:
        state.clear()  # before the data of the next case takes its memory
        state["case"] = _prepare(*request["case"])
        return {}
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(request["run"]):
        state["case"].run()
    count = request["run"]
    return {
        "clock": (time.perf_counter() - clock) / count,
        "processor": (time.process_time() - processor) / count,
    }


def main() -> None:
    """Answer requests until there are no more. What the package prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    state: JsonObject = {}
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), state)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
