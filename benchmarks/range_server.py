"""A server of the present folder on loopback, in a process of its own, that gives ranges of bytes."""

from __future__ import annotations

import atexit
import http.server
import os
import re
import subprocess
import sys

__all__ = ["serving"]


def serving() -> str:
    """Serve the present folder as long as this process lasts; gives the URL."""
    words = [sys.executable, __file__]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # noqa: S603 - itself
    atexit.register(server.terminate)
    assert server.stdout is not None
    return f"http://127.0.0.1:{int(server.stdout.readline())}"


class _Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's word
        """Nothing is printed."""

    def do_GET(self) -> None:
        """Send a range of a file, or all of it."""
        with open(self.path[1:], "rb") as file:  # noqa: PTH123 - a plain string
            size = os.fstat(file.fileno()).st_size
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, stop = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
            self.send_response(206 if asked else 200)
            self.send_header("ETag", '"the same"')
            self.send_header("Content-Length", str(stop - start))
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            self.wfile.flush()
            while start < stop:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, stop - start)


if __name__ == "__main__":
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Ranges)
    sys.stdout.write(f"{found.server_port}\n")
    sys.stdout.flush()
    found.serve_forever()
