# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Replay a week
#
# A week of twenty people with coding agents, made from the `copilot` profile and replayed on one
# replica. With traffic of your own, put the trace of `tonnage import` in its place.

# %%
import pandas as pd
from tools import figure, tonnage, work

folder = work("week")
trace = folder / "week.csv.zst"
tonnage("generate", "copilot", "--developers", 20, "--days", 7, "--start", "mon", "-o", trace)

# %% [markdown]
# One replica of a 30B model on two H100; a row per call and per task goes to `tables`.

# %%
tables = folder / "tables"
answer = tonnage(
    "replay",
    "scenarios/twenty-developers.toml",
    "--set", "load.kind=trace",
    "--set", "on_overflow=compact",
    "--trace", trace,
    "--out", tables,
    "--json",
)  # fmt: skip
figures = answer["fleet"]["figures"]
calls = pd.read_csv(tables / "calls.csv")
tasks = pd.read_csv(tables / "tasks.csv")
calls.head()

# %% [markdown]
# The tables and the summary are of the same run: counts agree exactly, and so does the hit rate.

# %%
done = calls[calls.outcome == "completed"]
assert len(done) == figures["units"]["calls"]
hit = done.cached_tokens.sum() / done.prompt_tokens.sum()
assert abs(hit - figures["hit"]["true_hit"]) < 1e-9
print(f"{len(calls):,} calls of {len(tasks):,} tasks, {hit:.1%} of the prompt tokens cached")

# %% [markdown]
# ## When the load comes
#
# People work in office hours: most hours of the week are empty, and the size is decided by a few.

# %%
hour = (calls.dispatched_s // 3600).astype(int)
by_hour = calls.groupby(hour).size().reindex(range(hour.max() + 1), fill_value=0)
peak, mean = by_hour.max(), by_hour.mean()
print(f"busiest hour {peak:,} calls, mean {mean:,.0f}: {peak / mean:.1f} times")
assert peak > 2 * mean, "people who work in office hours"

with figure(folder / "week.png", "Calls of a week by hour") as axes:
    axes.bar(by_hour.index / 24, by_hour, width=1 / 24, align="edge", color="#005f9e")
    axes.set_xlabel("day")
    axes.set_ylabel("calls in the hour")

# %% [markdown]
# ## Where prompts hit
#
# Within a turn nearly everything is cached; after a human's pause less, as others came between.

# %%
segments = pd.DataFrame(figures["hit"]["segments"]).set_index("name")
print(segments.to_string(float_format="{:.3f}".format))
assert segments.hit["later_calls"] > segments.hit["turn_boundary"]
assert (segments.hit <= segments.infinite_cache + 1e-12).all(), "no cache beats an infinite one"
