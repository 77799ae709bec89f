"""From the network's opinion of each frame to phones that last: the best path, known LAG frames later (Viterbi, bounded look-ahead)."""

import numpy as np

LAG = 5


def path(scores, transitions, least):
    """Classes of all frames. `scores`: [frames, classes]; `transitions`: [from, to], in logarithms; `least`: frames that a class lasts."""
    frames, classes = scores.shape
    depth = int(least.max())
    # What is the k-th frame of a phone, or a later one if k is the last.
    state = np.full((depth, classes), -np.inf)
    state[0] = scores[0]
    every, last = np.arange(classes), least - 1
    back, out, away = [], [], transitions - np.diag(np.full(classes, np.inf))
    here = np.argmax(state)
    kept = [here]
    for t in range(1, frames):
        ends = state[last, every]
        enter = ends[:, None] + away
        source = enter.argmax(0)
        new = np.full_like(state, -np.inf)
        come = np.zeros((depth, classes), int)
        new[0], come[0] = enter[source, every], last[source] * classes + source
        for k in range(1, depth):
            new[k], come[k] = state[k - 1], (k - 1) * classes + every
        stay = ends + np.diag(transitions)
        better = stay > new[last, every]
        new[last[better], every[better]] = stay[better]
        come[last[better], every[better]] = last[better] * classes + every[better]
        # Beyond its last state a class has none.
        for k in range(depth):
            new[k, least <= k] = -np.inf
        state = new + scores[t]
        state -= state.max()
        back.append(come.ravel())
        if t >= LAG:
            at = int(np.argmax(state))
            for come in back[: -LAG - 1 : -1] if LAG else []:
                at = come[at]
            out.append(at % classes)
    at, rest = int(np.argmax(state)), []
    for n in range(min(LAG, frames)):
        rest.append(at % classes)
        if n < len(back):
            at = back[-1 - n][at]
    return np.array(out + rest[::-1])[:frames]
