"""Input: rows of probes, the output of IMB, NPB and callgrind, counters."""

import os
import tempfile
import unittest

from velobench import imb, instructions, npb, openmpi, real, rows
from velobench.real_figures import largest_share


class Rows(unittest.TestCase):
    def test_a_row_has_five_fields_of_which_two_are_numbers(self):
        text = "mpirun: a warning, of two, or three, or four, words\nvelo,0-1,latency,8,0.25\nvelo,0-1,line,0,5.1e+01\n"
        self.assertEqual(rows.parse(text), [("velo", "0-1", "latency", 8, 0.25), ("velo", "0-1", "line", 0, 51.0)])

    def test_what_is_cut_off_is_no_row(self):
        self.assertEqual(rows.parse("velo,0-1,latency,8\nvelo,0-1,latency,x,1\nvelo,0-1,latency,8,\n"), [])

    def test_rounds_go_on_where_they_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = rows.Kept(os.path.join(folder, "new", "a.csv"), "round", "value")
            self.assertEqual(kept.begin(add=True), 1)
            kept.add([[1, 5], ["2.3", 7]])
            self.assertEqual(kept.begin(add=True), 3)
            self.assertEqual(kept.rows(), [{"round": "1", "value": "5"}, {"round": "2.3", "value": "7"}])
            self.assertEqual(kept.begin(), 1)
            self.assertEqual(kept.rows(), [])


IMB_LOG = """# Benchmarking PingPong
# #processes = 2
       #bytes #repetitions      t[usec]   Mbytes/sec      defects
            0         1000         1.25         0.00      0.00
           32         1000         2.50         9.00      0.25
           64  time-out.;
# Benchmarking Unidir_put
#    MODE: AGGREGATE
#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            8           50         1.00         3.00         2.00
# Benchmarking Barrier
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         1.00         2.00         1.50
"""


class Programs(unittest.TestCase):
    def test_imb(self):
        self.assertEqual(imb.table_rows(IMB_LOG),
                         [("PingPong", "0", "1.25", "0.00"), ("PingPong", "32", "2.50", "0.25"),
                          ("PingPong", "64", "0", "cut"), ("Unidir_put-aggregate", "8", "2.00", "-"),
                          ("Barrier", "0", "1.50", "-")])

    def test_npb(self):
        log = " Time in seconds =   1.50\n Mop/s total     =     812.25\n Verification    =   SUCCESSFUL\n"
        self.assertTrue(npb.verified(log))
        self.assertEqual((npb.figure(log, "Mop/s total"), npb.figure(log, "Time in seconds")), (812.25, 1.5))
        self.assertFalse(npb.verified(log.replace("SUCCESSFUL", "UNSUCCESSFUL")))
        self.assertFalse(npb.verified(""))
        self.assertEqual(npb.figure("", "Mop/s total"), 0)

    def test_npb_that_wants_a_power_of_two(self):
        self.assertEqual([npb.allows("is", ranks) for ranks in (1, 2, 3, 4, 6)], [True, True, False, True, False])
        self.assertTrue(npb.allows("lu", 3))

    def test_callgrind_counts_each_library_and_no_callee_twice(self):
        profile = ("ob=(1) /usr/lib/libmpi.so.40\nfn=(1) measured_send\n10 30\ncob=(2) /x/mca_btl_velo.so\n"
                   "cfn=(2) send\ncalls=1 5\n10 500\n+1 20\nob=(2)\nfn=(2)\n7 500\n")
        self.assertEqual(instructions.count(profile), ("sends", {"libmpi": 50, "mca_btl_velo": 500}))

    def test_callgrind_takes_off_what_a_clock_asks_for(self):
        clock = "velo::Failures<velo::Core<X> >::poll_liveness(unsigned long)"
        profile = ("ob=(1) /x/mca_btl_velo.so\nfn=(1) measured_complete\n10 30\n"
                   f"cfn=(2) {clock}\ncalls=1 5\n10 900\nfn=(2)\n7 400\ncob=(2) /lib/libc.so.6\n"
                   "cfn=(3) open\ncalls=1 5\n7 500\nob=(2)\nfn=(3)\n9 500\nob=(1)\nfn=(1)\ncfn=(2)\ncalls=1 5\n10 100\n")
        self.assertEqual(instructions.count(profile),
                         ("receives", {"mca_btl_velo": 430, "libc": 500, instructions.CLOCK: -1000}))

    def test_instructions_below_a_half_have_no_row(self):
        counts = {("sends", "libmpi", "velo"): 70, ("sends", "libmpi", "vader"): 60.5, ("sends", "libc", "velo"): 0.4}
        text = instructions.table(["velo", "vader"], counts)
        self.assertEqual([line.split() for line in text.splitlines()[1:]],
                         [["sends", "libmpi", "70.0", "60.5"], ["sends", "sum", "70.4", "60.5"]])


class Counters(unittest.TestCase):
    LOG = "[h:1] velo: rank 0 counters: a=1 velo_backpressure=0\nvelo: rank 1 counters: a=2 velo_backpressure=3 text\n"

    def test_by_rank(self):
        self.assertEqual(openmpi.counters(self.LOG), {0: {"a": 1, "velo_backpressure": 0},
                                                      1: {"a": 2, "velo_backpressure": 3}})

    def test_backpressure_is_wrong_where_senders_hold_credits(self):
        of = openmpi.counters(self.LOG)
        self.assertEqual(real.judge("ok", of, "static", 2), ("wrong", "velo_backpressure=3"))
        self.assertEqual(real.judge("ok", of, "hardware", 2), ("ok", ""))
        self.assertEqual(real.judge("timeout", of, "none", 3), ("timeout", "exit code counters of 2 ranks"))

    def test_the_largest_share_is_of_all_ranks(self):
        self.assertEqual(largest_share(["p 0 1 2 30 0 0\nx 0 1 2 99\n", "p 1 1 2 44 0 0\n"]), 44)
        self.assertEqual(largest_share([]), 0)


if __name__ == "__main__":
    unittest.main()
