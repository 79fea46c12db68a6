# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Sweep GPU counts
#
# How much work does a replica more do, and does a router that forgets undo it? Every combination
# of replicas and router under three seeds; cells that are done are kept: a second run is quick.

# %%
import pandas as pd
from tools import figure, tonnage, work

folder = work("sweep")
cells = folder / "cells"
SCENARIO = "scenarios/eighty-developers.toml"
tonnage(
    "sweep", SCENARIO,
    "--vary", "replicas=1..6",
    "--vary", "router=session_affinity,random",
    "--seeds", 3,
    "-o", cells,
)  # fmt: skip
results = pd.read_csv(cells / "results.csv")
assert len(results) == 6 * 2 * 3 and results.refused.isna().all()

# %% [markdown]
# Means over the seeds:

# %%
columns = {
    "hit.true_hit": "hit",
    "throughput.tasks_per_hour": "tasks per hour",
    "latency.task_llm.p90": "p90 task_llm, s",
}
keys = ["fleet.router", "fleet.replicas"]
means = results.groupby(keys)[list(columns)].mean().rename(columns=columns)
print(means.to_string(float_format="{:.3f}".format))

# %% [markdown]
# With one replica there is nothing to choose: both routers give the same figures. With more,
# session affinity keeps the cache.

# %%
affinity, random = means.loc["session_affinity"], means.loc["random"]
assert affinity.hit[1] == random.hit[1]
assert (affinity.hit[1:] > random.hit[1:]).all()

with figure(folder / "sweep.png", "Affinity keeps the cache") as axes:
    for name, line in [("session affinity", affinity), ("random", random)]:
        axes.plot(line.index, line.hit, marker="o", label=name)
    axes.set(xlabel="replicas", ylabel="prefix-cache hit rate", ylim=(0, 1))
    axes.legend()

# %% [markdown]
# ## The same as a search
#
# The smallest fleet whose cells meet every target under every seed is the one that `size` finds.

# %%
mine = results[results["fleet.router"] == "session_affinity"]
met = mine.groupby("fleet.replicas").met.all()
smallest = int(met[met].index.min())
answer = tonnage("size", SCENARIO, "--seeds", 3, "--json", codes=(0, 1))
print(f"sweep: {smallest} replicas, size: {answer['replicas']}, {answer['gpus']} GPUs")
assert answer["replicas"] == smallest
