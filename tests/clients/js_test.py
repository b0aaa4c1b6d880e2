"""Starts a server and runs the tests of the JavaScript clients against it."""

import os
import pathlib
import subprocess
import sys

from live_server import LiveServer

HERE = pathlib.Path(__file__).resolve().parent


def main():
    bun, installed = sys.argv[1:]
    # Packages are found from the folder of the file that imports them.
    test = pathlib.Path(installed) / "clients.test.mjs"
    test.write_bytes((HERE / "js" / "clients.test.mjs").read_bytes())
    with LiveServer() as server:
        environment = os.environ | {
            "MLXX_TEST_URL": server.url,
            "MLXX_TEST_CHAT_MODEL": server.chat_model,
            "MLXX_TEST_VECTOR_MODEL": server.embedding_model,
            "AI_SDK_LOG_WARNINGS": "false",
        }
        done = subprocess.run(
            [bun, "test", "--timeout", "60000", test.name], cwd=installed, env=environment
        )
        server.wait_until_idle()
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
