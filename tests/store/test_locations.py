"""What a place is: one function decides for stores, lakes, streams and projects, and nothing is made where it is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import rederive
from rederive.errors import Mismatch, PlaceError, ProjectError
from rederive.locations import RemoteAddress, local_folder, parse_location
from rederive.service.project import init, read_project

PROGRAM = ".decl edge(x: number, y: number)  .decl twice(x: number, z: number)  twice(x, z) :- edge(x, y), edge(y, z)."
REMOTE = (
    "s3a://bucket/x",
    "abfss://box@account.dfs.core.windows.net/x",
    "gs://bucket/x",
    "hdfs://name:8020/x",
    "hdfs:///x",
    "dbfs:/x",
    "S3A://bucket/x",
    "x-y.z+1://a",
)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ("/data/x", "/data/x"),
        ("/data/x/", "/data/x"),
        ("/data//x/.", "/data/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x/", "/data/x"),
        ("FILE:///data/x", "/data/x"),
        ("file://localhost/data/x", "/data/x"),
        ("file:/", "/"),
        ("file:/a%20b/%C3%A9", "/a b/é"),
        ("file:/100%", "/100%"),
        ("/a%20b", "/a%20b"),  # a path is not an address
        ("~/x", "/home/ann/x"),
        ("~", "/home/ann"),
        (Path("~/x"), "/home/ann/x"),
        ("/data/../x", "/x"),
        (Path("/data/x"), "/data/x"),
        (Path("file:///data/x"), "/data/x"),
    ],
)
def test_a_local_folder(given: str | Path, folder: str) -> None:
    assert parse_location(given) == Path(folder)
    assert parse_location(str(parse_location(given))) == Path(folder)


@pytest.mark.parametrize("given", ["x", "./x", "c:/x", "C:\\x", "c:x", "a/s3a://x", "1a:/x", "./s3a:/x", "./~", "x~"])
def test_a_relative_folder(tmp_path: Path, given: str) -> None:
    assert parse_location(given) == tmp_path / given.removeprefix("./")
    assert parse_location(given, Path("/project")) == Path("/project") / given.removeprefix("./")


@pytest.mark.parametrize("given", REMOTE)
def test_a_remote_place_is_left_as_it_is(given: str) -> None:
    assert parse_location(given) == parse_location(f"{given}/") == RemoteAddress(given)
    assert str(parse_location(given) / "base") == f"{given}/base"


@pytest.mark.parametrize(
    "given", ["", "a\0b", "file:x", "file:./x", "s3:bucket", "run:1", "file://other/x", "file:/a%00", "~nobody-is-called-so/x"]
)
def test_what_names_no_place_is_refused(given: str) -> None:
    with pytest.raises(PlaceError) as refused:
        parse_location(given)
    assert refused.value.code == "place"
    assert refused.value.hint


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text("aF:/~.%20\\", max_size=8))
def test_every_text_is_a_place_or_refused(text: str) -> None:
    """A local place is absolute, and names itself; another is what was given."""
    try:
        place = parse_location(text)
    except PlaceError:
        return
    assert parse_location(str(place)) == place
    assert place.is_absolute() and ".." not in place.parts if isinstance(place, Path) else text.startswith(str(place))


def test_an_address_does_not_survive_in_a_path() -> None:
    """pathlib has made one slash of two: `s3a:/bucket/x` has no bucket."""
    with pytest.raises(PlaceError, match="cannot hold an address"):
        parse_location(Path("s3a://bucket/x"))


@pytest.mark.parametrize("lake", REMOTE)
def test_a_remote_lake_asks_for_a_store_and_makes_nothing(tmp_path: Path, lake: str) -> None:
    with pytest.raises(PlaceError, match="needs a folder for its store") as refused:
        rederive.open(lake=lake)
    assert "store=FOLDER" in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", REMOTE)
def test_a_store_is_a_local_folder(tmp_path: Path, store: str) -> None:
    for path, named, lake in ((store, None, None), (None, store, None), (store, None, "lake")):
        with pytest.raises(PlaceError, match="a store needs a local folder"):
            rederive.open(path, store=named, lake=lake)
    assert not list(tmp_path.iterdir())


def test_the_store_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="given twice"):
        rederive.open("a", store="b")
    assert not list(tmp_path.iterdir())


def test_one_store_under_all_its_names(tmp_path: Path) -> None:
    with rederive.open(store=(tmp_path / "a b").as_uri()) as db:
        db.define(PROGRAM)
        with db.transaction() as tx:
            tx.insert("edge", [(1, 2)])
    for name in ("a b", "./a b/", f"file:{tmp_path}/a%20b", tmp_path / "a b", tmp_path / "x" / ".." / "a b"):
        with rederive.open(name) as db:
            assert (db.version, db.pipeline.state.folder) == (1, tmp_path / "a b")
    assert [found.name for found in tmp_path.iterdir()] == ["a b"]


def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "p.dl").write_text(PROGRAM)
    for options in (["--lake", "s3a://bucket/x"], ["--store", "s3a://bucket/x"]):
        command = [sys.executable, "-m", "rederive.cli.main", "run", "p.dl", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "error[place]" in done.stderr
    assert names_in(tmp_path) == ["p.dl"]


def test_places_of_a_project(tmp_path: Path) -> None:
    init(tmp_path / "p")
    file = tmp_path / "p" / "rederive.toml"
    for lake, found in {"s3a://b/x": "s3a://b/x", "dbfs:/x": "dbfs:/x", "file:/x": "/x", "lake": f"{tmp_path}/p/lake"}.items():
        file.write_text(f'programs = ["views.dl"]\nstore = "st"\nlake = "{lake}"\n')
        project = read_project(Path("p"))
        assert (project.store, project.lake) == (tmp_path / "p" / "st", found)
    for wrong in ('store = "s3a://b/x"', 'lake = "s3:x"', 'lake = "file://other/x"'):
        file.write_text(f'programs = ["views.dl"]\n{wrong}\n')
        with pytest.raises(ProjectError, match=r"rederive\.toml: (store|lake)"):
            read_project(tmp_path / "p")
    with pytest.raises(PlaceError, match="a project needs a local folder"):
        init(Path("s3a://bucket/x"))


# With Spark


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """An address of Hadoop's view file system, whose files are in a local folder, `behind`."""
    (tmp_path / "behind").mkdir()
    link = "fs.viewfs.mounttable.places.link./lake"
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(link, f"file://{tmp_path}/behind")
    yield "viewfs://places/lake"
    configuration.unset(link)


