"""Reads and checks pipeline files, and writes pipelines as JSON. A DAG file imports this module, so it must be cheap.

Example:
    >>> from jobs.pipeline.files import parse_pipeline
    >>> parse_pipeline("pipeline: p", source="p.yaml")
    Traceback (most recent call last):
    ...
    windowlib.errors.SpecError: p.yaml: log: is missing; allowed keys here: ...
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from jobs.pipeline.errors import describe
from jobs.pipeline.models.grammar import IS_STORED
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.strict_yaml import parse_yaml, read_yaml
from jobs.plain_text import shortened
from windowlib.errors import SpecError

SUFFIXES = (".yaml", ".yml", ".YAML", ".YML")
RESERVED_NAMES = frozenset({"event_logs"})
KEPT_SPECS = 64
"""The stored specs that a process keeps as pipelines: the spec of a request is read again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPipeline:
    """A pipeline file with an error. Its DAG shows the error, so that the DAG does not disappear from Airflow."""

    name: str
    path: Path
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFiles:
    """All pipeline files of a directory, sorted by name."""

    good: tuple[Pipeline, ...]
    broken: tuple[BrokenPipeline, ...]


def load_pipeline(name_or_path: str, pipelines_dir: Path) -> Pipeline:
    """Read one pipeline by its name or by the path of its file.

    A text with a `/` or ending in one of `SUFFIXES` is a path. Others are names such as `flights`, which are searched
    in `pipelines_dir`.
    Raises SpecError: the file does not exist or is not valid; the message has the file, the path of the key, what was
    found and what is allowed.
    """
    if "/" in name_or_path or name_or_path.endswith(SUFFIXES):
        return load_file(Path(name_or_path))
    files = pipeline_files(pipelines_dir)
    path = next((file for file in files if file.stem == name_or_path), None)
    if path is None:
        names = sorted({file.stem for file in files})
        there = f"its pipelines are: {', '.join(names)}" if names else "it has no pipeline files"
        raise SpecError(
            f"there is no pipeline {shortened(name_or_path)!r} in the directory {pipelines_dir}; "
            f"{there}{did_you_mean(name_or_path, names)}"
        )
    return _check_name(load_file(path), path)


def load_file(path: Path) -> Pipeline:
    """Read the pipeline file at a path. Raises SpecError: as for `load_pipeline`."""
    if (twin := twin_of(path)) is not None:
        raise SpecError(
            f"{path}: the directory also has {twin.name}, and both are pipeline {path.stem!r}; remove one of them"
        )
    return build_pipeline(read_yaml(path), source=str(path), functions_dir=lasting(path).parent)


def parse_pipeline(text: str, *, source: str) -> Pipeline:
    """Read a pipeline from YAML text.

    `source` is a path. It names the pipeline in errors, and users' functions are searched in its directory first.
    Raises SpecError: as for `load_pipeline`.
    """
    return build_pipeline(parse_yaml(text, source=source), source=source, functions_dir=lasting(Path(source)).parent)


def build_pipeline(document: object, *, source: str, functions_dir: Path | None = None) -> Pipeline:
    """Make a pipeline of a YAML document. Users' functions are searched in `functions_dir` first.

    Raises SpecError: as for `load_pipeline`.
    """
    try:
        pipeline = _validated(document, is_stored=False)
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from error
    return pipeline.read_from(source, functions_dir)


def _validated(document: object, *, is_stored: bool) -> Pipeline:
    """Return the pipeline of a document. A stored spec keeps what only an earlier Hindcast accepted in a file."""
    if not isinstance(document, dict):
        raise SpecError(f"expected a mapping of keys, such as `pipeline: name`, found {type(document).__name__}")
    try:
        pipeline = Pipeline.model_validate(document, context={IS_STORED: is_stored})
    except ValidationError as error:
        raise SpecError(describe(error, Pipeline)) from error
    if pipeline.name in RESERVED_NAMES and not is_stored:
        raise SpecError(f"pipeline: {pipeline.name!r} is the name of a directory in the lake; choose another name")
    return pipeline


