"""Statistics, and tables of fixed inputs. The numbers were computed by hand."""

import argparse
import contextlib
import io
import os
import tempfile
import unittest

from velobench import (compare_tables, demo, fairness, fc_results, figures, flood, hosts_tables, matrix, npb, outstanding,
                       pictures, real_figures, rows, saturation, stats, tables)


def named(columns, *lines):
    """Rows as csv.DictReader gives them."""
    return [dict(zip(columns.split(","), line.split(","))) for line in lines]


class Statistics(unittest.TestCase):
    def test_quartiles_lie_between_neighbours(self):
        self.assertEqual(stats.quartiles([4, 1, 3, 2]), [1.75, 3.25])
        self.assertEqual(stats.quartiles([7]), [7, 7])
        self.assertEqual(stats.quartiles([]), [None, None])
        self.assertEqual(stats.median([4, 1, 3, 2]), 2.5)
        self.assertEqual(stats.median([9, 1, 5]), 5)

    def test_what_is_not_there_is_none(self):
        self.assertIsNone(stats.median([]))
        self.assertIsNone(stats.ratio(None, 2))
        self.assertIsNone(stats.ratio(2, None))
        self.assertIsNone(stats.ratio(2, 0))
        self.assertIsNone(stats.geometric_mean([]))

    def test_ratios(self):
        self.assertEqual(stats.ratio(3, 2), 1.5)
        self.assertAlmostEqual(stats.percent_over(126, 105), 20)
        self.assertAlmostEqual(stats.geometric_mean([2, 8]), 4)

    def test_a_spread_is_median_and_ends(self):
        samples = stats.Samples()
        for value in (1, 2, 3, 4, 5):
            samples.add("a", value)
        self.assertEqual(samples.spread("a"), [3, 1, 5])
        self.assertEqual(samples.quartiles("a"), [3, 2, 4])
        self.assertEqual(samples.spread("b"), [None, None, None])


class Text(unittest.TestCase):
    def test_figures(self):
        self.assertEqual([tables.figure(value) for value in (None, 0.1234, 9.9994, 12.34, 1234.5)],
                         ["–", "0.123", "9.999", "12.3", "1234"])
        self.assertEqual([tables.size(size) for size in (0, 8, 1024, 1536, 65536, 1 << 20)],
                         ["0 B", "8 B", "1 KiB", "1536 B", "64 KiB", "1 MiB"])
        self.assertEqual([tables.rounded(value) for value in (None, 0.123456, 12345.6)], ["", "0.1235", "1.235e+04"])

    def test_table(self):
        self.assertEqual(tables.table(["", "a"], "lr", [["x", ""], [1, 2.5]]),
                         "| | a |\n|:--|--:|\n| x | |\n| 1 | 2.5 |\n")


class Pages(unittest.TestCase):
    def test_what_is_written_by_hand_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")

            def written(*parts):
                tables.write_page(path, parts)
                with open(path, encoding="utf-8") as file:
                    return file.read()
            self.assertEqual(written("# New\n", "a\n"), "# New\n\na\n")
            self.assertEqual(written("# Old\n"), "# Old\n")
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"\n{tables.BY_HAND}\n\nWhy.\n\n## More\n")
            for text in ("# Newer\n", "# Newest\n"):
                self.assertEqual(written(text), f"{text}\n{tables.BY_HAND}\n\nWhy.\n\n## More\n")

    def test_pages_have_a_section_that_is_written_by_hand(self):
        for page in ("../results.md", "hosts.md"):
            with open(os.path.join(pictures.RESULTS, page), encoding="utf-8") as file:
                self.assertEqual(file.read().count(f"\n{tables.BY_HAND}\n"), 1, page)

    def test_commands_say_once_how_they_all_begin(self):
        commands = [["mpirun", "-np", "2", "--mca", "pml", pml, "--mca", "btl", "self"] for pml in ("ob1", "cm")]
        self.assertEqual(tables.common_words(commands), ["mpirun", "-np", "2"])
        self.assertEqual(tables.common_words([["a", "b"], ["a", "c"]]), ["a"])


