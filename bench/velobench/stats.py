"""Statistics of rounds. None stands for a figure that is not there."""

import statistics


def median(values):
    return statistics.median(values) if values else None


def quartiles(values):
    """The first and the third, between neighbours in proportion."""
    if len(values) < 2:
        return [values[0] if values else None] * 2
    first, _, third = statistics.quantiles(values, method="inclusive")
    return [first, third]


def ratio(one, other):
    return None if one is None or not other else one / other


def percent_over(value, base):
    return 100 * (value / base - 1)


def geometric_mean(values):
    values = list(values)
    return statistics.geometric_mean(values) if values else None


class Samples:
    """Values by a key, in the order in which keys came."""

    def __init__(self):
        self._values = {}

    def add(self, key, value):
        self._values.setdefault(key, []).append(float(value))

    def __contains__(self, key):
        return key in self._values

    def __iter__(self):
        return iter(self._values)

    def values(self, key):
        return self._values.get(key, [])

    def median(self, key):
        return median(self.values(key))

    def spread(self, key):
        """Median, the least and the largest."""
        values = self.values(key)
        return [median(values), min(values, default=None), max(values, default=None)]

    def quartiles(self, key):
        """Median, and the quartiles around it."""
        return [self.median(key), *quartiles(self.values(key))]
