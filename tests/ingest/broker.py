"""A Kafka broker of one node, started from its Maven artifacts, and a folder of jars with which Spark can talk to it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rederive.lake import jars

POM = Path(__file__).parent / "kafka" / "pom.xml"
CLIENT = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


def fetched(folder: Path) -> Path:
    """The jars of the broker and of Spark's client; Maven keeps them for the next time."""
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout
    return folder


def with_kafka(folder: Path, client: Path) -> Path:
    """What `python -m rederive.lake.jars` and `... kafka` leave behind, put together from what is there already."""
    delta = jars.find_jars()
    assert delta is not None
    spoken = [jar for jar in client.iterdir() if jar.name.startswith(CLIENT)]
    for place, packages, found in ((folder, jars.PACKAGES, delta), (folder / "kafka", jars.KAFKA, spoken)):
        (place / "jars").mkdir(parents=True)
        for jar in found:
            shutil.copy(jar, place / "jars")
        names = [jar.name for jar in found]
        (place / "resolved.json").write_text(json.dumps({"packages": packages, "jars": names}))
    return folder


@contextmanager
def broker(folder: Path, libraries: Path) -> Iterator[str]:
    """A running broker; its address."""
    ports = _free_ports()
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=ports[0], control=ports[1], data=folder / "data"))
    java = ["java", "-Xmx256m", "-cp", f"{libraries}/*"]
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "cmVkZXJpdmUtdGVzdHM0Mg", "-c", str(settings)]
    subprocess.run(format_, check=True, capture_output=True, timeout=120)
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            _await(ports[0], process)
            yield f"localhost:{ports[0]}"
        finally:
            process.terminate()
            process.wait(60)


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _await(port: int, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, "the broker ended"
        try:
            socket.create_connection(("localhost", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError("the broker does not answer")


_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{control}
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{control}
advertised.listeners=PLAINTEXT://localhost:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
