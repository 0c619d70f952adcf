"""Ask Jaeger whether the trace of an outcome is one tree, with spans of every service that took part:
trace_tree.py QUERY_ADDRESS OUTCOME_JSON_FILE SERVICE..."""

import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE = 30  # seconds; services export with a delay, and Jaeger takes a moment to store


def spans_of(query: str, trace: str) -> tuple[list, dict]:
    try:
        with urllib.request.urlopen(f"{query}/api/traces/{trace}", timeout=10) as reply:
            traces = json.load(reply)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return [], {}
        raise
    processes = {name: process for trace in traces for name, process in trace["processes"].items()}
    return [span for trace in traces for span in trace["spans"]], processes


def faults_of(spans: list, processes: dict, services: list[str]) -> list[str]:
    parents = {
        span["spanID"]: [ref["spanID"] for ref in span.get("references", []) if ref["refType"] == "CHILD_OF"]
        for span in spans
    }
    names = {span["spanID"]: span["operationName"] for span in spans}
    roots = [names[span] for span, above in parents.items() if not above]
    faults = [] if len(roots) == 1 else [f"{len(roots)} roots: {roots}"]
    faults += [
        f"{names[span]} has a parent {parent} that is not in the trace"
        for span, above in parents.items() for parent in above if parent not in parents
    ]
    missing = {f"starling-{name}" for name in services} - {p["serviceName"] for p in processes.values()}
    return faults + [f"nothing of {service}" for service in sorted(missing)]


def main() -> None:
    query, file, *services = sys.argv[1:]
    with open(file, encoding="utf-8") as text:
        report = json.load(text)
    if report["status"] != "succeeded":
        sys.exit(f"the intent ended as {report['status']}: {report.get('reason')}")
    until, known = time.monotonic() + PATIENCE, -1
    while True:
        spans, processes = spans_of(query, report["trace_id"])
        faults = faults_of(spans, processes, services)
        if not faults and len(spans) == known:
            break
        if time.monotonic() > until:
            sys.exit(f"trace {report['trace_id']} of {len(spans)} spans: " + "; ".join(faults))
        known = len(spans)
        time.sleep(0.5)
    print(f"trace {report['trace_id']} in Jaeger: {known} spans, one root, no missing parent")


if __name__ == "__main__":
    main()
