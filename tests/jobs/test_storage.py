"""The setting of object storage: what it takes, what it refuses, and that no form of it shows a secret."""

import itertools
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.spark.object_storage import object_storage
from jobs.storage import (
    StorageSettings,
    canonical_uri,
    delta_options,
    file_system,
    hidden_file,
    is_s3,
    remove_file,
    spark_uri,
)
from windowlib.errors import RequestError, SpecError

SECRETS = {
    "AWS_ACCESS_KEY_ID": "key-canary",
    "AWS_SECRET_ACCESS_KEY": "secret-canary",
    "AWS_SESSION_TOKEN": "token-canary",
}
ENDPOINT = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}


def test_amazons_store_needs_no_variable() -> None:
    found = StorageSettings.read({})
    assert (found.endpoint, found.region, found.access_key_id) == (None, None, None)
    assert found.addressing == "virtual"
    assert found.for_delta("bucket") == {
        "aws_conditional_put": "etag",
        "aws_virtual_hosted_style_request": "true",
        "allow_http": "false",
        "retry_timeout": "120000ms",
        "max_retries": "1000",
        "backoff_config.max_backoff": "5s",
        # Defect: at an endpoint of another store, deltalake read no profile and asked the metadata service.
        "AWS_FORCE_CREDENTIAL_LOAD": "true",
    }
    assert "AWS_FORCE_CREDENTIAL_LOAD" not in StorageSettings.read(SECRETS).for_delta("bucket")


def test_the_endpoint_of_s3_comes_before_that_of_all_services() -> None:
    both = ENDPOINT | {"AWS_ENDPOINT_URL_S3": "https://s3.example.org/"}
    assert StorageSettings.read(both).endpoint == "https://s3.example.org"
    assert not StorageSettings.read(both).is_plain_http
    assert StorageSettings.read(ENDPOINT).is_plain_http
    assert StorageSettings.read(ENDPOINT).for_delta("b")["allow_http"] == "true"


def test_buckets_are_in_the_path_of_a_named_endpoint_unless_the_setting_says_otherwise() -> None:
    path = StorageSettings.read(ENDPOINT)
    assert path.for_delta("b")["aws_endpoint_url"] == "http://127.0.0.1:9000"
    assert path.for_spark()["spark.hadoop.fs.s3a.path.style.access"] == "true"
    virtual = StorageSettings.read(ENDPOINT | {"HINDCAST_STORAGE_ADDRESSING": "virtual"})
    assert virtual.for_delta("b")["aws_endpoint_url"] == "http://b.127.0.0.1:9000"
    assert virtual.for_spark()["spark.hadoop.fs.s3a.path.style.access"] == "false"


def test_pauses_that_double_take_half_of_the_time_to_all_of_it() -> None:
    for seconds in (1, 2, 30, 120, 3_600):
        found = StorageSettings.read({"HINDCAST_STORAGE_RETRY": f"{seconds}s"})
        limit = int(found.for_spark()["spark.hadoop.fs.s3a.retry.limit"])
        assert seconds * 500 <= 500 * (2 ** (limit + 1) - 1)
        assert 500 * (2**limit - 1) <= seconds * 1_000
    assert StorageSettings.read({"HINDCAST_STORAGE_RETRY": "0s"}).for_spark()["spark.hadoop.fs.s3a.retry.limit"] == "0"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000", "AWS_ENDPOINT_URL must be the URL of an object store"),
        ("AWS_ENDPOINT_URL_S3", "ftp://host", "AWS_ENDPOINT_URL_S3 must be the URL of an object store"),
        ("AWS_ENDPOINT_URL", "http://host/bucket", "without a path; found 'http://host/bucket'"),
        ("AWS_ENDPOINT_URL", "http://[x", "is not a URL"),
        ("HINDCAST_STORAGE_ADDRESSING", "dns", "must be path .* or virtual .*, found 'dns'"),
        ("HINDCAST_STORAGE_RETRY", "30", "HINDCAST_STORAGE_RETRY: '30' is not a duration"),
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "true", "AWS_S3_ALLOW_UNSAFE_RENAME is set"),
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb", "AWS_S3_LOCKING_PROVIDER is set"),
        ("AWS_COPY_IF_NOT_EXISTS", "multipart", "AWS_COPY_IF_NOT_EXISTS is set"),
        ("AWS_CONDITIONAL_PUT", "disabled", "AWS_CONDITIONAL_PUT must be etag or unset"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        StorageSettings.read({variable: value})


def test_half_a_pair_of_keys_is_refused() -> None:
    for given in itertools.combinations(SECRETS, 1):
        with pytest.raises(RequestError, match=f"{given[0]} is set and AWS_[A-Z_]+ is not") as caught:
            StorageSettings.read({name: SECRETS[name] for name in given})
        assert "canary" not in str(caught.value)
    with pytest.raises(RequestError) as caught:
        StorageSettings.read({"AWS_ENDPOINT_URL": "http://user:pass-canary@host:9000"})
    assert "canary" not in str(caught.value)


def test_no_form_of_the_setting_but_the_clients_own_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | ENDPOINT).items():
        monkeypatch.setenv(name, value)
    found = StorageSettings.read(SECRETS | ENDPOINT)
    shown = [
        repr(found),
        str(found),
        found.model_dump_json(),
        str(found.for_spark()),
        str(object_storage((), may_read=("s3://b",))),
    ]
    assert [text for text in shown if "canary" in text] == []
    assert found.for_delta("b")["aws_secret_access_key"] == "secret-canary"  # noqa: S105
    assert "canary" not in repr(Lake(root="s3://b/x")), "tasks find credentials in their own environment"


def test_one_place_has_one_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | ENDPOINT).items():
        monkeypatch.setenv(name, value)
    assert {canonical_uri(one) for one in ("s3://b/x", "s3a://b/x", "S3A://b/x")} == {"s3://b/x"}
    assert Lake(root="s3a://b/x") == Lake(root="s3://b/x")
    assert spark_uri("s3://b/x") == "s3a://b/x"
    assert spark_uri("/data/x") == "/data/x"
    assert [is_s3(one) for one in ("s3://b", "gs://b", "/s3/b")] == [True, False, False]
    assert delta_options("/data/x") is delta_options("gs://b/x") is None
    assert file_system("s3://b/x")[0] is file_system("s3://c/y")[0], (
        "one file system, with its connections, per process"
    )


@pytest.mark.parametrize(
    "place",
    [
        "s3://b/a b",
        "s3://b/a%20b",
        "s3://b/ä",
        "s3://b/x/../y",
        "s3://b/x//y",
        "s3://b/./x",
        "s3://b/x?y",
        "s3://b/x#y",
    ],
)
def test_a_uri_that_clients_read_differently_is_refused(place: str) -> None:
    with pytest.raises(SpecError, match="object storage"):
        Lake(root=place)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("x")])
def test_a_file_that_cannot_be_written_leaves_no_part(tmp_path: Path, error: BaseException) -> None:
    def write() -> None:
        with hidden_file(str(tmp_path / "file")) as path:
            Path(path).write_bytes(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_may_be_removed_by_two_processes(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        remove_file(f"{scheme}{tmp_path}/file")
    assert not (tmp_path / "file").exists()
