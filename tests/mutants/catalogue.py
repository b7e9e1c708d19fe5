"""The planted faults: one TOML file each, beside this one. The file's name is the fault's name.

    file = "hortator/..."      what is changed
    find = '''...'''           the text that goes; it must stand there exactly once
    replace = '''...'''        what comes in its place
    why = "..."                which guarantee is broken by that
    killed_by = "tests/...::test_..."   the test that must fail of it, as pytest names it

Text is found by what it says and not by its line, so that a fault survives changes around it.
When its very lines change, the one who changes them sees that here, and plants it anew.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


class NotThere(ValueError):
    """The text that a fault changes does not stand in its file exactly once."""


@attrs.frozen(kw_only=True)
class Mutant:
    """A fault to be planted, and the test that must notice.

    Attributes:
        name: of its file, without the ending.
        file: what is changed, from the root of the tree.
        find: the text that goes.
        replace: the text that comes.
        why: the guarantee that it breaks.
        killed_by: the test that must fail; without a parameter, any of its cases.
    """

    name: str
    file: str
    find: str
    replace: str
    why: str
    killed_by: str

    def planted(self, tree: Path) -> str:
        """The changed text of the file, as it stands in this tree.

        Raises:
            NotThere: it can't be planted.
        """
        path = tree / self.file
        if not path.is_file():
            raise NotThere(f"there is no {self.file}")
        text = path.read_text(encoding="utf-8")
        count = text.count(self.find)
        if count != 1:
            raise NotThere(f"`find` stands {count} times in {self.file}, and must exactly once")
        return text.replace(self.find, self.replace)


def load() -> list[Mutant]:
    """All mutants, by name.

    Raises:
        TypeError: a file has a key too many or too few.
    """
    return [
        Mutant(name=path.stem, **tomllib.loads(path.read_text(encoding="utf-8")))
        for path in sorted(FOLDER.glob("*.toml"))
    ]
