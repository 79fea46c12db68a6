# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The collapse of the hit rate
#
# More and more developers on one replica. As long as the contexts of all open sessions stay in the
# cache nearly every prompt token hits; beyond that, contexts push each other out, everything is
# prefilled again, and that takes the time in which others would have been served.

# %%
import pandas as pd
from tools import figure, tonnage, work

folder = work("collapse")
cells = folder / "cells"
SCENARIO = "scenarios/collapse/live-sessions.toml"
tonnage("plot", SCENARIO, "--cells", cells, "-o", folder / "live-sessions.png")
results = pd.read_csv(cells / "results.csv")

# %%
columns = {
    "hit.true_hit": "hit",
    "hit.infinite_cache": "infinite cache",
    "kv.live_context_over_pool": "live context / pool",
    "hit.recompute_share": "recomputed",
    "latency.ttft.mean": "mean TTFT, s",
    "throughput.tasks_per_hour": "tasks per hour",
}
means = results.groupby("load.developers")[list(columns)].mean().rename(columns=columns)
print(means.to_string(float_format="{:.3f}".format))

# %% [markdown]
# ## The knee
#
# The hit rate holds until the live contexts fill the pool, and then falls by more than half within
# one doubling of the load, while the time to the first token rises more than tenfold.

# %%
half = means.hit.iloc[0] / 2
after = int(means.index[means.hit < half].min())
before = int(means.index[means.index <= after / 2].max())
fall = means.hit[before] / means.hit[after]
rise = means["mean TTFT, s"][after] / means["mean TTFT, s"][before]
print(f"{before} to {after} developers: hit falls {fall:.1f} times, TTFT rises {rise:.0f} times")
assert fall > 2 and rise > 10
assert means["live context / pool"][before] < means["live context / pool"][after]
# An infinite cache does not care.
assert (means["infinite cache"] > 0.9).all()

with figure(folder / "knee.png", "The knee") as axes:
    axes.plot(means["live context / pool"], means.hit, marker="o", color="#005f9e")
    axes.set(xlabel="live context over KV pool", ylabel="prefix-cache hit rate", ylim=(0, 1))
