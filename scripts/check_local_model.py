"""What has to hold after a run and a look of doctor at the small real model. Run by scripts/check-local-model."""

import json
import re
import sys
from pathlib import Path

# How a run ends, by the status of its outcome; see README.md. Over budget is 2 with an answer, else 1.
CODES = {
    "succeeded": {0},
    "partial": {2},
    "over_budget": {1, 2},
    "failed": {1},
    "expired": {1},
}
# What this server does, by trial. It has one model, which answers to any name; its tool calls depend on the model.
TRIALS = {
    "unknown name": {"ignored"},
    "json schema": {"works"},
    "stream": {"works"},
    "stream counts": {"works", "unknown"},  # a slow machine may not come to the end of a stream in time
    "tools": {"works", "ignored", "refused", "unknown"},
}


def fail(what: str) -> None:
    raise SystemExit(f"check-local-model: {what}")


def check_run(code: int, text: str) -> None:
    if code == 124:
        fail("the run did not end in time")
    try:
        outcome = json.loads(text)
    except ValueError:
        fail(f"not one JSON object on stdout, exit code {code}: {text[:500]!r}")
    status = outcome["status"]
    if code not in CODES.get(status, set()):
        fail(f"exit code {code} for an outcome that is {status}")
    # Calls of plans that came to nothing may not be counted; the log has them.
    if outcome["offline"]:
        fail(f"the offline model answered: {text[:500]}")
    tasks = outcome["tasks"]["total"]
    if tasks > 3:
        fail(f"{tasks} tasks, where at most 3 were allowed")
    usage = outcome["usage"]
    print(
        f"run: {status} (exit code {code}), {tasks} tasks, {outcome['calls']} calls, "
        f"{usage['prompt_tokens']} + {usage['completion_tokens']} tokens, {outcome['latency_ms']['wall'] / 1000:.1f} s"
        + (f"; {outcome['reason']}" if outcome["reason"] else "")
    )


def check_requests(log: str) -> None:
    # Colours, if there are any, are not part of the words.
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in log.splitlines()]
    asked = [line for line in lines if "asking a model" in line]
    for purpose in ("plan", "judge"):
        of_this = [line for line in asked if re.search(rf'purpose="?{purpose}\b', line)]
        if purpose == "plan" and not of_this:
            fail(f"the log shows no request for a plan among {len(asked)} requests")
        others = [line for line in of_this if "json_schema" not in line]
        if others:
            fail(f"asked for a {purpose} without a schema: {others[0]}")
        print(f"requests: {len(of_this)} for {purpose}, all of them with response_format json_schema")


def check_doctor(text: str) -> None:
    checks = json.loads(text)["checks"]
    of_model = [check for check in checks if check["name"] == "model"]
    if [check["status"] for check in of_model] != ["ok"]:
        fail(f"doctor is not content with the model: {of_model}")
    tried = [check for check in checks if check["name"] == "preflight"]
    if len(tried) != 1:
        fail(f"doctor has tried out {len(tried)} models, not one")
    results = {detail["what"]: detail["result"] for detail in tried[0]["details"]}
    print(f"doctor: {tried[0]['found']}")
    for trial, expected in TRIALS.items():
        if results.get(trial) not in expected:
            fail(f"{trial}: {results.get(trial)}, expected {' or '.join(sorted(expected))}: {tried[0]}")


def main() -> None:
    code, run, log, doctor = sys.argv[1:]
    check_run(int(code), Path(run).read_text())
    check_requests(Path(log).read_text(errors="replace"))
    check_doctor(Path(doctor).read_text())


if __name__ == "__main__":
    main()
