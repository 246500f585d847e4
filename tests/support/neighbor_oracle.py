"""The models of neighbors after each step, computed from all ranks' models at once, and random graphs for tests."""

from __future__ import annotations

import numpy as np

import pycollectives as pc

SHAPES = [1, 2, "all"]
"""Ranks per node: messages only, nodes of two, one node."""


def d_psgd(models, graph, weights, steps_of):
    """Return the models of each rank after each step: x = W x, where a rank keeps the weight of ranks that left.

    `steps_of[r]`: the number of steps of rank r. Sums are computed as in the library, in float32 for 16-bit floats, in
    the order own value, neighbors ascending, so that the bits are the same.
    """
    wide = np.promote_types(models[0].dtype, np.float32) if models[0].dtype.kind == "f" else np.dtype(np.float32)
    now = list(models)
    history = [[] for _ in models]
    for step in range(max(steps_of)):
        shown = list(now)
        for rank in ranks_in(step, steps_of):
            own, taken = graph.at(step).weights_of(rank, weights)
            present = [peer for peer in sorted(taken) if steps_of[peer] > step]
            own += sum(taken[peer] for peer in sorted(taken) if peer not in present)
            total = scaled(shown[rank], own if present else 1.0, wide)
            for peer in present:
                total += scaled(shown[peer], taken[peer], wide)
            now[rank] = total.astype(models[0].dtype)
            history[rank].append(now[rank])
    return history


def scaled(values, weight, wide):
    """Return weight * values in the wide type."""
    return values.astype(wide) * wide.type(weight)


def ranks_in(step, steps_of):
    """Return the ranks that take part in a step."""
    return [rank for rank, steps in enumerate(steps_of) if steps > step]


def push_sum(models, graph, steps_of, *, overlap=0, changes=None):
    """Return the sums and weights of each rank after each step, and at the end, including the shares in flight.

    `changes[rank][step]` is added to a rank's sum before it sends shares. A share for a rank that does not take part in
    the step returns to its sender when the buffer of that step is used again, `1 + overlap` steps later. Float64.
    Returns (history, finals), whose arrays have the weight as their last element.
    """
    now = [np.append(model.astype(np.float64), 1.0) for model in models]
    shown: list[dict[int, np.ndarray]] = []
    history = [[] for _ in models]

    def inputs(rank, step):
        if step < 0:
            return 0.0
        taken = graph.at(step).weights_of(rank, "push-sum")[1]
        return sum(weight * shown[step][peer] for peer, weight in taken.items() if peer in shown[step])

    def returns(rank, step):
        if step < 0:
            return 0.0
        given = graph.at(step).shares_of(rank, "push-sum")[1]
        return sum(weight * shown[step][rank] for peer, weight in given.items() if steps_of[peer] <= step)

    finals = list(now)
    for step in range(max(steps_of)):
        shown.append({})
        for rank in ranks_in(step, steps_of):
            if changes is not None:
                now[rank] = now[rank] + np.append(changes[rank][step], 0.0)
            shown[step][rank] = now[rank]
        for rank in ranks_in(step, steps_of):
            own = graph.at(step).weights_of(rank, "push-sum")[0]
            late = step - overlap
            now[rank] = own * shown[step][rank] + inputs(rank, late) + returns(rank, late - 1)
            history[rank].append(now[rank])
        for rank in ranks_in(step, steps_of):
            if steps_of[rank] == step + 1:
                in_flight = inputs(rank, step) if overlap else 0.0
                finals[rank] = now[rank] + in_flight + sum(returns(rank, step - late) for late in range(overlap + 1))
    return history, finals


def random_graph(rng, size, *, symmetric=False):
    """Return a graph of one to three steps, each with random edges, the first also with a ring."""
    steps = []
    for step in range(rng.integers(1, 4)):
        chosen = rng.random((size, size)) < rng.choice([0.2, 0.5, 0.9])
        if step == 0:
            chosen |= np.roll(np.eye(size, dtype=bool), 1, axis=0)
        if symmetric:
            chosen |= chosen.T
        edges = [(int(j), int(i)) for j, i in np.argwhere(chosen) if i != j]
        steps.append(pc.topology.Topology(size, edges))
    return pc.topology.TimeVarying(steps)
