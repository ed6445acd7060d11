"""Look up the owner of each aircraft in an HTTP service, with many requests in flight."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from millstream.common import Time, Types
from millstream.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment

OWNERS = {"N342DL": "Delta", "N925SW": "Southwest", "N971DL": "Delta"}


class Registry(BaseHTTPRequestHandler):
    """Stand in for a remote service."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(OWNERS.get(self.path.strip("/"), "unknown").encode())

    def log_message(self, *_):
        pass


class Owner(AsyncFunction):
    def __init__(self, port):
        self.port = port

    async def async_invoke(self, value):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /{value} HTTP/1.0\r\n\r\n".encode())
        _, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return [f"{value}: {body.decode()}"]


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        aircraft = env.from_collection([*OWNERS, "N000XX"], Types.STRING())
        owned = AsyncDataStream.unordered_wait(
            aircraft, Owner(server.server_port), Time.seconds(10), 100, Types.STRING()
        )
        with owned.execute_and_collect() as results:
            print(*sorted(results), sep="\n")
        server.shutdown()
