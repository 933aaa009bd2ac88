"""Command lines: the types of options, each of which refuses what is wrong with a sentence."""

import argparse
import os
import re


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def parser(command, description):
    return Parser(prog=f"bench/run {command}", description=description, allow_abbrev=False,
                  formatter_class=argparse.RawDescriptionHelpFormatter)


def words(*known):
    """A list with commas, each word of it one of `known`; without them any word."""
    def convert(text):
        chosen = text.split(",")
        for word in chosen:
            if not word or known and word not in known:
                raise argparse.ArgumentTypeError(f"there is no '{word}'; there are: {','.join(known)}" if known
                                                 else f"an empty word in '{text}'")
        return chosen
    return convert


def number(low, high, what="a number"):
    def convert(text):
        if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what} from {low} to {high}")
        return int(text)
    return convert


def numbers(low, what):
    """A list of numbers with commas."""
    def convert(text):
        if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text) or min(map(int, text.split(","))) < low:
            raise argparse.ArgumentTypeError(f"'{text}' is not a list of {what} such as 2,8")
        return [int(part) for part in text.split(",")]
    return convert


def folder(text):
    """A folder that exists, by its whole path."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return os.path.realpath(text)


def file(text):
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return text


def two_builds(options, parser_):
    """--plugin, which may be given twice, and the column `before` for the second."""
    options.plugins = options.plugin or [options.default_plugin]
    if len(options.plugins) > 2:
        parser_.error("--plugin is given at most twice")
    if len(options.plugins) == 2:
        options.columns = [options.columns[0], "before", *options.columns[1:]]
