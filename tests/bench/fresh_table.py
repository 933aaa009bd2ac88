"""Which command makes which row of the CSVs in docs/results, for test_fresh.py.

A figure has an entry in FRESH, or a reason why no row of it is made again. A row is named by its first cell; `columns` are
those of it that are compared, None: all. `wants` tells of a run's options whether the row needs it."""

from velobench import fc_figures, rails_figures, rdrp_figures

def of(**wanted):
    """Runs whose options have one of these values each."""
    return lambda options: all(options.get(name) in values for name, values in wanted.items())


def any_of(*wants):
    return lambda options: any(want(options) for want in wants)


class Made:
    """By a maker of figures."""

    def __init__(self, paper, maker, row, wants, columns=None):
        self.paper, self.maker, self.row, self.wants, self.columns = paper, maker, row, wants, columns


def rails(number, row, wants, columns=None):
    return Made("rails", rails_figures.FIGURES[f"rails-{number}"], row, wants, columns)


def fc(name, row, wants, columns=None):
    return Made("fc", fc_figures.FIGURES[name], row, wants, columns)


def rdrp(name, router, row, wants, columns=None):
    made = Made("rdrp", rdrp_figures.FIGURES[name], row, wants, columns)
    made.router = router
    return made


class Case:
    """A line of MEM's figure 12."""

    def __init__(self, *case):
        self.case = case


_HYBRID = {"load": [0.05], "policy": ["basic", "hybrid", "shipped-hybrid", "shipped-dynamic"],
           "short_bytes": [None, 1024, 65536]}
_HYBRID_LINES = ["basic", "hybrid 1 KB", "hybrid 1 KB, shipped", *rails_figures.SHIPPED]
FRESH = {
    "rails-2": rails(2, "4096", lambda options: True),
    "rails-3": rails(3, "3", lambda options: True),
    "rails-4": rails(4, "5", lambda options: True),
    "rails-7": rails(7, "1.00", of(load=[1.0], bytes=[4096], policy=["dynamic", "shipped-dynamic"]),
                     ["dynamic", "dynamic, asks again at once", "dynamic, shipped"]),
    "rails-8": rails(8, "0.05", of(load=[0.05], bytes=[4096])),
    "rails-9": rails(9, "0.05", of(load=[0.05], bytes=[65536])),
    "rails-10": rails(10, "0.05", of(load=[0.05], bytes=[65536])),
    "rails-11": rails(11, "8192", of(bytes=[8192])),
    "rails-12": rails(12, "32", of(nodes=[32], policy=["basic", "shipped-dynamic"]), ["basic", "dynamic, shipped"]),
    "rails-13": rails(13, "262144", any_of(of(bytes=[262144], rails=[1]),
                                           of(bytes=[262144], policy=["shipped-hybrid", "shipped-dynamic"])),
                      ["basic, 1 rail", "dynamic, 1 rail",
                       *(f"{name}, {rails}" for name in rails_figures.SHIPPED for rails in ("1 rail", "2 rails", "4 rails"))]),
    "rails-14": rails(14, "1", of(load=[1], rails=[1])),
    "rails-15": rails(15, "1", of(load=[0.1], rails=[1])),
    "rails-16": rails(16, "262144", of(bytes=[262144], policy=["basic", "shipped-hybrid", "shipped-dynamic"]),
                      ["basic", *rails_figures.SHIPPED]),
    "rails-17": rails(17, "0.05", of(**_HYBRID, striping=[0]), _HYBRID_LINES),
    "rails-18": rails(18, "0.05", of(**_HYBRID, striping=[0]), _HYBRID_LINES),
    "rails-19": rails(19, "0.05", of(**_HYBRID, striping=[100]), _HYBRID_LINES),
    "rails-20": rails(20, "0.05", of(**_HYBRID, striping=[100]), _HYBRID_LINES),
    "rails-headline": rails("headline", "asks again at once", of(wait=[0], policy=["basic", "dynamic"]),
                            ["basic", "dynamic", "dynamic / basic", "tries a message"]),
    "mem-12-1KiB": Case(16, 3, 1024),
    "mem-12-10KiB": Case(16, 3, 10240),
    "mem-12-100KiB": Case(16, 3, 102400),
    "mem-12-beyond": Case(16, 100, 1024),
}
# The same three runs stand in four tables of a router.
_BIG = of(method=["big"], slow=["1%"], slowdown=[8])
for _router in ("literal", "ready"):
    for _ending in ("", "-trough"):
        FRESH[f"rdrp-1-342-{_router}{_ending}"] = rdrp("rdrp-1", _router, "1", _BIG, ["8x", "8x min", "8x max"])
        FRESH[f"rdrp-4-342-{_router}{_ending}"] = rdrp("rdrp-4", _router, "1", _BIG,
                                                       ["big, 8x", "big, 8x min", "big, 8x max"])
        FRESH[f"rdrp-5-342-{_router}{_ending}"] = rdrp("rdrp-5", _router, "30", of(
            method=["rdrp"], slow=["1%"], window=[30], slowdown=[8]), ["8x", "8x min", "8x max"])
    FRESH[f"rdrp-5-342-{_router}-series"] = rdrp("rdrp-5", _router, "250", _BIG, ["big, 8x"])
    FRESH[f"rdrp-text-342-{_router}"] = rdrp("rdrp-5", _router, "1 % at 8x: one big transfer, %", _BIG)
_PINGPONG = of(processes=[2], workload=["multi_pingpong"])
FRESH.update({
    **{f"fc-{figure}-{hops}-hops": fc(figure, "8", of(hops=[hops], slots=[None, 8], mode=["none", "static"],
                                                      credit_slots=[None, 1, 2, 3, 4]))
       for figure in "45" for hops in (1, 14)},
    "fc-5-distance": fc("5", "8", of(slots=[8])),
    "fc-17": fc("17", "8", of(mode=["none", "static"], slots=[None, 8], control_no_cpu=[None]),
                ["static: total", "static: total min", "static: total max"]),
    **{f"fc-{figure}": fc(figure, "PingPong", _PINGPONG) for figure in ("20", "21", "22", "23")},
})

# Runs of a minute of CPU each, which began as the series of them that are made again in part.
LONG = {f"rdrp-{figure}-5256-{router}{ending}": "a run of 5,256 nodes takes a minute of CPU"
        for router in ("literal", "ready")
        for figure, endings in (("1", ("", "-trough")), ("4", ("", "-trough")), ("5", ("", "-trough", "-series")),
                                ("text", ("",))) for ending in endings}
REAL = {prefix: "measured over MPI on the machine that its page names; another machine or hour gives other numbers"
        for prefix in ("ibfc-", "real-")}
# How the tables of a page were made: no figures.
RUNS = ("fc-runs", "rails-runs", "rdrp-runs")

# Dated tables of before whole engines were simulated, whose runs take an hour of CPU together: date and commit.
OLDER = {
    **dict.fromkeys(("fc-6-256", "fc-6-1024", "fc-7-256", "fc-7-1024", "fc-9", "fc-9-overhead", "fc-10", "fc-10-halves",
                     "fc-24-gatherv", "fc-24-scatterv"), ("2026-11-22", "16ebfd3")),
    **dict.fromkeys(("fc-15", "fc-15-halves", "fc-15-paper", "fc-15-paper-halves", "fc-16", "fc-headline", "stealing",
                     "stealing-patterns"), ("2026-11-22", "99114a0")),
    **dict.fromkeys(("fc-18", "fc-19", "fc-25", "fc-27"), ("2026-11-23", "d1aa410"))}