def load_all(pipelines_dir: Path) -> PipelineFiles:
    """Read every pipeline file of a directory. A file with an error is returned as a BrokenPipeline.

    Raises SpecError: the directory is missing, or cannot be read.
    """
    return load_files(pipeline_files(pipelines_dir))


def load_files(paths: Iterable[Path]) -> PipelineFiles:
    """Read pipeline files. A file with an error is returned as a BrokenPipeline."""
    good: list[Pipeline] = []
    broken: list[BrokenPipeline] = []
    for path in paths:
        try:
            good.append(_check_name(load_file(path), path))
        except SpecError as error:
            broken.append(BrokenPipeline(name=path.stem, path=path, error=str(error)))
        except Exception as error:  # noqa: BLE001  (law L10: one file never stops the others, also if the bug is ours)
            message = (
                f"{path}: reading it failed with {type(error).__name__}: {error}; this is a bug in Hindcast, report it"
            )
            broken.append(BrokenPipeline(name=path.stem, path=path, error=message))
    return PipelineFiles(good=tuple(good), broken=tuple(broken))


def pipeline_to_json(pipeline: Pipeline) -> str:
    """Return the pipeline as one line of JSON: with defaults, short durations, aggregates in the order of the file."""
    return json.dumps(pipeline_document(pipeline), separators=(",", ":"), ensure_ascii=False)


def pipeline_document(pipeline: Pipeline) -> Mapping[str, object]:
    """Return the pipeline as plain data. `build_pipeline` makes an equal pipeline of it."""
    return pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)


@lru_cache(maxsize=KEPT_SPECS)
def pipeline_from_json(text: str, *, source: str, functions_dir: Path | None = None) -> Pipeline:
    """Read the JSON of `pipeline_to_json`, such as a spec that the ledger stores.

    Users' functions are searched in `functions_dir` first: the directory of the pipeline file.
    Raises SpecError: the text is not JSON, or not a pipeline in the grammar of this version.
    """
    try:
        return _stored_spec(text).read_from(source, functions_dir)
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from error


@lru_cache(maxsize=KEPT_SPECS)
def _stored_spec(text: str) -> Pipeline:
    """Return the pipeline of a text that many requests may have in common. It is validated once."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SpecError(f"expected JSON: {error}") from error
    return _validated(document, is_stored=True)


def lasting(path: Path) -> Path:
    """Return the absolute path of a file or directory, without `..`. Links stay.

    A deployment, such as a ConfigMap, swaps a link and removes its target. DAG runs that are under way need the path
    that leads to the new target.
    """
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve follows links, Path.absolute keeps `..`


def pipeline_files(directory: Path) -> list[Path]:
    """Return the pipeline files of a directory, without hidden files: those of editors, such as `.#sales.yaml`.

    Raises SpecError: the directory is missing, or cannot be read.
    """
    try:  # `glob` would return no files, and no error, for a directory that cannot be read
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")
    except (OSError, ValueError) as error:
        raise SpecError(
            f"the directory of pipeline files {directory} cannot be read: {getattr(error, 'strerror', None) or error}; "
            "name another one with --pipelines or HINDCAST_PIPELINES"
        ) from error


def twin_of(path: Path) -> Path | None:
    """Return a file beside `x.yaml` such as `x.yml`, because both are pipeline x; None if there is none."""
    twins = (path.with_suffix(suffix) for suffix in SUFFIXES if path.suffix in SUFFIXES and path.suffix != suffix)
    return next((twin for twin in twins if os.path.lexists(twin)), None)


def _check_name(pipeline: Pipeline, path: Path) -> Pipeline:
    if pipeline.name != path.stem:
        raise SpecError(
            f"{path}: pipeline: found {pipeline.name!r}, but the file is named {path.stem!r}; give both the same name"
        )
    return pipeline
