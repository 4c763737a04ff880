"""Pipeline files: read, checked, written back as JSON. Cheap to import: a DAG file does.

Example:
    >>> from jobs.pipeline.files import parse_pipeline
    >>> parse_pipeline("pipeline: p", source="p.yaml")
    Traceback (most recent call last):
    ...
    windowlib.errors.SpecError: p.yaml: log: is missing; allowed keys here: ...
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from jobs.pipeline.errors import describe
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.suggestions import did_you_mean
from jobs.pipeline.strict_yaml import parse_yaml, read_yaml
from jobs.plain_text import shortened
from windowlib.errors import SpecError

SUFFIXES = (".yaml", ".yml")
RESERVED_NAMES = frozenset({"event_logs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPipeline:
    """A file that is no pipeline, and why; its DAG shows the error instead of vanishing."""

    name: str
    path: Path
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFiles:
    """All pipeline files of a directory, in the order of their names."""

    good: tuple[Pipeline, ...]
    broken: tuple[BrokenPipeline, ...]


def load_pipeline(name_or_path: str, pipelines_dir: Path) -> Pipeline:
    """Read one pipeline, by name from `pipelines_dir` or by the path of its file.

    Args:
        name_or_path: `flights`, or something with a `/` or ending in `.yaml` / `.yml`.
        pipelines_dir: where names are looked up.

    Raises:
        SpecError: no such file, or what is wrong in it: the file, the key's path, what was found, what is allowed.
    """
    if "/" in name_or_path or name_or_path.endswith(SUFFIXES):
        return load_file(Path(name_or_path))
    files = _files(pipelines_dir)
    path = next((file for file in files if file.stem == name_or_path), None)
    if path is None:
        names = sorted({file.stem for file in files})
        there = f"there are: {', '.join(names)}" if names else "there are none"
        raise SpecError(
            f"no pipeline {shortened(name_or_path)!r}: {pipelines_dir} has no such file; "
            f"{there}{did_you_mean(name_or_path, names)}"
        )
    return _named_like_its_file(load_file(path), path)


def load_file(path: Path) -> Pipeline:
    """Read the pipeline file at a path.

    Raises:
        SpecError: as for `load_pipeline`.
    """
    _refuse_twin(path)
    return build_pipeline(read_yaml(path), source=str(path), functions_dir=path.resolve().parent)


def parse_pipeline(text: str, *, source: str) -> Pipeline:
    """Read a pipeline from YAML text; `source` names it in errors, and functions are looked for beside it.

    Raises:
        SpecError: as for `load_pipeline`.
    """
    return build_pipeline(parse_yaml(text, source=source), source=source, functions_dir=Path(source).resolve().parent)


def build_pipeline(document: object, *, source: str, functions_dir: Path | None = None) -> Pipeline:
    """Check a document that was read already; users' functions are looked for in `functions_dir` first.

    Raises:
        SpecError: as for `load_pipeline`.
    """
    if not isinstance(document, dict):
        raise SpecError(
            f"{source}: expected a mapping that begins with `pipeline: name`, found {type(document).__name__}"
        )
    try:
        pipeline = Pipeline.model_validate(document)
    except ValidationError as error:
        raise SpecError(f"{source}: {describe(error, Pipeline)}") from error
    if pipeline.name in RESERVED_NAMES:
        raise SpecError(f"{source}: pipeline: {pipeline.name!r} is the name of a directory of the lake; choose another")
    return pipeline.read_from(source, functions_dir)


def load_all(pipelines_dir: Path) -> PipelineFiles:
    """Read every pipeline file of a directory; what is broken is returned, never raised.

    Raises:
        SpecError: the directory is missing, or cannot be read.
    """
    good: list[Pipeline] = []
    broken: list[BrokenPipeline] = []
    for path in _files(pipelines_dir):
        try:
            good.append(_named_like_its_file(load_file(path), path))
        except SpecError as error:
            broken.append(BrokenPipeline(name=path.stem, path=path, error=str(error)))
        except Exception as error:  # noqa: BLE001  (law L10: a file stops only itself, also where the bug is ours)
            said = (
                f"{path}: reading it failed with {type(error).__name__}: {error}; this is a bug in Hindcast, report it"
            )
            broken.append(BrokenPipeline(name=path.stem, path=path, error=said))
    return PipelineFiles(good=tuple(good), broken=tuple(broken))


def pipeline_to_json(pipeline: Pipeline) -> str:
    """The pipeline as one line: defaults written out, short durations, aggregates in the file's order."""
    return json.dumps(pipeline_document(pipeline), separators=(",", ":"), ensure_ascii=False)


def pipeline_document(pipeline: Pipeline) -> Mapping[str, object]:
    """The pipeline as plain data that `build_pipeline` reads back to an equal pipeline."""
    return pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)


def pipeline_from_json(text: str, *, source: str, functions_dir: Path | None = None) -> Pipeline:
    """Read back what `pipeline_to_json` wrote, such as the spec that the ledger keeps of a chain.

    Users' functions are looked for in `functions_dir` first: the directory of the pipeline file.

    Raises:
        SpecError: the text is not a pipeline of this version's grammar.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SpecError(f"{source}: is not JSON: {error}") from error
    return build_pipeline(document, source=source, functions_dir=functions_dir)


def _files(directory: Path) -> list[Path]:
    """Every pipeline file of a directory, by name. `glob` would give nothing for a directory that cannot be read."""
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"the directory of pipeline files {directory} cannot be read: {getattr(error, 'strerror', None) or error}; "
            "name another one with --pipelines or HINDCAST_PIPELINES"
        ) from error


def _refuse_twin(path: Path) -> None:
    """Refuse `x.yml` beside `x.yaml`: both would be pipeline x."""
    if path.suffix in SUFFIXES:
        twin = path.with_suffix(next(suffix for suffix in SUFFIXES if suffix != path.suffix))
        if os.path.lexists(twin):
            raise SpecError(
                f"{path}: {twin.name} is beside it, and both are pipeline {path.stem!r}; remove one of them"
            )


def _named_like_its_file(pipeline: Pipeline, path: Path) -> Pipeline:
    if pipeline.name != path.stem:
        raise SpecError(
            f"{path}: pipeline: found {pipeline.name!r}, but the file is named {path.stem!r}; give both the same name"
        )
    return pipeline
