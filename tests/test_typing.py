"""The files in tests/typing, which only type checkers read, mean what they say.

Read as they are they must pass, unused ignores being errors. Read without their ignores they
must fail on exactly those lines, and with exactly those codes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.source, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "tests" / "typing").glob("*.py"))
IGNORE = re.compile(r"  # type: ignore\[([a-z-]+)\]$", re.MULTILINE)
FOUND = re.compile(r"^(?:.*/)?(\w+)\.py:(\d+): error: .*  \[([a-z-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def mypy(cache: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """Check files with the settings of this repository, which are strict."""
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    return subprocess.run(
        [*command, "--warn-unused-ignores", "--cache-dir", str(cache), *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_right_uses_pass_and_no_ignore_is_unused(cache: Path) -> None:
    checked = mypy(cache, *FILES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"no issues found in {len(FILES)} source files" in checked.stdout


def test_wrong_uses_fail_on_their_very_lines(cache: Path, tmp_path: Path) -> None:
    marked: set[tuple[str, int, str]] = set()
    for file in FILES:
        text = file.read_text()
        for match in IGNORE.finditer(text):
            marked.add((file.stem, text.count("\n", 0, match.start()) + 1, match[1]))
        (tmp_path / file.name).write_text(IGNORE.sub("", text))
    assert len(marked) > 40, "few lines are marked: is the pattern right?"

    checked = mypy(cache, *sorted(tmp_path.glob("*.py")))
    found = {(name, int(line), code) for name, line, code in FOUND.findall(checked.stdout)}
    assert found == marked, checked.stdout + checked.stderr


def test_telling_a_mailbox_a_wrong_message_is_among_them() -> None:
    lines = (ROOT / "tests" / "typing" / "mailboxes.py").read_text().splitlines()
    told = [line for line in lines if "send_nowait(" in line and "ignore[arg-type]" in line]
    assert len(told) >= 6
