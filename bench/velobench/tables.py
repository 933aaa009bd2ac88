"""Figures as text, and tables in markdown."""

NONE = "–"


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
