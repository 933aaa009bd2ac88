"""Figures as text, tables in markdown, and pages of them."""

import os

NONE = "–"
# The heading of a page's part that is written by hand.
BY_HAND = '## Short of "must"'


def table(heads, align, rows):
    """`align`: a letter for each column, l or r."""
    lines = [heads, *rows]
    texts = ["|" + "|".join(f" {cell} " if str(cell) else " " for cell in line) + "|" for line in lines]
    texts.insert(1, "|" + "|".join({"l": ":--", "r": "--:"}[letter] for letter in align) + "|")
    return "\n".join(texts) + "\n"


def size(size_bytes):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def figure(value, digits=3):
    """This number of digits behind the point below 10, then 1, and none from 1000 on."""
    if value is None:
        return NONE
    return f"{value:.{digits if value < 10 else 1 if value < 1000 else 0}f}"


def fixed(value, digits=2):
    return NONE if value is None else f"{value:.{digits}f}"


def rounded(value):
    """Four digits, for CSV; "" where there is no figure."""
    return "" if value is None else f"{value:.4g}"


def write_page(path, parts):
    """Writes the parts. A page that was there keeps what stands from the heading BY_HAND on."""
    kept = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            _, heading, text = file.read().partition(f"\n{BY_HAND}\n")
        kept = heading and f"{BY_HAND}\n{text}"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*parts, kept] if kept else parts))


def common_words(commands):
    """The options at the beginning of all commands, for a page that says them once."""
    words = os.path.commonprefix(commands)
    # A name without its value is a part of what differs.
    return words[:-2] if len(words) > 1 and words[-2] == "--mca" else words