def change(db: rederive.Database, *edges: tuple[int, int]) -> None:
    db.migrate(PROGRAM)
    with db.transaction() as tx:
        tx.insert("edge", edges)
    db.settle()


def test_a_remote_lake_with_its_store_elsewhere(spark: SparkSession, tmp_path: Path, mounted: str) -> None:
    for number in (1, 2):
        with rederive.open(lake=f"{mounted}/graph/", store="kept", spark=spark, engine="resident") as db:
            assert db.version == number - 1
            change(db, (number, number + 1))
            assert db.pipeline.state.lake == f"{mounted}/graph"
    assert names_in(tmp_path / "behind/graph") == ["base", "changes", "state", "views"]
    assert names_in(tmp_path) == ["behind", "kept"]
    with rederive.open("kept", lake=f"{mounted}/graph", spark=spark, engine="resident") as db:
        assert db.rows("twice") == [(1, 3)]


@pytest.mark.slow
def test_a_lake_in_a_folder_with_a_difficult_name(spark: SparkSession, tmp_path: Path) -> None:
    """The journal and the tables are in the same folder, whichever way it is named, and Spark finds them."""
    folder = tmp_path / "a b%20c:é"
    with rederive.open(lake=folder.as_uri(), spark=spark, engine="resident") as db:
        change(db, (1, 2), (2, 3))
    assert names_in(tmp_path) == [folder.name]
    assert {"_store", "base", "changes"} <= {*names_in(folder)}
    with rederive.open(lake=folder.name, spark=spark, engine="resident") as db:
        assert (db.version, db.rows("twice")) == (1, [(1, 3)])
    with pytest.raises(Mismatch, match="in another lake"):
        rederive.open(folder / "_store", lake="two", spark=spark, engine="resident")


@pytest.mark.slow
def test_a_local_lake_where_sparks_default_is_elsewhere(spark: SparkSession, tmp_path: Path, mounted: str) -> None:
    """On a cluster `/x` means HDFS to Spark: the tables would not be where the journal is."""
    session = spark.newSession()
    session.conf.set("fs.defaultFS", mounted.removesuffix("/lake"))
    with rederive.open(lake="here", spark=session, engine="resident") as db:
        change(db, (1, 2), (2, 3))
    assert {"_store", "base", "changes"} <= {*names_in(tmp_path / "here")}
    with rederive.open(lake="here", spark=spark, engine="resident") as db:
        assert db.rows("twice") == [(1, 3)]


def test_a_scheme_that_spark_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match='No FileSystem for scheme "nowhere"'):
        rederive.open(lake="nowhere://x/y", store="store", spark=spark)
    assert not list(tmp_path.iterdir())


def test_local_folder_of_an_address() -> None:
    with pytest.raises(PlaceError, match="needs a local folder"):
        local_folder(Path("s3a://bucket/x"), "a store")
