"""Answers needles over HTTP: the flights of an aircraft, as JSON.

python examples/needle_service.py [PORT]
curl localhost:8000/tailnum/N541US
"""

from __future__ import annotations

import json
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from flight_data import flights

import intarsia as ia

COLUMNS = ["time_hour", "carrier", "flight", "origin", "dest"]
SECONDS = 2.0  # a request that takes longer is ended


def service(path: Path, port: int) -> ThreadingHTTPServer:
    """Returns a server of the file's rows; threads share one prepared query."""
    by_tailnum = ia.dataset(path).prepare("tailnum = ?")

    class Handler(BaseHTTPRequestHandler):
        """Answers ``GET /tailnum/N541US``."""

        def do_GET(self) -> None:
            prefix, _, tailnum = unquote(self.path).rpartition("/")
            if prefix != "/tailnum":
                self.send_error(404)
                return
            try:
                rows = by_tailnum.to_table(tailnum, columns=COLUMNS, timeout=SECONDS)
            except ia.QueryTimeoutError:
                self.send_error(503)
                return
            body = json.dumps(rows.to_pylist(), default=lambda time: time.isoformat()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Prints nothing for a request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main(port: int) -> None:
    """Writes the flights with a lookup, and answers until interrupted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "flights.parquet")
        ia.write_table(flights(), path, indexes=["tailnum:lookup"])
        with service(path, port) as server:
            print(f"http://127.0.0.1:{server.server_port}/tailnum/N541US", flush=True)
            server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 8000)
