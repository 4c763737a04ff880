"""The options of the JVM: when the optimising compiler is off, when a class archive is used. No Spark."""

import os
from pathlib import Path

import pytest

from jobs.spark.jars import S3_SUMS_FILE, JarsMissing, class_path, delta_jars, listed_jars
from jobs.spark.java_options import OPTIMISE_FROM, archive_file, class_path_option, java_options, spark_jars
from jobs.spark.object_storage import object_storage
from jobs.spark.session import _jvm_settings
from jobs.spark.submit import are_on_class_path, master_url, submit_settings


def _jar(directory: Path, name: str, text: str = "x") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    return directory / name


@pytest.mark.parametrize(
    ("records", "is_off"), [(None, False), (0, True), (OPTIMISE_FROM - 1, True), (OPTIMISE_FROM, False)]
)
def test_a_small_chunk_has_no_optimising_compiler(*, records: int | None, is_off: bool) -> None:
    options = java_options(None, records=records)
    assert ("-XX:TieredStopAtLevel=1" in options) == is_off


def test_an_archive_is_used_only_if_it_exists(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    assert java_options(archive) == []
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in java_options(archive)
    assert "-Xshare:auto" in java_options(archive), "an archive that does not fit must not stop the JVM"


def test_an_archive_of_another_java_or_of_other_jars_is_not_used(tmp_path: Path) -> None:
    home, own = tmp_path / "java", [_jar(tmp_path / "spark", "spark-core-4.jar")]
    jars = [_jar(tmp_path / "delta", "io.delta_delta-storage-4.4.0.jar")]
    _jar(home, "release", 'JAVA_VERSION="17.0.1"')
    names = {archive_file(home, jars, own)}
    names.add(archive_file(home, jars, own))
    assert len(names) == 1
    _jar(home, "release", 'JAVA_VERSION="17.0.2"')
    names.add(archive_file(home, jars, own))
    _jar(tmp_path / "delta", "io.delta_delta-storage-4.4.0.jar", "other")
    names.add(archive_file(home, jars, own))
    names.add(archive_file(home, [], own))
    assert len(names) == 4


def test_jars_that_spark_has_in_another_version_are_not_put_before_its_own(tmp_path: Path) -> None:
    own = [_jar(tmp_path, "jackson-databind-2.21.2.jar"), _jar(tmp_path, "parquet-column-1.17.0.jar")]
    delta = _jar(tmp_path, "io.delta_delta-spark_4.2_2.13-4.4.0.jar")
    other = _jar(tmp_path, "com.fasterxml.jackson.core_jackson-databind-2.13.5.jar")
    assert class_path([other, delta], own) == [delta]
    names = {jar.name.partition("_")[0] for jar in class_path(delta_jars(), spark_jars())}
    assert {"io.delta", "io.unitycatalog"} <= names
    assert "org.apache.hadoop" not in names


def test_a_directory_with_a_colon_cannot_be_on_a_class_path(tmp_path: Path) -> None:
    assert class_path_option([_jar(tmp_path / f"a{os.pathsep}b", "io.delta_x-1.jar")], []) is None


def test_a_jvm_that_runs_already_gets_the_jars_from_spark() -> None:
    assert set(_jvm_settings("", extra=["-Xa"], starts_here=False)) == {"spark.jars"}
    found = _jvm_settings("-Xuser", extra=["-Xa"], starts_here=True)
    assert found["spark.driver.extraJavaOptions"] == "-Xa -Xuser", "the user's option comes last, so it wins"
    assert "delta-spark" in found["spark.driver.extraClassPath"]


def test_spark_submit_on_this_machine_gets_the_class_path_of_a_session() -> None:
    session = _jvm_settings("", extra=[], starts_here=True)
    few, many = (submit_settings("local[2]", records=records) for records in (10, 10**9))
    assert few.class_path == many.class_path == session["spark.driver.extraClassPath"]
    assert (few.jars, "-XX:TieredStopAtLevel=1" in few.java_options) == ("", True)
    assert "-XX:TieredStopAtLevel=1" not in many.java_options
    assert are_on_class_path(few.class_path)
    assert not are_on_class_path("")
    assert _jvm_settings("", extra=["-Xa"], starts_here=False, has_jars=True) == {}


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:6443", "local-cluster[2,1,1024]"])
def test_a_cluster_gets_the_jars_from_spark(master: str) -> None:
    found = submit_settings(master, records=10)
    assert "delta-spark" in found.jars
    assert "jackson-databind" not in found.jars, "each Spark has its own"
    assert (found.class_path, found.java_options) == ("", "")


def test_the_master_of_a_connection_is_that_of_airflows_provider() -> None:
    assert master_url("spark", "local[*]", None) == "local[*]"
    assert master_url("spark", "spark://host", 7077) == "spark://host:7077"
    assert master_url("spark", "host", 7077) == "spark://host:7077"
    assert master_url("k8s", "host", 443) == "k8s://host:443"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_a_program_that_may_read_object_storage_gets_its_jars_if_they_are_there(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_S3_JARS", str(tmp_path))
    without = submit_settings(master, may_read=("/data/lake",)).jars
    assert submit_settings(master, may_read=("s3://b/lake",)).jars == without, "most replays do not need them"
    with pytest.raises(JarsMissing, match="Run `make s3`"):
        object_storage(("s3://b/lake",))
    names = [*listed_jars(S3_SUMS_FILE)]
    for name in names:
        (tmp_path / name).touch()
    found = submit_settings(master, may_read=("s3a://b/lake",)).jars.split(",")
    assert [Path(one).name for one in found][-len(names) :] == names
    assert len(found) == len(names) + len([one for one in without.split(",") if one])


def test_an_archive_in_a_directory_with_a_space_is_one_option(tmp_path: Path) -> None:
    archive = _jar(tmp_path / "a b", "c.jsa")
    assert java_options(archive)[0] == f'"-XX:SharedArchiveFile={archive}"'
