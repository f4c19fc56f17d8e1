"""The Spark engine on a standalone cluster: a real master, and two workers of which one is killed in the middle of its work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("on_cluster.py")
ENVIRONMENT = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
STARTED = 90  # seconds within which a process must be there


class Cluster:
    """A master and its workers, as processes from the installed pyspark package."""

    def __init__(self, folder: Path, workers: int) -> None:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.folder = folder
        self.master = self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._said("master", r"spark://[\w.]+:\d+")
        one = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--work-dir", str(folder / "work"), self.url)
        self.workers = [self._start(f"worker{i}", "org.apache.spark.deploy.worker.Worker", *one) for i in range(workers)]
        for i in range(workers):
            self._said(f"worker{i}", "Successfully registered with master")

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**ENVIRONMENT, "SPARK_HOME": str(self.home)}
        command = [str(self.home / "bin" / "spark-class"), main, "--webui-port", "0", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def _said(self, name: str, pattern: str) -> str:
        end = time.monotonic() + STARTED
        while time.monotonic() < end:
            found = re.search(pattern, (self.folder / f"{name}.log").read_text(encoding="utf-8"))
            if found:
                return found[0]
            time.sleep(0.2)
        raise AssertionError(f"{name} did not start: {(self.folder / f'{name}.log').read_text(encoding='utf-8')[-2000:]}")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """The worker and its executors: they are one group of processes."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in (*self.workers, self.master):
            if process.poll() is None:
                self.kill(process)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, 2)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.slow
def test_a_worker_is_killed_in_the_middle_of_a_propagation(cluster: Cluster, tmp_path: Path) -> None:
    """The core of the conformance suite first; then a bulk transaction during which a worker dies commits once, exactly."""
    command = [sys.executable, str(PROGRAM), cluster.url, str(tmp_path / "lake")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if line.startswith("round"):
                cluster.kill(cluster.workers[0])
                break
        rest, _ = running.communicate(timeout=400)
    said = "".join(lines) + rest
    assert running.returncode == 0, said[-4000:]
    report = json.loads(said.strip().splitlines()[-1])
    assert report["played"] == report["expected"]
    assert report["version"] == 1
    assert report["same"] is True
    assert report["again"] == 1