class Lines(unittest.TestCase):
    """Of one table, lines with a word in their names are made, and the other columns stay."""

    def made(self, folder, rows, commit, only=""):
        results = fc_results.Results(folder, os.path.join(folder, "pictures"), "rails", only)
        lines = results.wanted({"a": 1, "b": 2, "b, shipped": 3})
        results.lines("rails-16", "title", "load", ["bytes", *lines],
                      [[row, *(f"{row}{commit}{line}" for line in lines)] for row in rows])
        results.record("default", commit)
        return pictures.read_csv(os.path.join(folder, "rails-16.csv"))

    def test_other_columns_and_how_they_were_made_stay(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            self.made(folder, [1, 2], "first")
            path = os.path.join(folder, "rails-16.csv")
            table = [row[:-1] for row in pictures.read_csv(path)]
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(",".join(row) + "\n" for row in table)
            for commit in ("second", "third"):
                self.assertEqual(self.made(folder, [1, 2], commit, "shipped"),
                                 [["bytes", "a", "b", "b, shipped"],
                                  ["1", "1firsta", "1firstb", f"1{commit}b, shipped"],
                                  ["2", "2firsta", "2firstb", f"2{commit}b, shipped"]])
            _, (_, _, run, date, commit, _) = pictures.read_csv(os.path.join(folder, "rails-runs.csv"))
            self.assertEqual((run, commit), ("default", f"first; 'shipped' lines {date}, third"))
            with open(os.path.join(folder, "rails-figures.md"), encoding="utf-8") as file:
                self.assertTrue(file.read().endswith(
                    f"\n{run}, {date}, {commit}:\n\n- <a id=\"rails-16\"></a>[rails-16](rails-16.csv): title: load\n"))

    def test_pages_list_all_tables_and_how_they_were_made(self):
        for paper, (page, head) in fc_results.PAGES.items():
            noted = pictures.read_csv(os.path.join(pictures.RESULTS, f"{paper}-runs.csv"))[1:]
            with open(os.path.join(pictures.RESULTS, f"{page}.md"), encoding="utf-8") as file:
                self.assertEqual(file.read(), fc_results.page(head, [row[:-1] for row in noted]), page)

    def test_other_rows_are_refused(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            before = self.made(folder, [1, 2], "first")
            with self.assertRaisesRegex(fc_results.Failed, "rails-16: the CSV has other rows than its maker"):
                self.made(folder, [1, 3], "second", "shipped")
            self.assertEqual(pictures.read_csv(os.path.join(folder, "rails-16.csv")), before)

    def test_figures_that_are_made_as_a_whole_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            figures.arguments(["--only", "rails-16,rails-9", "--lines", "shipped"])
        self.assertIn("argument --lines: rails-9: made as a whole only", said.getvalue())


COMPARE = "group,round,column,where,measure,size,value"


class Compare(unittest.TestCase):
    PAIRS = named(COMPARE,
                  "latency,1.1,velo,0-1,line,0,50", "latency,1.1,velo,0-1,latency,8,0.20",
                  "latency,1.1,vader,0-1,line,0,52", "latency,1.1,vader,0-1,latency,8,0.25",
                  "latency,1.1,vader_copied,0-1,latency,8,0.9",
                  "latency,2.1,velo,0-1,line,0,54", "latency,2.1,velo,0-1,latency,8,0.30",
                  "latency,2.1,vader,0-1,line,0,56", "latency,2.1,vader,0-1,latency,8,0.30",
                  "latency,3.1,velo,0-1,line,0,50", "latency,3.1,velo,0-1,latency,8,9",
                  "latency,3.1,velo,0-1,line,0,150",
                  "latency,3.1,vader,0-1,line,0,150", "latency,3.1,vader,0-1,latency,8,1",
                  "latency,3.1,vader,0-1,line,0,52",
                  "latency,4.1,velo,0-1,line,0,200", "latency,4.1,velo,0-1,latency,8,1.5",
                  "latency,4.1,vader,0-1,line,0,200", "latency,4.1,vader,0-1,latency,8,1",
                  "latency,4.1,device,0-1,line,0,200", "latency,4.1,device,0-1,latency,8,1.25")

    def test_near_and_far_rounds_have_tables_of_their_own(self):
        text, summaries = compare_tables.report(self.PAIRS, {"mpich": "not installed"})
        self.assertIn("| | velo | vader | vader, no CMA | MPICH | velo / best | in rounds | met |\n", text)
        self.assertIn("| 8 B | 0.250 | **0.275** | 0.900 | not installed | 0.91 | 0.80–1.00 (2) | must ≤ 1.00 |\n", text)
        self.assertIn("Rounds of each figure: 1 to 2 of latency. A cache line took 50 to 52 ns.\n", text)
        self.assertNotIn("one cache line", text)
        # Ranges and bounds stand only where there is one.
        self.assertIn("| 8 B | 1.500 | **1.000** | – | not installed | 1.50 | **no** ≤ 1.00 |\n", text)
        self.assertIn("### One-way latency, one rank a node, us\n\n| | velo | vader | velo / vader |", text)
        self.assertIn("| 8 B | 1.250 | 1.000 | 1.25 | must ≤ 1.30 |\n", text)
        self.assertIn("are in the CSV only: 1 to 1 of latency.\n", text)
        self.assertEqual(summaries, ["near cores: of 1 targets, 0 reach the aim, 1 only the must, 0 neither",
                                     "far cores: of 2 targets, 0 reach the aim, 1 only the must, 1 neither"])

    def test_columns_at_other_distances_have_a_row_of_lines(self):
        lines = [f"latency,1,{column},0-1,{measure}" for column, ns in (("velo", 200), ("vader", 260))
                 for measure in (f"line,0,{ns}", "latency,8,1", f"line,0,{ns}")]
        text, _ = compare_tables.report(named(COMPARE, *lines), {})
        self.assertIn("| one cache line, ns | 200 | 260 | | |\n", text)

    def test_must_and_aim_by_column_measure_and_size(self):
        for (place, *row), goals in {("near", "velo", "latency", 8): (1.0, 0.85), ("far", "velo", "latency", 4096): (0.9, 0.6),
                                     ("near", "velo", "both", 4096): (1.0, 1.3), ("near", "velo", "rate", 8): (1.0, 1.5),
                                     ("near", "mtl", "latency", 8): (0.95, 0.8), ("far", "mtl", "latency", 8): (1.0, 0.85),
                                     ("near", "mtl", "rate", 8): (1.15, 1.5), ("near", "device", "latency", 8): (1.3, 1.0),
                                     ("near", "device", "latency", 64): None, ("near", "device", "both", 4096): None,
                                     ("near", "mtl_device", "latency", 2048): (0.9, 0.75),
                                     ("near", "static", "alltoall", 4): (1.03, 1.01)}.items():
            self.assertEqual(compare_tables.targets(place, *row), goals, (place, *row))

    def test_the_mtl_stands_in_the_rows_of_the_btl(self):
        lines = [f"latency,{round_}.1,{column},0-1,latency,8,{value}" for round_ in (1, 2) for column, value in
                 (("velo", 0.2), ("mtl", 0.18), ("vader", 0.2), ("ucx", 0.25), ("device", 0.3), ("mtl_device", 0.24))]
        text, summaries = compare_tables.report(named(COMPARE, *lines), {})
        self.assertIn("| | velo | velo's MTL | vader | UCX | velo / best | in rounds | met | MTL / best | in rounds | met |\n",
                      text)
        self.assertIn("| 8 B | 0.200 | 0.180 | **0.200** | 0.250 | 1.00 | 1.00–1.00 (2) | must ≤ 1.00 "
                      "| 0.90 | 0.90–0.90 (2) | must ≤ 0.95 |\n", text)
        self.assertIn("| 8 B | 0.300 | 0.240 | 0.200 | 1.50 | 1.50–1.50 (2) | **no** ≤ 1.30 | 0.80 | 0.80–0.80 (2) "
                      "| must ≤ 0.90 |\n", text)
        self.assertEqual(summaries, ["near cores: of 4 targets, 0 reach the aim, 3 only the must, 1 neither"])

    def test_places_that_lack_rounds_are_named(self):
        both = [row for row in self.PAIRS if row["column"] in ("velo", "vader")]
        self.assertEqual(compare_tables.lacking(both, ["latency"], 1), [])
        self.assertEqual(compare_tables.lacking(both, ["latency"], 2), ["far"])
        self.assertEqual(compare_tables.lacking(both, ["latency"], 3), ["near", "far"])
        self.assertEqual(compare_tables.lacking(both, ["rate"], 1), [])
        other_size = named(COMPARE, "latency,4.1,velo,0-1,line,0,200", "latency,4.1,velo,0-1,latency,64,1")
        self.assertEqual(compare_tables.lacking(both + other_size, ["latency"], 1), ["near"])

    def test_a_place_without_rounds_is_said_to_have_none(self):
        near = [row for row in self.PAIRS if row["round"] in ("1.1", "2.1")]
        text, _ = compare_tables.report(near, {})
        self.assertIn("## Far cores\n\nNone: the CPUs were never far.", text)
        self.assertNotIn("## Near cores\n\nNone", text)

    def test_alltoalls_differ_in_their_ranks(self):
        text, _ = compare_tables.report(named(
            COMPARE, "flow,1,static,np4,alltoall,2048,102", "flow,1,none,np4,alltoall,2048,100",
            "flow,1,static,np2,alltoall,2048,10.1", "flow,1,none,np2,alltoall,2048,10"), {})
        self.assertIn("| 2 | 10.1 | 10.0 | 1.01 | aim ≤ 1.01 |\n| 4 | 102.0 | 100.0 | 1.02 | must ≤ 1.03 |\n", text)

    def test_memory_is_what_a_rank_has_more_than_one_without_a_transport(self):
        values = {"alone,np1,pss,0": (1000,), "tcp,np1,pss,0": (1300,), "tcp,np2,pss,0": (2000, 2200),
                  "vader,np2,pss,1": (2500, 2700), "velo,np2,pss,1": (2280, 2280), "device,np2,pss,1": (2900, 3100)}
        lines = []
        for key, sizes in values.items():
            column, where, measure, size = key.split(",")
            lines += [f"memory,1,{column},{where},{measure},{size},{value}" for value in sizes]
        text, summaries = compare_tables.report(named(COMPARE, *lines), {})
        # vader 2600 - 2100 + 300, velo 2280 - 2100 + 300, one rank a node 3000 - 2100 + 300.
        self.assertIn("| PSS | 2 | 1 | 800 | 480 | 0.60 | must | 1200 | 1.50 | **no** |\n"
                      "| PSS | 2 | 300 | – | – | – | – | – | – | – |\n", text)
        self.assertEqual(summaries, ["memory: of 2 targets, 0 reach the aim, 1 only the must, 1 neither"])


class Matrix(unittest.TestCase):
    COLUMNS = "benchmark,bytes,configuration,ranks,round,value,verdict"
    IMB = named(COLUMNS, "MPI1/PingPong,8,one_node,2,1,2,ok", "MPI1/PingPong,8,one_node,2,2,4,ok",
                "MPI1/PingPong,8,vader,2,1,6,ok", "MPI1/PingPong,16,one_node,2,1,8,ok",
                "MPI1/PingPong,16,vader,2,1,1,ok", "MPI1/PingPong,32,one_node,2,1,0,cut",
                "MPI1/PingPong,64,one_node,2,1,5,wrong", "MPI1/PingPong,64,vader,2,1,5,ok")
    NPB = named(COLUMNS, "is.A,0,one_node,2,1,110,ok", "is.A,0,vader,2,1,100,ok", "ft.A,0,one_node,2,1,90,ok",
                "ft.A,0,vader,2,1,100,ok", "is.A,0,tcp,2,1,50,ok")

    def test_speed_of_times_is_vaders_over_its_own(self):
        # 6 / 3 = 2 and 1 / 8.
        self.assertEqual(matrix.speeds(self.IMB, "us"), {("MPI1/PingPong", "one_node", 2): 0.5})

    def test_means_are_geometric_and_by_class(self):
        of = matrix.speeds(self.NPB, "mop_s")
        self.assertEqual(matrix.speed_table(of, ["one_node", "vader", "tcp"]),
                         "| benchmark | ranks | one_node | tcp |\n|:--|--:|--:|--:|\n| is.A | 2 | 1.10 | 0.50 |\n"
                         "| ft.A | 2 | 0.90 | – |\n| **geometric mean, class A** | 2 | **0.995** | **0.500** |\n")
        self.assertEqual(npb.verdicts(matrix.class_means(of)),
                         ["class A on node, 2 ranks: 0.995; must >= 1.00, aim >= 1.02: not met"])

    def test_a_regression_is_slower_by_more_than_the_tolerance(self):
        of = {("is.A", "one_node", 2): 0.89, ("ft.A", "one_node", 2): 0.91, ("is.A", "tcp", 2): 0.1,
              ("ep.A", "one_node", 2): 1}
        before = matrix.read_baseline("is.A,one_node,2,1.0000\nft.A,one_node,2,1.0000\nis.A,tcp,2,1.0000\n")
        self.assertEqual(matrix.regressions(of, before, 10),
                         (2, ["slower   is.A one_node 2: 0.89 times the speed of vader, 1.00 in the baseline"]))

    def test_a_table_names_no_place_of_this_machine(self):
        self.assertEqual(matrix.command_line("npb", ["--bin", "/a/b", "--np=2,4", "--out", "/c", "--rounds", "3"]),
                         "bench/run npb --bin DIR --np 2,4 --rounds 3")


class Hosts(unittest.TestCase):
    def test_tables(self):
        lines = ["veth,latency,1,velo_net,latency,8,6", "veth,latency,1,mtl_net,latency,8,8",
                 "veth,latency,1,tcp,latency,8,5", "veth,latency,2,velo_net,latency,8,7",
                 "veth,latency,3,velo_net,line,0,48", "veth,latency,3,velo_net,latency,8,6.5",
                 "veth,latency,3,velo_net,line,0,48", "veth,latency,4,velo_net,line,0,180",
                 "veth,latency,4,velo_net,latency,8,20", "veth,latency,4,velo_net,line,0,190",
                 "veth,latency,5,velo_net,line,0,48", "veth,latency,5,velo_net,latency,8,99",
                 "veth,latency,5,velo_net,line,0,190", "veth,fetch,1,velo_net,fetch,8,39",
                 "veth,npb,1,velo_net,is.A,2,110", "veth,npb,1,tcp,is.A,2,100", "veth,npb,1,velo_net,ft.A,2,90",
                 "veth,npb,1,tcp,ft.A,2,100", "loopback,rate,1,velo_net,rate,8,2500000"]
        text = hosts_tables.report(named("where,group,round,column,measure,size,value", *lines))
        self.assertIn("Rounds: latency 3, fetch 1, npb 1.", text)
        self.assertIn("| worst | velo net / mtl | velo net / best | velo net / libfabric |\n|--:|--:|--:|--:|\n"
                      "| 8 B | 0.81 | 1.30 | – |\n", text)
        self.assertIn("| | velo net | mtl/ofi net | btl/tcp |\n|--:|--:|--:|--:|\n| 8 B | 6.50 | 8.00 | 5.00 |\n", text)
        self.assertIn("One cache line, ns: velo net 48.0.", text)
        self.assertIn("Cores: far.", text)
        self.assertIn("| 8 B | 20.0 |\n", text)
        self.assertNotIn("99.0", text, "the cores moved meanwhile")
        self.assertIn("velo net: 39.0 us. Open MPI makes three atomics of it: one takes 2.00 x the 8-byte", text)
        self.assertIn("| is.A | 2 | 110.0 | 100.0 | 1.10 |\n", text)
        self.assertIn("Geometric mean, velo net over btl/tcp, 2 ranks: 0.995.", text)
        self.assertIn("| 8 B | 2.50 |\n", text)
        two_hosts = hosts_tables.report(named("where,group,round,column,measure,size,value", *lines), "veth")
        self.assertTrue(two_hosts and text.startswith(two_hosts) and "2.50" not in two_hosts, two_hosts)

    def test_worst_offset_counts_and_a_link_of_a_rate_is_a_place(self):
        lines = [f"veth 10gbit,bandwidth,1,{column},bandwidth@{offset},65536,{value}"
                 for column, values in (("velo_mtl_net", (100, 200)), ("mtl_net", (100, 100)), ("ucx", (50, 400)),
                                        ("fabric_net", (200, 200)))
                 for offset, value in zip((0, 16), values)]
        text = hosts_tables.report(named("where,group,round,column,measure,size,value", *lines))
        self.assertIn("joined by veth, links of 10 Gb/s", text)
        self.assertIn("| 64 KiB | 1.00 | 0.50 | 0.50 |\n", text)
        fewer = [line for line in lines if "mtl_net,bandwidth@0" not in line or "velo" in line]
        self.assertIn("| 64 KiB | – | 0.50 | 0.50 |\n",
                      hosts_tables.report(named("where,group,round,column,measure,size,value", *fewer)))
        self.assertIn("| offset 16 | velo's MTL net | mtl/ofi net | UCX tcp | libfabric net |\n", text)


class Real(unittest.TestCase):
    """The CSVs of `bench/run real`, of raw files as its probes write them."""

    HEAD = "round,mode,slots,foreign,label,where,measure,size,value\n"

    def made(self, part, lines, name):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, part + ".csv"), "w", encoding="utf-8") as file:
                file.write(self.HEAD + "".join(line + "\n" for line in lines))
            options = argparse.Namespace(out=folder, results=folder, pictures=folder, foreign=100)
            try:
                getattr(real_figures.Figures(options), part)()
            except real_figures.Failed as end:  # figures of which no run counts
                self.assertIn("no run counts", str(end))
            self.assertTrue(os.path.exists(os.path.join(folder, name + ".svg")), "no picture")
            return pictures.read_csv(os.path.join(folder, name + ".csv"))

    def test_overhead_is_over_the_mean_of_both_runs_of_the_round(self):
        lines = [f"1,{mode},{slots},5,{mode},np16/16,{task},2048,{value}" for task in ("alltoall", "pingpong")
                 for mode, slots, value in (("none", 0, 100), ("static", 8, 126), ("dynamic", 8, 105),
                                            ("again", 0, 110), ("static", 16, 210))]
        lines += [f"2,{mode},0,150,{mode},np16/16,alltoall,2048,1" for mode in ("none", "again")]
        table = self.made("patterns", lines, "real-alltoall-16")
        self.assertEqual(table[1:], [["16", "8", "105", "20", "20", "20", "0", "0", "0", "10", "10", "10", "1"],
                                     ["16", "16", "105", "100", "100", "100", "", "", "", "10", "10", "10", "1"]])

    def test_cost_keeps_near_and_far_apart(self):
        lines = []
        for round_, line, last, none, dynamic in ((1, 50, 52, 10, 12), (2, 200, 202, 20, 22), (3, 50, 200, 1, 99)):
            for mode, slots, value in (("none", 0, none), ("dynamic", 16, dynamic)):
                head = f"{round_},{mode},{slots},5,{mode},np2"
                lines += [f"{head},line,0,{line}", f"{head}/2,alltoall,2048,{value}", f"{head},line,0,{last}"]
        table = self.made("cost", lines, "real-cost")
        self.assertEqual([row[:7] + row[10:13] for row in table[1:]],
                         [["alltoall", "2", "near", "16", "1", "52", "10", "20", "20", "20"],
                          ["alltoall", "2", "far", "16", "1", "202", "20", "10", "10", "10"]])

    def test_windows_count_where_the_cores_were_near_before_and_after(self):
        lines = []
        for round_, line, last, value in ((1, 50, 50, 3), (2, 50, 120, 99), (3, 60, 60, 5)):
            head = f"{round_},static,100,5,static,np2"
            lines += [f"{head},line,0,{line}", f"{head}/2,latency,4,{value}", f"{head}/2,latency,64,{2 * value}",
                      f"{head},line,0,{last}"]
        table = self.made("windows", lines, "ibfc-2")
        self.assertEqual([[row[0], *row[4:7]] for row in table],
                         [["bytes", "static", "static_low", "static_high"], ["4", "4", "3", "5"],
                          ["64", "8", "6", "10"]])


