"""The plots of a sweep whose report section lists none."""

from sim.report.plots import automatic_plots, draw_plot

POLICY, T_MS = "scheduler.schedule_policy", "scheduler.fairness.t_ms"
CHUNK, BUDGET = "scheduler.chunked_prefill_size", "scheduler.max_prefill_tokens"
RATE = "workload.arrivals.rate_rps"
POLICIES = ["fcfs", "lpm"]


def kinds(plots):
    return [plot.kind for plot in plots]


def test_sweep_over_fairness_gets_a_trade_off(made_up):
    """Hit rate against p99 TTFT along T, then both against T, and who pays: hot or cold."""
    plots = automatic_plots(made_up({POLICY: POLICIES, T_MS: [0, 100, 1000, None]}))
    assert kinds(plots) == ["trade-off", "curve", "curve", "cdf", "cdf"]
    trade_off = plots[0]
    assert (trade_off.x, trade_off.y) == ("p99_ttft_ms", "cache_hit_rate_pct")
    assert (trade_off.along, trade_off.lines) == (T_MS, (POLICY,))
    assert plots[2].y == ("hot.mean_ttft_ms", "cold.mean_ttft_ms")


def test_sweep_over_two_budgets_gets_heat_maps(made_up):
    """And curves of each, the other one as lines."""
    plots = automatic_plots(made_up({CHUNK: [128, 512, -1], BUDGET: [1024, 4096]}))
    assert kinds(plots) == ["curve", "curve", "heat", "heat", "cdf", "cdf"]
    assert [(plot.x, plot.lines) for plot in plots[:2]] == [(CHUNK, (BUDGET,)), (BUDGET, (CHUNK,))]
    assert (plots[2].x, plots[2].y) == (CHUNK, BUDGET)


def test_sweep_over_policies_gets_bars_and_distributions(made_up):
    """TTFT and hits, hot against cold, and whole distributions."""
    plots = automatic_plots(made_up({POLICY: POLICIES}, seeds=(1, 2, 3)))
    assert kinds(plots) == ["bars", "bars", "cdf", "cdf"]
    assert plots[2].lines == (POLICY,)
    assert plots[3].of == ("all", "hot", "cold")


def test_sweep_over_load_gets_goodput_against_load(made_up):
    """Throughput, where the scenario does not say what is good."""
    grid = {RATE: [1.0, 2.0, 4.0], POLICY: POLICIES}
    assert automatic_plots(made_up(grid))[0].y[0] == "request_goodput"
    no_slo = made_up(grid, lambda *_: {"goodput_slos_ms": {}})
    [load, *_] = automatic_plots(no_slo)
    assert (load.kind, load.x, load.lines) == ("load", RATE, (POLICY,))
    assert load.y[0] == "request_throughput"


def test_random_sweep_gets_dots(made_up):
    """No two settings share a value: nothing can be joined by lines."""
    settings = [{CHUNK: 100 + 7 * i, BUDGET: 5000 - 11 * i} for i in range(20)]
    assert kinds(automatic_plots(made_up({}, settings=settings))) == ["scatter", "scatter"]


def test_sweep_over_seeds_alone_gets_distributions(made_up):
    """One setting."""
    assert kinds(automatic_plots(made_up({}, seeds=(1, 2, 3)))) == ["cdf", "cdf"]


def test_keys_that_go_together_are_one(made_up):
    """A list of settings that differ in two keys at once: the first of them tells all."""
    settings = [{POLICY: "fcfs", CHUNK: 128}, {POLICY: "lpm", CHUNK: 512}]
    plots = automatic_plots(made_up({}, settings=settings))
    assert {key for plot in plots for key in plot.model_dump().values() if key == CHUNK} == set()


def test_plots_of_a_big_grid_are_narrowed_to_six_panels(made_up):
    """Other numbers stand at their middle values; the caption says which."""
    grid = {POLICY: POLICIES, CHUNK: [1, 2, 4, 8, 16, 32, 64, 128], BUDGET: [1, 2, 3]}
    data = made_up(grid)
    plots = automatic_plots(data)
    [cdf] = [plot for plot in plots if plot.kind == "cdf" and plot.lines]
    assert cdf.where == {BUDGET: 2, CHUNK: 16}
    drawn = draw_plot(data, cdf)
    assert "max_prefill_tokens 2" in drawn.caption
