"""Statistics of rounds. None stands for a figure that is not there."""

import math


def quantile(values, part):
    """The value `part` of the way from the least (0) to the largest (1), between neighbours in proportion."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = (len(ordered) - 1) * part
    below = int(place)
    if below == len(ordered) - 1:
        return ordered[below]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def median(values):
    return quantile(values, 0.5)


def ratio(one, other):
    return None if one is None or not other else one / other


def percent_over(value, base):
    return 100 * (value / base - 1)


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


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

    def spread(self, key, low=0, high=1):
        """Median, and the values at `low` and `high`: the least and the largest, or quartiles."""
        return [quantile(self.values(key), part) for part in (0.5, low, high)]
