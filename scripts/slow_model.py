"""An OpenAI-compatible endpoint that takes its time and counts, no LLM: for tests that need work in flight.

slow_model.py --address A --seconds N: listens on a free port of A, which it prints, until it is ended. `GET /calls`
tells the calls that are open, by client address and purpose, and how many there were for each goal and purpose."""

import argparse
import collections
import http.server
import json
import re
import threading
import time


class Book:
    """Who has which calls open, and what was asked how often."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = collections.Counter()
        self._asked = collections.defaultdict(collections.Counter)
        self._prompts = collections.Counter()

    def begin(self, client: str, purpose: str, prompt: str, goal: str) -> None:
        with self._lock:
            self._open[(client, purpose)] += 1
            self._prompts[(goal, purpose, prompt)] += 1
            self._asked[goal][purpose] += 1

    def end(self, client: str, purpose: str) -> None:
        with self._lock:
            self._open[(client, purpose)] -= 1

    def read(self) -> dict:
        with self._lock:
            repeated = collections.defaultdict(collections.Counter)
            for (goal, purpose, _), times in self._prompts.items():
                repeated[goal][purpose] += times - 1
            calls = [
                {"client": client, "purpose": purpose, "calls": calls}
                for (client, purpose), calls in self._open.items() if calls > 0
            ]
            return {"open": calls, "asked": self._asked, "repeated": repeated}


def section(prompt: str, name: str) -> str | None:
    found = re.search(rf"^## {name}$\n(.*?)(?=^## |\Z)", prompt, re.MULTILINE | re.DOTALL)
    return found and found.group(1).strip()


def purpose_of(prompt: str) -> str:
    if section(prompt, "Agents") is not None:
        return "plan"
    if section(prompt, "Result") is not None:
        return "judge"
    return "work" if section(prompt, "Instruction") is not None else "synthesize"


def answer(purpose: str, prompt: str) -> str:
    if purpose == "judge":
        return json.dumps({"score": 0.9, "feedback": ""})
    if purpose == "plan":
        limit = re.search(r"max_tasks: (\d+)", prompt)
        tasks = [
            {"key": f"t{n}", "title": f"Part {n}", "instruction": f"Do part {n}.", "agent": "worker",
             "depends_on": [], "critic": True}
            for n in range(1, int(limit.group(1) if limit else 1) + 1)
        ]
        return json.dumps({"tasks": tasks})
    return f"This is what came of it: {(section(prompt, 'Task') or 'all parts')} is done."


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    book: Book
    seconds: float

    def do_GET(self) -> None:
        self.reply("application/json", json.dumps(self.book.read()).encode())

    def do_HEAD(self) -> None:
        self.reply("application/json", b"")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = [m["content"] for m in request["messages"] if m["role"] == "user"][-1]
        purpose, client = purpose_of(prompt), self.client_address[0]
        self.book.begin(client, purpose, prompt, section(prompt, "Goal") or "")
        try:
            time.sleep(self.seconds)
            self.say(request, answer(purpose, prompt))
        finally:
            self.book.end(client, purpose)

    def say(self, request: dict, text: str) -> None:
        usage = {"prompt_tokens": 100, "completion_tokens": len(text) // 4, "total_tokens": 100 + len(text) // 4}
        common = {"id": "call", "created": int(time.time()), "model": request["model"]}
        if not request.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            body = common | {"object": "chat.completion", "choices": [choice], "usage": usage}
            self.reply("application/json", json.dumps(body).encode())
            return
        chunk = common | {"object": "chat.completion.chunk"}
        events = [
            chunk | {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            chunk | {"choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
        self.reply("text/event-stream", "".join(lines).encode())

    def reply(self, kind: str, body: bytes) -> None:
        try:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # its process was killed, which is what the test is about

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each call takes")
    parser.add_argument("--address", default="127.0.0.1", help="where it listens")
    options = parser.parse_args()
    Handler.book, Handler.seconds = Book(), options.seconds
    server = Server((options.address, 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