class Others(unittest.TestCase):
    def test_demo_marks_jobs_that_ran_at_different_distances(self):
        figures = (("velo", "line", 0, 100), ("velo-mtl", "line", 0, 50), ("vader", "line", 0, 50),
                   ("velo", "latency", 8, 0.3), ("velo-mtl", "latency", 8, 0.1), ("vader", "latency", 8, 0.2),
                   ("velo", "bandwidth", 8, 150), ("velo-mtl", "bandwidth", 8, 80), ("vader", "bandwidth", 8, 100))
        measured = [rows.Row(label, where, *rest) for where in demo.PATHS for label, *rest in figures]
        text = [" ".join(line.split()) for line in demo.comparison(measured, "vader").splitlines()]
        self.assertEqual(text[2:4], ["on node one line 0.100 0.050 0.050 2.00 1.00 *",
                                     "on node 8 0.30 0.10 0.20 1.50 0.50 150 80 100 1.50 0.80"])
        self.assertIn("* The CPUs were not equally near in the jobs of the three: their latencies do not compare. Run "
                      "it again.", text)

    def test_demo_leaves_ucx_out_where_it_does_not_run(self):
        class Mpi:
            sm = "vader"
            runs = "false"

            def has_ucx(self):
                return self.runs != ""

            def ucx_command(self, ranks):
                return [self.runs, str(ranks)]
        with tempfile.TemporaryDirectory() as folder:
            shown = demo.Demo.__new__(demo.Demo)
            shown.mpi, shown.out, shown.program = Mpi(), folder, "pairs"
            for runs, others in (("", ["vader"]), ("false", ["vader"]), ("true", ["vader", "ucx"])):
                Mpi.runs = runs
                with contextlib.redirect_stderr(io.StringIO()):
                    self.assertEqual(shown.others(), others)

    def test_demo_wants_traffic_on_all_paths(self):
        good = {0: {}, 1: {"on_node_rx_messages": 2000, "rma_get_bytes": 2000000},
                2: {"velo_rx_packets": 2000, "rma_ring_bytes": 2000000}, 3: {}}
        demo.check_paths(good, "log")
        for rank, name, value, sentence in ((0, "rma_failed", 1, "rma_failed of rank 0 is not 0"),
                                            (1, "on_node_rx_messages", 5, "rank 1 got no messages through"),
                                            (2, "velo_rx_packets", 5, "rank 2 got no VELO packets"),
                                            (2, "rma_ring_bytes", 0, "rank 2 fetched no large message")):
            with self.assertRaisesRegex(demo.Failed, sentence):
                demo.check_paths({**good, rank: {**good[rank], name: value}}, "log")
        with self.assertRaisesRegex(demo.Failed, "rank 3 printed no counters"):
            demo.check_paths({rank: good[rank] for rank in range(3)}, "log")

    def test_flood_holds_the_receiver_against_its_budgets(self):
        samples = stats.Samples()
        for column, receiver in (("none", 65536 + 256), ("small", 500000), ("vader", 1 << 30)):
            for measure, value in (("receiver", receiver), ("sender", 900), ("s", 1.5)):
                samples.add((column, "np2", measure, 8), value)
        text = flood.table(samples, argparse.Namespace(count=10, rounds=1, np=[2], sizes=[8], columns=flood.COLUMNS))
        self.assertIn("| 2 | 8 | none | 64 | 64 | yes | 900 | 1.50 |", text)
        self.assertIn("| 2 | 8 | small | 488 | 384 | **no** | 900 | 1.50 |", text)
        self.assertIn("| 2 | 8 | vader | 1048576 | – | – | 900 | 1.50 |", text)
        self.assertNotIn("btl", text)

    def test_outstanding_compares_with_vader(self):
        samples = stats.Samples()
        for column, post, held in (("velo", 1, 150), ("vader", 4, 600)):
            for what, value in (("post", post), ("drain", 2), ("held", held), ("kept", 7)):
                samples.add((column, what, 64), value)
        text = outstanding.table(samples, argparse.Namespace(count=10, rounds=1, sizes=[64], columns=["velo", "vader"]))
        self.assertEqual(text.splitlines()[2].split(), ["64", "velo", "1.000", "2.000", "150", "7", "0.25", "0.25"])

    def test_saturation_tells_what_is_left(self):
        samples = stats.Samples()
        for label, others, slow in (("window", 40, 39), ("window/slow", 38, 5)):
            samples.add((label, "others"), others)
            samples.add((label, "slow"), slow)
        options = argparse.Namespace(senders=8, receivers=4, bytes=10, link=40, rounds=1, cases=["window"])
        text = saturation.table(samples, options)
        self.assertEqual(text.splitlines()[2].split(), ["window", "40.00", "38.00", "0.95", "5.00"])

    def test_fairness_tells_what_is_left(self):
        samples = stats.Samples()
        for row in (rows.Row("default/0", "1-0", "rate", 10, 400), rows.Row("default/2", "np4", "line", 0, 50),
                    rows.Row("default/2", "1-0", "rate", 10, 380),
                    *(rows.Row("default/2", f"{sender}-0", "rate", 10, 4) for sender in (2, 3))):
            fairness.add_sample(samples, row)
        options = argparse.Namespace(slow=[0, 2], bytes=10, rate=400, factor=100, rounds=1, cases=["default"])
        lines = fairness.table(samples, options).splitlines()
        self.assertIn("line transfer 50 ns", lines[0])
        self.assertEqual([line.split() for line in lines[2:]],
                         [["default", "0", "400.00", "1.000", "-"], ["default", "2", "380.00", "0.950", "4.00"]])


if __name__ == "__main__":
    unittest.main()
