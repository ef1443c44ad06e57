"""The configuration as files: read and validated whole, or refused with the file and the key named.

``fikitd.toml`` first, then ``conf.d/*.toml`` beside it by name; a later file's keys win.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Meta

from fikitd.configuration import AT_START, IN_WORDS, Configuration, TenantSection
from fikitd.errors import ConfigurationError
from fikitd.presence import is_there

DEFAULT_FILE: Final = Path("/etc/fikitd/fikitd.toml")


def default_file() -> Path:
    """Where the configuration is looked for, and need not be."""
    return Path(os.environ.get("CONFIGURATION_DIRECTORY", DEFAULT_FILE.parent)) / DEFAULT_FILE.name


def load(file: Path | None) -> Configuration:
    """The configuration; ``None`` is the default file, which need not exist. Blocking. ConfigurationError."""
    main = file or default_file()
    merged: dict[str, Any] = {}
    try:
        if file is not None and not file.is_file():
            raise ConfigurationError(f"{file}: {'no regular file' if is_there(file) else 'no such file'}")
        for path in parts(main):
            if stat.S_ISREG(path.stat().st_mode):  # /dev/null is nothing, and what a link misses an error
                merged = merge(merged, read(path))
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from None
    return convert(merged, main)


def parts(main: Path) -> list[Path]:
    """The files that there are, in the order of their reading. Raises OSError."""
    more = main.parent / "conf.d"
    names = os.listdir(more) if is_there(more) else []  # glob() finds nothing where it may not look
    found = [main] if is_there(main) else []
    return found + [more / name for name in sorted(names) if name.endswith(".toml")]


def read(path: Path) -> dict[str, Any]:
    """One file, valid by itself."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError is one, and what int() says of too many digits
        raise ConfigurationError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: it is nested too deeply") from None
    for key in without_number(table):
        raise ConfigurationError(f"{path}: nan is no number - at `{key}`")
    convert(table, path)
    return table


def without_number(value: object, key: str = "") -> Iterator[str]:
    """Where ``nan`` stands, which is neither below nor above any limit."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from without_number(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from without_number(each, f"{key}[{place}]")
    elif isinstance(value, float) and math.isnan(value):
        yield key


def convert(table: dict[str, Any], path: Path) -> Configuration:
    """A validated table."""
    try:
        return msgspec.convert(table, Configuration)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {named(str(error), table)}") from None


def named(problem: str, table: dict[str, Any]) -> str:
    """What msgspec says of a table, which calls every tenant ``[...]``, and what may be meant."""
    if "$.tenants[...]" in problem:
        tenant = next(name for name, section in table["tenants"].items() if not fits(section))
        problem = problem.replace("tenants[...]", f"tenants.{tenant}")
    problem = problem.replace("$.", "").replace(" | null", "")  # which TOML has not
    for pattern, words in IN_WORDS.items():
        problem = problem.replace(f"`str` matching regex {pattern!r}", words)
    return problem + meant(problem)


def meant(problem: str) -> str:
    """What could stand in place of what is wrong; empty where that is not to be told."""
    sections = get_type_hints(Configuration) | {"tenants": TenantSection}
    if unknown := re.fullmatch(r"Object contains unknown field `(.+?)`(?: - at `(\w+).*`)?", problem):
        name, section = unknown.groups()
        homes = [
            f"[{home}]".replace("tenants]", "tenants.NAME]")
            for home, each in sections.items()
            if name in each.__struct_fields__
        ]
        if section is None and homes:
            return f"; it belongs in {' or '.join(homes)}"
        known = sections if section is None else sections[section].__struct_fields__
        return "".join(f"; do you mean {each}?" for each in get_close_matches(name, known, 1))
    if choice := re.fullmatch(r"Invalid enum value .* - at `(\w+)\.(\w+)`", problem):
        return f"; it is one of {', '.join(get_args(get_type_hints(sections[choice[1]])[choice[2]]))}"
    return ""


def fits(section: object) -> bool:
    """Whether it can be a tenant's."""
    try:
        msgspec.convert(section, TenantSection)
    except msgspec.ValidationError:
        return False
    return True


def merge(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Tables merge key by key; anything else is replaced."""
    result = dict(older)
    for key, value in newer.items():
        earlier = result.get(key)
        both = isinstance(value, dict) and isinstance(earlier, dict)
        result[key] = merge(earlier, value) if both and isinstance(earlier, dict) else value
    return result


def taken_over(current: Configuration, loaded: Configuration) -> tuple[Configuration, list[str]]:
    """``loaded`` as far as a reload takes it over, and the settings that need the daemon started anew."""
    sections, left = {}, []
    for name in Configuration.__struct_fields__:
        old, new = getattr(current, name), getattr(loaded, name)
        if not isinstance(new, msgspec.Struct):
            continue
        keys = [key for key in new.__struct_fields__ if AT_START in declared(type(new), key)]
        kept = {key: getattr(old, key) for key in keys if getattr(old, key) != getattr(new, key)}
        sections[name] = msgspec.structs.replace(new, **kept)
        left += [f"{name}.{key}" for key in kept]
    return msgspec.structs.replace(loaded, **sections), left


def declared(section: type[msgspec.Struct], name: str) -> tuple[Any, ...]:
    """What a field is declared with, besides its type."""
    return get_args(get_type_hints(section, include_extras=True)[name])[1:]


def help_of(section: type[msgspec.Struct], name: str) -> str:
    """The help beside a field's declaration."""
    extra = declared(section, name)
    text = next((meta.description for meta in extra if isinstance(meta, Meta) and meta.description), "")
    return f"{text} Read at start only." if AT_START in extra else text


def default_text() -> str:
    """The default fikitd.toml: every setting with its help, commented out at its default."""
    lines = [
        "# Settings of fikitd. Everything here is the default; SIGHUP (systemctl reload) reads it again.",
        "",
    ]
    defaults = Configuration()
    for name in Configuration.__struct_fields__:
        value = getattr(defaults, name)
        if isinstance(value, msgspec.Struct):
            lines += section_lines(name, value)
    lines += [
        "# Exceptions for one tenant, by user name or uid, with the keys of [tenant_defaults]:",
        "# [tenants.alice]",
    ]
    lines += ['# priority_ceiling = "high"', ""]
    return "\n".join(lines)


def section_lines(name: str, section: msgspec.Struct) -> list[str]:
    """One table of the default file."""
    lines = [f"# {line.strip()}" for line in (type(section).__doc__ or "").splitlines() if line.strip()]
    lines.append(f"[{name}]")
    for key in section.__struct_fields__:
        shown = msgspec.toml.encode({key: getattr(section, key)}).decode().strip()
        in_one_line = shown.replace("[\n    ", "[").replace(",\n    ", ", ").replace(",\n]", "]")
        lines += [f"# {help_of(type(section), key)}", f"# {in_one_line}"]
    return [*lines, ""]
